"""The short form of examples/mcp_rl: tasks from a URL, no fault, and a sure rise that the campaign never saw."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_nothing_but_a_url_leads_to_a_better_agent(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.mcp_rl.run", "--short", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["faults"] == []
    assert summary["after"]["low"] > summary["before"]["success"]
    assert summary["wins"]["after"]["success"] > summary["wins"]["before"]["success"]
    assert summary["generated"]["tools_left_out"] == ["reserve"]
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml")

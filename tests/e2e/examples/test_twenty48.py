"""The game's short form against a real vLLM: no fault, and success surely rises."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_the_short_form_has_no_fault_and_a_rise(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.twenty48.run", "--short", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["faults"] == []
    assert summary["after"]["low"] > summary["before"]["success"]
    assert summary["judge"]["requests"] == 0
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml")

"""The short form of examples/rlvr against a real vLLM: no fault, and more texts are, as a whole, what was asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_a_rubric_s_reward_leads_to_texts_that_are_what_was_asked_for(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.rlvr.run", "--short", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["faults"] == []
    assert summary["after"]["low"] > summary["before"]["success"]
    assert summary["steps"][-1]["reward"] > summary["steps"][0]["reward"]
    assert summary["judge"]["requests"] > 0
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml")

"""The short form of examples/rlvr as a real program: no fault, and a rise."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_more_answers_are_what_was_asked_after_a_few_steps(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.rlvr.run", "--short", "--seed", "7", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=550, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["faults"] == []
    assert summary["after"]["success"] > summary["before"]["success"]
    assert summary["judge"]["requests"] > 0

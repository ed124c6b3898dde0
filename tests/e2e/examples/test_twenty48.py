"""examples/twenty48 in its short form, as anybody would start it: no fault, and a rise on boards never learned from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from examples.running.programs import ROOT
from examples.running.summary import missing

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def test_the_short_form_rises_without_a_fault(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "examples.twenty48.run", "--short", "--seed", "7", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert missing(summary) == []
    assert summary["short"]
    assert summary["judge"]["requests"] == 0
    assert (tmp_path / "curve.svg").read_text().startswith("<?xml")

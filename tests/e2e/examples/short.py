"""An example's short form, run as a reader runs it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.conftest import ROOT


def run_short(example: str, out: Path, *, surely: bool = True) -> dict[str, Any]:
    """Its summary; the run had no fault, success rose (`surely`: by more than chance), and a picture was drawn."""
    command = [sys.executable, "-m", f"examples.{example}.run", "--short", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, cwd=ROOT)
    assert done.returncode == 0 or not surely, done.stdout + done.stderr
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text())
    assert summary["faults"] == []
    before, after = summary["before"], summary["after"]
    assert (after["low"] if surely else after["success"]) > before["success"]
    assert (out / "curve.svg").read_text().startswith("<?xml")
    return summary

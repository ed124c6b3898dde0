"""`make live` for three minutes: users ask as they please, nothing fails, and a version learned from them goes live.

So it is where what users write next is all that Hone learns from.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT
from tests.stores import Stores, stored_in

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]


def test_users_are_served_without_a_fault_and_a_version_learned_from_them_goes_live(
    tmp_path: Path, stores: Stores
) -> None:
    command = [sys.executable, "-m", "examples.live.live", "--minutes", "3", "--out", str(tmp_path), "--json"]
    with stores.unmade(tmp_path) as recording:
        environment = os.environ | stored_in(recording)
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=800, check=False, cwd=ROOT, env=environment
        )
    assert done.returncode == 0, done.stdout + done.stderr
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["faults"] == []
    assert summary["versions_live"] >= 1
    assert summary["runs"] > 0
    assert any(name != "helpdesk@0" for name in summary["by_version"])
    assert (tmp_path / "live.svg").read_text().startswith("<?xml")


def test_a_version_learned_from_what_users_write_next_goes_live(tmp_path: Path, stores: Stores) -> None:
    command = [sys.executable, "-m", "examples.live.follow_ups.run", "--arms", "follow-ups", "--minutes", "3", "--json"]
    with stores.unmade(tmp_path / "follow-ups-7") as recording:
        environment = os.environ | stored_in(recording)
        done = subprocess.run(
            [*command, "--out", str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=800,
            check=False,
            cwd=ROOT,
            env=environment,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "follow-ups-7" / "result.json").read_text())
    assert result["faults"] == []
    assert result["versions_live"] >= 1
    assert result["messages"]["written"] > 0
    assert 0.6 < result["rewards"]["true"] / result["rewards"]["given"] < 0.95
    assert "no_follow_up" in result["left_out"]

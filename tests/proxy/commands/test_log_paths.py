"""`hone logs`: the file of each program, and where decisions are; notes about variables go to standard error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.proxy.hone_command import hone

pytestmark = pytest.mark.usefixtures("bare")


def test_each_log_is_named_and_decisions_are_in_the_ledger(tmp_path: Path) -> None:
    code, out, _ = hone("logs", "--data", str(tmp_path / "d"))
    assert code == 0
    assert "There are no logs" in out
    logs = tmp_path / "d" / "logs"
    logs.mkdir(parents=True)
    for name in ("proxy", "judge"):
        (logs / f"{name}.log").write_text("x")
    code, out, _ = hone("logs", "--data", str(tmp_path / "d"))
    assert code == 0
    assert str(logs / "judge.log") in out
    assert str(logs / "proxy.log") in out
    assert "hone ledger" in out
    _, out, _ = hone("logs", "--json", "--data", str(tmp_path / "d"))
    assert [one["program"] for one in json.loads(out)] == ["judge", "proxy"]


def test_a_note_about_a_variable_is_printed_once_and_the_command_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HONE_JUDGE_MODEL", "openai/m")
    code, out, error = hone("logs", "--json", "--data", str(tmp_path / "d"))
    assert code == 0
    assert json.loads(out) == []
    assert error.count("HONE_JUDGE__MODEL") == 1

"""What counts as a campaign that was gamed, paused by itself, was mended and recovered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.inbox.gamed import HERE, draw, summarize

ALARM = {"step": 8, "rule": "reward_hacking", "then": "pause", "detail": "validations fell"}
NOTE = {"step": 6, "rule": "tool_drift", "then": "note", "detail": "fewer calls"}


def point(step: int, value: float, version: str = "v") -> dict[str, Any]:
    return {"step": step, "version": version, "value": value, "attempts": 128, "errored": 0}


def report(*values: float, alarms: tuple[dict[str, Any], ...] = (NOTE, ALARM)) -> dict[str, Any]:
    return {
        "validations": [point(2 * place, value) for place, value in enumerate(values)],
        "steps": [{"step": 1, "success": 0.3, "reward": 0.4, "trained": 64}],
        "alarms": [{"alarm": alarm} for alarm in alarms],
        "changes": [{"step": 8, "what": "judge.rewards", "was": "a", "now": "b"}],
        "status": {"code": "finished", "text": "all steps are done"},
        "tests": [point(20, 0.3, "base"), point(20, 0.9, "inbox@9")],
    }


GAMED = report(0.3, 0.35, 0.05)


def test_a_pause_and_a_recovery_are_what_is_wanted() -> None:
    told = summarize(7, GAMED, report(0.3, 0.35, 0.05, 0.5, 0.9), [3, 0], 10.0)
    assert told["missing"] == []
    assert told["paused"] == {"step": 8, "rule": "reward_hacking", "words": "validations fell"}
    assert (told["at_pause"]["success"], told["after"]["success"]) == (0.05, 0.9)
    assert told["tests"]["inbox@9"]["success"] == 0.9


def test_no_pause_is_told() -> None:
    told = summarize(7, report(0.3, 0.35, 0.3, alarms=(NOTE,)), None, [0], 10.0)
    assert told["paused"] is None
    assert told["missing"] == ["no pause by reward_hacking: hone train ended with status 0"]


@pytest.mark.parametrize(
    ("values", "statuses", "word"),
    [
        ((0.3, 0.35, 0.05, 0.06), [3, 0], "no recovery"),
        ((0.3, 0.35, 0.05, 0.31), [3, 0], "nothing learned"),
        ((0.3, 0.35, 0.05, 0.9), [3, 3], "did not resume"),
    ],
)
def test_what_is_missing_is_told(values: tuple[float, ...], statuses: list[int], word: str) -> None:
    missing = summarize(7, GAMED, report(*values), statuses, 10.0)["missing"]
    assert any(word in why for why in missing)


@pytest.mark.slow  # draws
def test_the_committed_picture_is_drawn_of_the_committed_run(tmp_path: Path) -> None:
    draw(json.loads((HERE / "measured" / "gamed-7.json").read_text()), tmp_path / "drawn.svg")
    assert (tmp_path / "drawn.svg").read_bytes() == (HERE / "gamed.svg").read_bytes()


@pytest.mark.slow  # draws
def test_a_run_that_never_paused_is_drawn_too(tmp_path: Path) -> None:
    told = json.loads((HERE / "measured" / "gamed-7.json").read_text())
    draw({**told, "tests": {}, "alarms": []}, tmp_path / "drawn.svg")
    assert (tmp_path / "drawn.svg").exists()

"""The figures of a run of live traffic, and its picture, from runs and decisions written by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from examples.helpdesk.curve import save
from examples.live import picture
from examples.live.record import Decision, LearningRecord, LedgerEntry
from examples.live.summary import Course, summary
from examples.live.users import Run

BEGAN = 1_000_000.0


def run(second: float, version: str | None, right: bool, fault: str | None = None) -> Run:
    return Run(BEGAN + second, BEGAN + second + 1, version, right, fault=fault)


def course(runs: list[Run], **written: Any) -> Course:
    there = LearningRecord(**({"decisions": [], "told": [], "steps": [], "last_calls": {}} | written))
    return Course(BEGAN, BEGAN + 120, runs, there, [], [])


def decision(second: float, number: int, move: str = "gate") -> Decision:
    return Decision(BEGAN + second, f"helpdesk@{number}", f"version_{number}", move, "sane", {})


def test_success_is_told_by_the_minute_in_which_users_asked_and_by_the_version_that_answered() -> None:
    runs = [run(5, "helpdesk@0", True), run(10, "helpdesk@0", False), run(59, "helpdesk@1", False)]
    found = summary(course([*runs, run(61, "helpdesk@1", True)]))
    first, second = found["by_minute"]
    assert (first["runs"], first["right"], second["runs"], second["right"]) == (3, 1, 1, 1)
    assert first["by_version"] == {"helpdesk@0": 2, "helpdesk@1": 1}
    assert found["by_version"]["helpdesk@1"]["success"] == 0.5
    assert found["by_version"]["helpdesk@1"]["second"] == 60.0
    assert found["first_version"]["success"] == 0.5
    assert (found["last_minute"]["runs"], found["last_minute"]["success"]) == (1, 1.0)


def test_a_run_that_no_model_answered_is_a_fault_and_counts_as_not_right() -> None:
    found = summary(course([run(5, None, False, "APIError: gone"), run(6, "helpdesk@0", True)]))
    assert found["faults"] == ["a user's trajectory: APIError: gone"]
    assert found["by_minute"][0]["success"] == 0.5
    assert found["by_version"].keys() == {"helpdesk@0"}


def test_what_was_trained_and_left_out_is_told_by_the_minute_and_nothing_is_lost() -> None:
    told = [LedgerEntry(BEGAN + at, code) for at, code in ((10, "trained"), (70, "zero_variance"), (130, "trained"))]
    found = summary(course([run(5, "helpdesk@0", True)], told=told))
    assert [one["trained"] for one in found["by_minute"]] == [1, 1]
    assert found["by_minute"][1]["left_out"] == {"zero_variance": 1}
    assert (found["trained"], found["left_out"]) == (2, {"zero_variance": 1})


def test_decisions_are_told_with_how_long_after_a_groups_last_call_they_came() -> None:
    calls = {"version_1": [BEGAN + 10, BEGAN + 20], "version_2": [BEGAN + 80]}
    decisions = [decision(30, 1), decision(100, 2, "rejected")]
    found = summary(course([run(5, "helpdesk@0", True)], decisions=decisions, last_calls=calls))
    assert (found["versions_live"], found["versions_refused"]) == (1, 1)
    assert found["last_call_to_decision_s"] == {"median": 20.0, "p95": 20.0, "most": 20.0}
    assert [one["live"] + one["refused"] for one in found["by_minute"]] == [["helpdesk@1"], ["helpdesk@2"]]


def test_the_same_summary_gives_the_same_picture(tmp_path: Path) -> None:
    told = [LedgerEntry(BEGAN + 10, "trained"), LedgerEntry(BEGAN + 70, "too_few")]
    runs = [run(5, "helpdesk@0", True), run(6, "helpdesk@0", False), run(70, "helpdesk@1", True)]
    found = summary(course(runs, told=told, decisions=[decision(30, 1), decision(100, 2, "rejected")]))
    held = {"runs": 200, "right": 60, "success": 0.3, "low": 0.24, "high": 0.37}
    found |= {"traffic": "repeats", "held_out": {"before": held, "after": held | {"success": 0.35}}}
    for name in ("a.svg", "b.svg"):
        save(picture.draw(found), tmp_path / name)
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    found["by_minute"][0]["success"] = 1.0
    save(picture.draw(found), tmp_path / "c.svg")
    assert (tmp_path / "c.svg").read_bytes() != (tmp_path / "a.svg").read_bytes()

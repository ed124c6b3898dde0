"""A session's result: its format, which ones are left to measure, the table, and the bars of the committed ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from examples.live.follow_ups import table
from examples.live.follow_ups.arms import ARMS, OF_TRAFFIC
from examples.live.follow_ups.held_out import TARGET, HeldOutPoint
from examples.live.follow_ups.results import (
    MINUTES,
    Measurement,
    Session,
    is_learned,
    read_results,
    result_of,
    sessions_left,
    write_result,
)
from examples.live.follow_ups.rewards import RewardTruth, compare_with_truth
from examples.live.follow_ups.run import parse_arms, sessions_of
from examples.live.record import LIVE, Decision, LearningRecord
from examples.live.summary import Course, share
from examples.live.users import Run
from recorder.queue.training.steps import StepView
from recorder.states import StepState

BEGAN = 1_000_000.0
MEASURED = read_results()


def run(second: float, right: bool, id_: str) -> Run:
    return Run(BEGAN + second, BEGAN + second + 1, "helpdesk@0", right, id_)


def step(demonstrations: int) -> StepView:
    metrics = {"demonstrations": float(demonstrations)}
    return StepView("s", "default", "a", None, 1, "v0", "v1", StepState.DONE, None, metrics, None, BEGAN, BEGAN + 1)


def result(arm: Any = "follow-ups", seed: int = 7, *, faults: tuple[str, ...] = ()) -> dict[str, Any]:
    runs = [run(5, True, "a"), run(6, False, "b"), run(70, True, "c")]
    live = [Decision(BEGAN + 60, "helpdesk@1", "version_1", LIVE, "sane", {})]
    course = Course(BEGAN, BEGAN + 1200, runs, LearningRecord(live, [], [step(2), step(3)], {}), faults, [])
    points = [HeldOutPoint(second, share([True] * right + [False] * (200 - right))) for second, right in COURSE]
    rewards = compare_with_truth({"a": 1.0, "b": 1.0}, runs)
    return result_of(Measurement(Session(arm, seed), course, points, {"written": 2, "lies": 1}, rewards))


COURSE = [(0.0, 60), (240.0, 100), (480.0, 150), (720.0, 172), (960.0, 165), (1205.0, 180)]


def test_a_result_has_success_over_time_and_what_it_learned_from() -> None:
    found = json.loads(json.dumps(result()))
    assert [(point["second"], point["right"]) for point in found["held_out"]] == COURSE
    assert (found["target"], found["seconds_to_target"]) == (TARGET, 720.0)
    assert (found["arm"], found["seed"], found["minutes"], found["error_rate"]) == ("follow-ups", 7, MINUTES, 0.1)
    assert found["shares"] == {"writes": 0.5, "lies": 0.15, "states": 0.0}
    assert found["messages"] == {"lies": 1, "written": 2}
    assert found["rewards"] == {"given": 2, "true": 1}
    assert (found["imitated"], found["steps"]) == (5, 2)
    assert (found["runs"], found["versions_live"], found["faults"]) == (3, 1, [])


def test_rewards_are_compared_with_the_truth_where_there_are_some() -> None:
    runs = [run(1, True, "a"), run(2, False, "b"), run(3, True, "c")]
    assert compare_with_truth({"a": 0.0, "b": 0.3, "z": 1.0}, runs) == RewardTruth(given=2, true=1)


def test_what_is_committed_is_not_run_again_and_short_sessions_always_are(tmp_path: Path) -> None:
    wanted = sessions_of("followups", None, 11, MINUTES)
    assert [one.arm for one in wanted] == list(OF_TRAFFIC["followups"])
    write_result(wanted[1].path(tmp_path), result("shadow", 11))
    assert sessions_left(wanted, tmp_path) == [wanted[0], wanted[2]]
    short = sessions_of("followups", ["shadow"], 11, 3.0)
    assert sessions_left(short, tmp_path) == short
    assert [(one["arm"], one["seed"]) for one in read_results(tmp_path)] == [("shadow", 11)]


def test_corrections_are_compared_with_the_arm_that_has_none() -> None:
    assert sessions_of("corrections", None, 7, MINUTES) == [Session("corrections", 7), Session("follow-ups", 7)]


def test_arms_are_named_with_commas() -> None:
    assert parse_arms("truth, shadow") == ["shadow", "truth"]
    with pytest.raises(Exception, match="'none'"):
        parse_arms("none")


def test_a_session_with_a_fault_or_without_a_version_proves_nothing() -> None:
    assert is_learned(result())
    assert not is_learned(result(faults=("gone",)))
    assert not is_learned(result() | {"versions_live": 0})


def test_the_table_says_what_is_not_measured() -> None:
    shown = table.table([result(), result(seed=11)])
    assert "| `follow-ups` | 7 | 30.0% | 50.0% | 75.0% | 86.0% | 82.5% | 90.0%" in shown
    assert "| 12 min | 2 | 50% |" in shown
    assert "- `follow-ups` is not measured yet with seed 23." in shown
    assert "- `truth` is not measured yet with seed 7, 11, 23." in shown
    nothing = table.table([])
    assert "|" not in nothing
    assert all(f"`{arm}` is not measured yet" in nothing for arm in ARMS)


def test_readme_has_the_table_of_what_was_measured() -> None:
    page = table.README.read_text("utf-8")
    assert table.MARKS.put(page, table.table(MEASURED)) == page


def test_committed_sessions_are_whole_and_without_a_fault() -> None:
    for one in MEASURED:
        name = f"{one['arm']}, seed {one['seed']}"
        assert one["minutes"] >= MINUTES, name
        assert is_learned(one), name
        assert all(point["runs"] == 200 for point in one["held_out"]), name
        assert one["held_out"][0]["success"] <= 0.4, name
        if one["error_rate"]:  # lies and errors are in the rewards
            assert one["rewards"]["true"] / one["rewards"]["given"] < 0.9, name


def test_follow_ups_alone_teach_in_twenty_minutes() -> None:
    measured = [one for one in MEASURED if one["arm"] == "follow-ups"]
    assert {one["seed"]: one["held_out"][-1]["success"] for one in measured if not taught(one)} == {}


def taught(one: Any) -> bool:
    return bool(one["held_out"][-1]["success"] >= TARGET)

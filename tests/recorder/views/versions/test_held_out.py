"""The held-out tasks at which a version beats another one and at which it loses, from the attempts of both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.views.versions.before_after import TrajectoryAttempt
from recorder.views.versions.held_out import (
    TASKS,
    HeldOutSource,
    ValidationAttempt,
    compare_held_out,
    describe_held_out,
    validation_unit,
    value_attempts,
)

OLD, NEW, BASE = "ver_old", "ver_new", "ver_base"
VALIDATION = HeldOutSource("validation", "helpdesk@2", "success", "orders")


def attempt(task: str, version: str, value: float | None) -> TrajectoryAttempt:
    name = f"{task} {version} {value}"
    return TrajectoryAttempt(task, "val", version, name, name, value, absolute=True)


def validated(version: str, group: str, **values: Any) -> ValidationAttempt:
    made = {"success": None, "reward": None, "absolute": True, "trajectory": f"{group} {version}"} | values
    return ValidationAttempt("order-1", group, str(made.pop("trajectory")), version, **made)


def test_tasks_are_won_lost_or_even_and_the_largest_differences_come_first() -> None:
    before = [attempt(name, OLD, 0.5) for name in ("a", "b", "c", "d")]
    after = [attempt("a", NEW, 0.6), attempt("b", NEW, 1.0), attempt("c", NEW, 0.0), attempt("d", NEW, 0.5)]
    found = compare_held_out(VALIDATION, before, after)
    assert found is not None
    assert [(one.key, one.scenario, one.before, one.after) for one in found.won] == [
        ("b", "b", 0.5, 1.0),
        ("a", "a", 0.5, 0.6),
    ]
    assert [(one.key, one.trajectory_before, one.trajectory_after) for one in found.lost] == [
        ("c", "c ver_old 0.5", "c ver_new 0.0")
    ]
    assert (found.won_count, found.lost_count, found.even_count, found.unmeasured) == (2, 1, 1, 0)
    assert describe_held_out(found) == (
        "At 4 scenarios of the validation of orders, it does better than helpdesk@2 at 2, worse at 1, and equally well "
        "at 1."
    )


def test_what_no_value_tells_apart_is_counted_and_a_task_of_one_version_is_not() -> None:
    before = [attempt("a", OLD, None), attempt("b", OLD, 1.0)]
    found = compare_held_out(VALIDATION, before, [attempt("a", NEW, 1.0), attempt("c", NEW, 1.0)])
    assert found is not None
    assert (found.won, found.lost, found.even_count, found.unmeasured) == ((), (), 0, 1)
    assert describe_held_out(found).endswith("at 1 more, nothing stored says which did better.")
    assert compare_held_out(VALIDATION, before, [attempt("c", NEW, 1.0)]) is None


def test_a_task_of_judged_pairs_has_no_scenario_and_its_words_come_from_its_trajectory() -> None:
    pairs = HeldOutSource("gate pairs", "helpdesk@2", "wins", is_complete=False)
    found = compare_held_out(pairs, [attempt("0a", OLD, 0.0)], [attempt("0a", NEW, 1.0)])
    assert found is not None
    [task] = found.with_tasks({"0a ver_new 1.0": "Where is it?"}).won
    assert (task.key, task.scenario, task.task) == ("0a", None, "Where is it?")
    assert describe_held_out(found) == (
        "At 1 recorded task of its gate's judged pairs, it does better than helpdesk@2 at 1, worse at 0, and equally "
        "well at 0. Only the first attempts were read."
    )


def test_a_long_list_is_cut_and_counted() -> None:
    names = [f"task-{number:03d}" for number in range(TASKS + 5)]
    found = compare_held_out(
        VALIDATION, [attempt(name, OLD, 0.0) for name in names], [attempt(name, NEW, 1.0) for name in names]
    )
    assert found is not None
    assert (len(found.won), found.won_count) == (TASKS, TASKS + 5)


def test_success_by_a_function_counts_before_rewards() -> None:
    some = [validated(NEW, "g", reward=0.2), validated(NEW, "h", success=1.0, reward=0.1)]
    assert validation_unit(some) == "success"
    assert [one.reward for one in value_attempts(some, "success", BASE)] == [None, 1.0]
    assert validation_unit(some[:1]) == "reward"
    assert validation_unit([]) == "reward"


def test_a_ranking_counts_as_wins_over_version_0_in_the_same_group() -> None:
    some = [
        validated(NEW, "g", reward=0.9, absolute=False),
        validated(NEW, "g", reward=0.1, absolute=False, trajectory="second"),
        validated(BASE, "g", reward=0.5, absolute=False),
        validated(NEW, "h", reward=0.5, absolute=False),  # without version 0 beside it
    ]
    assert validation_unit(some) == "wins"
    assert [one.reward for one in value_attempts(some, "wins", BASE)] == [1.0, 0.0, 0.5, None]


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.none() | st.floats(0, 1)), max_size=30))
def test_each_shared_task_is_counted_once(made: Sequence[tuple[str, bool, float | None]]) -> None:
    before = [attempt(task, OLD, value) for task, is_new, value in made if not is_new]
    after = [attempt(task, NEW, value) for task, is_new, value in made if is_new]
    found = compare_held_out(VALIDATION, before, after)
    shared = {one.scenario for one in before} & {one.scenario for one in after}
    counts = (0,) if found is None else (found.won_count, found.lost_count, found.even_count, found.unmeasured)
    assert sum(counts) == len(shared)

"""What a step tells of the rewards that it was trained on: the means of their parts."""

from __future__ import annotations

import sys

import pytest

from recorder.queue.judging.scores import NewPart
from recorder.views.trajectories.shapes import TrajectoryView
from tests.trainer.building import call, choice, group, trajectory
from trainer.batch.rows import RowBasis
from trainer.objectives.group_rows import GroupRows, group_rows
from trainer.step.summary import MOST_EXTRAS, part_metrics, reward_metrics

BASIS = RowBasis("base", ["v3", "v2", "v1", "v0"], max_age=2, max_tokens=1000)


def member(name: str) -> TrajectoryView:
    return trajectory(call(1, [1, 2], choice([10, 11]), id=f"call_{name}"), id=name)


@pytest.fixture
def groups() -> list[GroupRows]:
    """A group of which `a` and `b` are trained on, and `c` has no reward."""
    return [group_rows(group(member("a"), member("b"), member("c")), {"a": 1.0, "b": 0.0, "c": None}, BASIS)]


def test_the_mean_of_each_part_is_over_the_trained_runs_that_have_it(groups: list[GroupRows]) -> None:
    parts = [
        *(NewPart(run, "reward", 0.9) for run in "abc"),
        *(NewPart(run, "checked", value, 1.0) for run, value in (("a", 1.0), ("b", 0.5), ("c", 0.0))),
        *(NewPart(run, "checked.words", value) for run, value in (("a", 10.0), ("b", 20.0), ("c", 90.0))),
        *(NewPart(run, "thumbs", value, 1.0) for run, value in (("a", None), ("b", 1.0))),
        NewPart("c", "only of one that is left out", 1.0),
    ]
    assert part_metrics(groups, parts) == {"part.checked": 0.75, "part.checked.words": 15.0, "part.thumbs": 1.0}


def test_rewards_that_nobody_was_asked_for_are_in_no_mean(groups: list[GroupRows]) -> None:
    same = group_rows(group(member("d"), member("e")), {"d": 0.5, "e": 0.5}, BASIS)
    both = [*groups, same]
    assert reward_metrics(both, {"d", "e"}) == {
        "groups": 2,
        "groups_trained": 1,
        "reward_mean": 0.5,
        "reward_std": 0.5,
    }
    assert reward_metrics(both)["reward_std"] < 0.5
    assert reward_metrics([same], {"d", "e"}) == {"groups": 1, "groups_trained": 0}


def test_a_part_that_nobody_was_asked_for_is_in_no_mean_and_what_stands_beside_it_is(groups: list[GroupRows]) -> None:
    parts = [
        NewPart("a", "ruler", 0.5, 1.0, unasked=True),
        NewPart("b", "ruler", 0.9, 1.0),
        *(NewPart(run, "thumbs", value, 1.0) for run, value in (("a", 1.0), ("b", 0.0))),
    ]
    assert part_metrics(groups, parts) == {"part.ruler": 0.9, "part.thumbs": 0.5}


def test_no_mean_overflows(groups: list[GroupRows]) -> None:
    most = sys.float_info.max
    assert part_metrics(groups, [NewPart("a", "f.x", most), NewPart("b", "f.x", most)]) == {"part.f.x": most}


def test_extras_by_the_thousand_leave_the_step_those_that_most_runs_have(groups: list[GroupRows]) -> None:
    own = [NewPart("a", f"rubric.{n:04d}", 1.0) for n in range(5000)]
    shared = [NewPart(run, "rubric.shared", 1.0) for run in "ab"]
    found = part_metrics(groups, [*own, *shared, NewPart("a", "rubric", 0.5, 1.0)])
    assert len(found) == MOST_EXTRAS + 1
    assert {"part.rubric", "part.rubric.shared", "part.rubric.0000"} <= found.keys()

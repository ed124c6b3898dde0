"""Two versions' runs side by side: what counts as a unit, what each figure is worth, and whom the comparison finds."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.gate.canary import (
    ALPHA,
    ComparedFigure,
    TrajectoryFigures,
    compare_trajectories,
    figure_value,
    null_mean,
    task_differences,
)


def run(group: str, *, candidate: bool, reward: float | None = None, ranked: bool = False) -> TrajectoryFigures:
    return TrajectoryFigures(group, candidate, reward=reward, ranked=ranked)


def test_inside_a_group_the_two_sides_means_are_set_against_each_other() -> None:
    runs = [
        run("a", candidate=False, reward=1.0),
        run("a", candidate=False, reward=0.5),
        run("a", candidate=True, reward=0.25),
    ]
    assert task_differences(runs, ComparedFigure.REWARD) == [-0.5]


def test_groups_that_one_side_alone_ran_in_count_once_each_and_pair_in_their_order() -> None:
    runs = [
        run("a", candidate=False, reward=1.0),
        run("a", candidate=False, reward=0.0),
        run("b", candidate=False, reward=0.25),
        run("c", candidate=True, reward=0.0),
    ]
    assert task_differences(runs, ComparedFigure.REWARD) == [-0.5]
    assert task_differences([*runs, run("d", candidate=True, reward=1.0)], ComparedFigure.REWARD) == [-0.5, 0.75]


def test_a_ranked_reward_says_nothing_beyond_its_group_and_other_figures_do() -> None:
    runs = [
        run("a", candidate=False, reward=1.0, ranked=True),
        run("b", candidate=True, reward=0.0, ranked=True),
        run("c", candidate=False, reward=0.75, ranked=True),
        run("c", candidate=True, reward=0.25, ranked=True),
    ]
    assert task_differences(runs, ComparedFigure.REWARD) == [-0.5]
    assert task_differences(runs, ComparedFigure.ERRORS) == [0.0, 0.0]


def test_what_could_not_be_had_counts_for_neither_side() -> None:
    runs = [run("a", candidate=False, reward=1.0), run("a", candidate=True), run("b", candidate=True)]
    assert task_differences(runs, ComparedFigure.REWARD) == []
    assert task_differences(runs, ComparedFigure.TOOL_FAILURES) == []


def test_every_figure_is_more_where_it_is_better_and_stays_in_its_bounds() -> None:
    good = TrajectoryFigures("a", True, reward=3.0, errored=False, tool_failures=0.0, answer_tokens=0.0, call_s=0.001)
    bad = TrajectoryFigures("a", True, reward=-3.0, errored=True, tool_failures=1.0, answer_tokens=1e9, call_s=1e9)
    for figure in ComparedFigure:
        assert (figure_value(bad, figure), figure_value(good, figure)) == (0.0, 1.0)


def test_answers_twice_as_long_are_worth_the_same_less_wherever_they_begin() -> None:
    shorter, as_before = (
        TrajectoryFigures("a", True, answer_tokens=40.0),
        TrajectoryFigures("a", True, answer_tokens=80.0),
    )
    long, longer = replace(as_before, answer_tokens=500.0), replace(as_before, answer_tokens=1000.0)
    lost = [
        (figure_value(few, ComparedFigure.LENGTH) or 0) - (figure_value(many, ComparedFigure.LENGTH) or 0)
        for few, many in ((shorter, as_before), (long, longer))
    ]
    assert lost == pytest.approx([0.1, 0.1])


def test_the_figures_share_one_rate_of_false_rejections_half_of_it_the_rewards() -> None:
    assert sum(ALPHA.values()) == pytest.approx(0.05)
    assert ALPHA[ComparedFigure.REWARD] == 0.025


def test_a_quarter_longer_is_tolerated_for_good_and_a_lower_reward_is_not() -> None:
    runs = [
        TrajectoryFigures(
            f"g{n}",
            candidate,
            reward=0.5 - 0.05 * candidate,
            answer_tokens=100 * (1.24 if candidate else 1),
            call_s=1.0,
        )
        for n in range(2_000)
        for candidate in (False, True)
    ]
    assert compare_trajectories(runs).worse_by == [ComparedFigure.REWARD]
    assert null_mean(ComparedFigure.ERRORS) == 0.5


USUAL = TrajectoryFigures("g", False, reward=1.0, tool_failures=0.0, answer_tokens=150.0, call_s=1.0)


@pytest.mark.parametrize(
    ("figure", "worse"),
    [
        (ComparedFigure.REWARD, replace(USUAL, reward=0.0)),
        (ComparedFigure.ERRORS, replace(USUAL, errored=True)),
        (ComparedFigure.TOOL_FAILURES, replace(USUAL, tool_failures=1.0)),
        (ComparedFigure.LENGTH, replace(USUAL, answer_tokens=450.0)),
        (ComparedFigure.LATENCY, replace(USUAL, call_s=3.0)),
    ],
)
def test_whoever_is_worse_by_one_figure_half_the_time_is_found_by_that_one(
    figure: ComparedFigure, worse: TrajectoryFigures
) -> None:
    dice = random.Random(3)
    runs = []
    for n in range(400):
        came_out = dice.choice((USUAL, worse))
        runs += [replace(came_out, group_id=f"g{n}", candidate=True), replace(USUAL, group_id=f"g{n}")]
    assert compare_trajectories(runs).worse_by == [figure]


@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.none() | st.floats(-2, 2)), max_size=40))
def test_runs_that_change_sides_turn_every_difference_round(drawn: list[tuple[int, bool, float | None]]) -> None:
    runs = [run(str(group), candidate=side, reward=reward) for group, side, reward in drawn]
    swapped = [replace(r, candidate=not r.candidate) for r in runs]
    here, there = (task_differences(rs, ComparedFigure.REWARD) for rs in (runs, swapped))
    assert here == [-d for d in there]
    assert all(-1 <= d <= 1 for d in here)

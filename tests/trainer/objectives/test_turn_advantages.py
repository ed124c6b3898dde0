"""A turn's advantage is its trajectory's plus `trainer.turn_weight` times its own difference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats.turn_credit import TurnValues
from recorder.views.trajectories.shapes import TrajectoryView
from tests.trainer.building import call, choice, group, trajectory
from trainer.batch.rows import RowBasis
from trainer.batch.turn_mask import weighted_without
from trainer.objectives.group import weigh_groups
from trainer.objectives.group_rows import GroupRows, UntrainedChoice, group_rows
from trainer.settings import TrainerSettings

BASIS = RowBasis("base", ["v3"], max_age=2, max_tokens=1000)
NAMES = "abc"
SIZES = (2, 3, 1)  # sampled tokens of each turn


def member(name: str, **overrides: Any) -> TrajectoryView:
    """Turns of which each continues the one before, and a sub-agent's call that is not on the main path."""
    ids, calls = [1, 2], []
    for number, size in enumerate(SIZES, 1):
        answer = [10 * number + at for at in range(size)]
        calls.append(call(number, list(ids), choice(answer), id=f"{name}{number}"))
        ids += [*answer, 5]
    side = call(9, [8, 9], choice([7]), id=f"{name}9")
    path = [(one.id, 0) for one in calls]
    return trajectory(*calls, side, id=name, main_path=path, **overrides)


def made(rewards: dict[str, float], turns: TurnValues, turn_weight: float = 0.5, **given: Any) -> GroupRows:
    members = (member(name) for name in NAMES)
    return group_rows(group(*members), rewards, BASIS, turns=turns, turn_weight=turn_weight, **given)


def advantages(found: GroupRows) -> dict[str, list[float]]:
    """The advantage of each trained token of the row with the main path."""
    rows = [one for one in weigh_groups([found], TrainerSettings()) if len(one.row.calls) == len(SIZES)]
    return {one.row.trajectory_id: np.broadcast_to(one.advantage, one.row.trained_tokens).tolist() for one in rows}


REWARDS = {"a": 1.0, "b": 0.0, "c": 0.5}
values = st.dictionaries(st.integers(1, 4), st.floats(0, 1), max_size=4)


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, values)), st.floats(0, 4))
def test_each_token_has_its_trajectorys_advantage_and_what_its_turn_adds(turns: TurnValues, turn_weight: float) -> None:
    found = advantages(made(REWARDS, turns, turn_weight))
    for name, reward in REWARDS.items():
        expected = []
        for number, size in enumerate(SIZES, 1):
            others = [own[number] for own in turns.values() if number in own]
            compared = number in turns[name] and len(others) > 1
            added = turn_weight * (turns[name][number] - sum(others) / len(others)) if compared else 0.0
            expected += [reward - 0.5 + added] * size
        assert found[name] == pytest.approx(expected, abs=1e-9)


def test_without_a_weight_or_a_value_nothing_changes_not_even_in_the_last_bit() -> None:
    plain = weigh_groups([group_rows(group(*(member(name) for name in NAMES)), REWARDS, BASIS)], TrainerSettings())
    for found in (
        made(REWARDS, {"a": {1: 1.0}, "b": {1: 0.0}}, 0.0),
        made(REWARDS, {}),
        made(REWARDS, {"a": {1: 1.0}}),
    ):
        same = weigh_groups([found], TrainerSettings())
        assert [(one.advantage, one.rl_weight) for one in same] == [(one.advantage, one.rl_weight) for one in plain]
        assert all(isinstance(one.advantage, float) for one in same)


def test_calls_outside_the_main_path_and_members_that_do_not_count_have_no_turn() -> None:
    turns: TurnValues = {"a": {1: 1.0}, "b": {1: 0.0}, "c": {1: 0.2}}
    found = made({"a": 1.0, "b": 0.0}, turns)  # c has no reward
    assert found.turn_credit == {("a", "a1"): 0.25, ("b", "b1"): -0.25}
    side = [one for one in weigh_groups([found], TrainerSettings()) if len(one.row.calls) == 1]
    assert [one.advantage for one in side] == [0.5, -0.5]


def test_a_group_whose_rewards_are_equal_is_trained_on_for_its_turns_alone() -> None:
    equal = dict.fromkeys(NAMES, 1.0)
    found = made(equal, {"a": {2: 1.0}, "b": {2: 0.0}})
    assert (found.code, set(found.advantages.values())) == (None, {0.0})
    assert advantages(found) == {"a": [0, 0, 0.25, 0.25, 0.25, 0], "b": [0, 0, -0.25, -0.25, -0.25, 0], "c": [0] * 6}
    assert made(equal, {"a": {2: 1.0}, "b": {2: 1.0}}).code == UntrainedChoice.ZERO_VARIANCE
    assert made(equal, {"a": {2: 1.0}, "b": {2: 0.0}}, 0.0).code == UntrainedChoice.ZERO_VARIANCE
    close = made({"a": 0.51, "b": 0.5, "c": 0.5}, {"a": {2: 1.0}, "b": {2: 0.0}}, min_spread=0.1)
    assert (close.code, set(close.advantages.values())) == (None, {0.0})  # what the judge said is still too close


def test_a_masked_turn_takes_its_advantage_with_it() -> None:
    (one,) = [row for row in weigh_groups([made(REWARDS, {"a": {2: 1.0}, "b": {2: 0.0}})], TrainerSettings())
              if row.row.trajectory_id == "a" and len(row.row.calls) == len(SIZES)]  # fmt: skip
    left = weighted_without(one, {("a2", 0)})
    assert left is not None
    assert np.asarray(left.advantage).tolist() == [0.5, 0.5, 0.5]

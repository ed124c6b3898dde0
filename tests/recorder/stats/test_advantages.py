"""Rewards of a group become advantages: the formula alone, as properties, and which members count."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.states import Purpose, TrajectoryState
from recorder.stats.advantages import ZERO_VARIANCE, exclusion_from_mean, group_advantages

REWARDS = st.dictionaries(st.text("abcdefgh", min_size=1, max_size=3), st.floats(-10, 10), min_size=2, max_size=12)


@given(REWARDS)
def test_advantages_are_rewards_less_the_mean(rewards: dict[str, float]) -> None:
    found = group_advantages(rewards)
    values = list(rewards.values())
    if max(values) - min(values) <= ZERO_VARIANCE:
        assert found is None
        return
    assert found is not None
    mean = sum(values) / len(values)
    assert found == pytest.approx({name: reward - mean for name, reward in rewards.items()}, abs=1e-9)
    assert math.fsum(found.values()) == pytest.approx(0, abs=1e-6)


@given(REWARDS, st.floats(-5, 5))
def test_a_constant_added_to_all_rewards_changes_nothing(rewards: dict[str, float], constant: float) -> None:
    before = group_advantages(rewards)
    after = group_advantages({name: reward + constant for name, reward in rewards.items()})
    if before is not None and after is not None:
        assert after == pytest.approx(before, abs=1e-6)


def test_rewards_that_differ_only_by_rounding_teach_nothing() -> None:
    assert group_advantages({"a": 0.5, "b": 0.5 + 9e-7}) is None
    assert group_advantages({"a": 0.5, "b": 0.5 + 2e-6}) is not None


def test_one_reward_has_no_mean_to_compare_with() -> None:
    assert group_advantages({"a": 1.0}) is None
    assert group_advantages({}) is None


def test_dividing_by_the_samples_deviation_is_an_option() -> None:
    rewards = {"a": 0.0, "b": 0.0, "c": 1.0, "d": 1.0}
    assert group_advantages(rewards) == {"a": -0.5, "b": -0.5, "c": 0.5, "d": 0.5}
    scale = statistics.stdev(rewards.values()) + 1e-4
    assert group_advantages(rewards, "mean_std") == pytest.approx(
        {"a": -0.5 / scale, "b": -0.5 / scale, "c": 0.5 / scale, "d": 0.5 / scale}, rel=1e-12
    )


@given(REWARDS)
def test_leave_one_out_compares_with_the_mean_of_the_others(rewards: dict[str, float]) -> None:
    found = group_advantages(rewards, "rloo")
    if found is None:
        return
    for name, advantage in found.items():
        others = [reward for other, reward in rewards.items() if other != name]
        assert advantage == pytest.approx(rewards[name] - statistics.fmean(others), abs=1e-9)


@given(REWARDS)
def test_ranks_are_centred_and_blind_to_how_far_rewards_are_apart(rewards: dict[str, float]) -> None:
    found = group_advantages(rewards, "rank")
    if found is None:
        return
    assert math.fsum(found.values()) == pytest.approx(0, abs=1e-9)
    for name, advantage in found.items():
        below = sum(reward < rewards[name] for reward in rewards.values())
        equal = sum(reward == rewards[name] for reward in rewards.values())
        assert advantage == pytest.approx(2 * (below + (equal - 1) / 2) / (len(rewards) - 1) - 1, abs=1e-12)
    assert group_advantages({"a": 0.0, "b": 1.0, "c": 100.0}, "rank") == {"a": -1.0, "b": 0.0, "c": 1.0}


@pytest.mark.parametrize(
    ("state", "selection", "purpose", "reward", "why"),
    [
        ("completed", None, "train", 0.5, None),
        ("errored", None, "train", 0.5, "errored"),
        ("completed", "not_selected", "train", 0.5, "not_selected"),
        ("completed", None, "val", 0.5, "it is for val"),
        ("completed", None, "train", None, "reward_missing"),
        ("completed", None, "train", math.nan, "reward_missing"),
    ],
)
def test_a_member_that_does_not_count_says_why(
    state: str, selection: str | None, purpose: str, reward: float | None, why: str | None
) -> None:
    assert exclusion_from_mean(TrajectoryState(state), selection, Purpose(purpose), reward) == why

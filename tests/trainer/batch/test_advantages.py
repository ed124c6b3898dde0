"""Rewards become advantages, and advantages weights of tokens: the formulas alone, as properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.batch.advantages import ZERO_VARIANCE, group_advantages, token_weights

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


def test_dividing_by_the_deviation_is_an_option() -> None:
    rewards = {"a": 0.0, "b": 0.0, "c": 1.0, "d": 1.0}
    assert group_advantages(rewards) == {"a": -0.5, "b": -0.5, "c": 0.5, "d": 0.5}
    divided = group_advantages(rewards, divide_by_std=True)
    assert divided == pytest.approx({"a": -1, "b": -1, "c": 1, "d": 1}, abs=1e-3)


@given(st.dictionaries(st.integers().map(str), st.integers(0, 5000), min_size=1, max_size=9))
def test_every_trajectory_weighs_the_same_whatever_its_length(tokens: dict[str, int]) -> None:
    weights = token_weights(tokens, {})
    assert weights.keys() == {name for name, count in tokens.items() if count}
    shares = [weight * tokens[name] for name, weight in weights.items()]
    assert shares == pytest.approx([1 / len(weights)] * len(weights) if weights else [])


@given(st.dictionaries(st.integers().map(str), st.tuples(st.integers(1, 5000), st.floats(0.01, 1)), min_size=1))
def test_trajectories_weigh_by_their_shares_and_a_steps_weights_add_up_to_one(
    given_: dict[str, tuple[int, float]],
) -> None:
    tokens = {name: count for name, (count, _) in given_.items()}
    shares = {name: share for name, (_, share) in given_.items()}
    weights = token_weights(tokens, shares)
    whole = {name: weight * tokens[name] for name, weight in weights.items()}
    assert sum(whole.values()) == pytest.approx(1)
    assert whole == pytest.approx({name: share / sum(shares.values()) for name, share in shares.items()})

"""The chance that a scenario's attempts differ: its formula, how it forgets, and what is drawn by it."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.queue.draws import GroupOutcome
from trainer.tasks.chances import (
    HALF_LIFE,
    SHARPNESS,
    ChanceEstimator,
    chance_of_difference,
    draw_by_chance,
)

counts = st.floats(0.01, 1000)
sizes = st.integers(2, 64)
chances = st.floats(0, 1)


def group(scenario: str, step: int, *rewards: float) -> GroupOutcome:
    return GroupOutcome(scenario, step, rewards)


# --- the formula


@given(counts, counts, sizes)
def test_it_is_a_chance_the_same_for_successes_and_failures_and_grows_with_the_attempts(
    successes: float, failures: float, attempts: int
) -> None:
    found = chance_of_difference(successes, failures, attempts)
    assert 0 <= found <= 1
    assert found == pytest.approx(chance_of_difference(failures, successes, attempts))
    assert chance_of_difference(successes, failures, attempts + 1) >= found - 1e-12


@given(st.floats(0.01, 0.99), sizes)
def test_where_the_share_of_successes_is_known_well_it_is_the_plain_formula(p: float, attempts: int) -> None:
    known = 1e9
    plain = 1 - p**attempts - (1 - p) ** attempts
    assert chance_of_difference(known * p, known * (1 - p), attempts) == pytest.approx(plain, abs=1e-5)


@given(st.integers(1, 12), st.integers(1, 12), st.integers(2, 12))
def test_it_is_the_mean_over_the_beta_distribution(successes: int, failures: int, attempts: int) -> None:
    def beta(a: int, b: int) -> Fraction:
        return Fraction(math.factorial(a - 1) * math.factorial(b - 1), math.factorial(a + b - 1))

    whole = beta(successes, failures)
    same = beta(successes + attempts, failures) / whole + beta(successes, failures + attempts) / whole
    assert chance_of_difference(successes, failures, attempts) == pytest.approx(float(1 - same))


# --- the estimates


def test_an_unseen_scenario_has_the_chance_of_all() -> None:
    assert ChanceEstimator([], 1, 8).chance("new").differ == pytest.approx(1 - 2 / 9)  # p is anywhere in 0..1
    solved = ChanceEstimator([group("a", 1, *[1.0] * 8)], 2, 8)
    unseen, seen = solved.chance("new"), solved.chance("a")
    assert (unseen.groups, seen.groups) == (0, 1)
    assert seen.differ < unseen.differ < 1 - 2 / 9
    assert seen.reward > unseen.reward > 0.5


@given(st.integers(0, 8))
def test_the_nearer_to_half_of_the_attempts_succeed_the_higher_is_the_chance(won: int) -> None:
    outcomes = [group(str(n), 1, *[1.0] * n, *[0.0] * (8 - n)) for n in range(9)]
    estimator = ChanceEstimator(outcomes, 2, 8)
    found = estimator.chance(str(won))
    assert found.differ == pytest.approx(estimator.chance(str(8 - won)).differ)
    assert found.reward == pytest.approx((1 + won) / 10)
    if won < 4:
        assert estimator.chance(str(won + 1)).differ > found.differ


@given(st.integers(1, 40), st.integers(0, 60))
def test_a_group_counts_half_after_a_half_life(step: int, later: int) -> None:
    """Its weight is that of so many attempts: with the same prior, the estimate tells how many are left."""
    mean = 0.5
    outcomes = [group("a", step, *[1.0] * 4), group("b", step, *[0.0] * 4)]
    found = ChanceEstimator(outcomes, step + 1 + later, 4).chance("a")
    left = 4 * 0.5 ** (later / HALF_LIFE)
    assert found.reward == pytest.approx((2 * mean + left) / (2 + left))
    assert found.differ == pytest.approx(chance_of_difference(1 + left, 1, 4))


def test_what_is_forgotten_comes_back_to_the_prior() -> None:
    outcomes = [group("a", 1, *[1.0] * 8), group("b", 1, *[0.0] * 8)]
    long_ago = ChanceEstimator(outcomes, 1000, 8)
    assert long_ago.chance("a").differ == pytest.approx(long_ago.chance("new").differ)


def test_rewards_between_0_and_1_count_by_groups_that_differ() -> None:
    outcomes = [group("a", 1, 0.2, 0.7), group("b", 1, 0.7, 0.7), group("c", 1, 1.0, 1.0), group("d", 1, 0.5)]
    estimator = ChanceEstimator(outcomes, 2, 2)
    mean = (1 + 1) / (3 + 2)
    assert estimator.chance("a").differ == pytest.approx((2 * mean + 1) / 3)
    assert estimator.chance("b").differ == pytest.approx(2 * mean / 3)
    assert estimator.chance("d").differ == pytest.approx(mean)  # one reward compares with none
    assert estimator.chance("a").reward == pytest.approx((2 * 4.3 / 6 + 0.9) / 4)


def test_rewards_that_differ_by_rounding_are_equal() -> None:
    assert group("a", 1, 0.3, 0.1 + 0.2).equal
    assert not group("a", 1, 0.3, 0.31).equal
    assert not group("a", 1, 0.3).equal


# --- drawing


@given(st.lists(chances, max_size=30), st.integers(0, 40), st.text(max_size=5))
def test_a_draw_has_different_items_and_is_the_same_again(weights: list[float], number: int, seed: str) -> None:
    items = [object() for _ in weights]
    drawn = draw_by_chance(items, weights, number, seed)
    assert len(set(map(id, drawn))) == len(drawn) == min(number, len(items))
    assert drawn == draw_by_chance(items, weights, number, seed)


@given(st.lists(st.booleans(), min_size=1, max_size=20), st.text(max_size=5))
def test_what_has_no_chance_is_drawn_last(likely: list[bool], seed: str) -> None:
    drawn = draw_by_chance(range(len(likely)), [float(one) for one in likely], sum(likely), seed)
    assert all(likely[at] for at in drawn)


def test_items_are_drawn_first_in_proportion_to_their_weights() -> None:
    weights = [0.9, 0.8, 0.7]
    times = Counter(draw_by_chance(range(3), weights, 1, str(seed))[0] for seed in range(4000))
    total = sum(weight**SHARPNESS for weight in weights)
    for at, weight in enumerate(weights):
        expected = weight**SHARPNESS / total
        assert times[at] / 4000 == pytest.approx(expected, abs=5 * math.sqrt(expected * (1 - expected) / 4000))


def test_a_tiny_chance_is_drawn_before_a_tinier_one_though_no_float_holds_their_weights() -> None:
    drawn = [draw_by_chance("ab", [1e-200, 1e-250], 1, str(seed))[0] for seed in range(20)]
    assert drawn == ["a"] * 20

"""What a series of measurements says: pooling, the gap between two pools, and the plateau on simulated curves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats.means import FEWEST, PooledMeasure, find_plateau, measure_gap, pool_measures, trend_level

measures = st.builds(PooledMeasure, st.integers(0, 99), st.floats(0, 1), st.integers(1, 500))


def curve(
    rise: float, rng: np.random.Generator, *, start: float, count: int = 40, attempts: int = 100
) -> list[PooledMeasure]:
    """Validations whose share rises by so much each, as chance has it."""
    chances = [chance for n in range(count) if (chance := start + rise * n) <= 0.95]
    return [PooledMeasure(n, rng.binomial(attempts, chance) / attempts, attempts) for n, chance in enumerate(chances)]


def ends(found: list[PooledMeasure], delta: float = 0.01) -> bool:
    """Whether the plateau ever ends a campaign, looked at after every validation."""
    return any(find_plateau(found[:n], 10, delta) for n in range(FEWEST, len(found) + 1))


@given(st.lists(measures, min_size=1, max_size=9))
def test_a_pool_is_as_one_measurement_of_all_its_attempts(found: list[PooledMeasure]) -> None:
    attempts = sum(one.attempts for one in found)
    value = sum(one.value * one.attempts for one in found) / attempts
    together, one = pool_measures(found), pool_measures([PooledMeasure(0, min(1.0, value), attempts)])
    assert (together.value, together.centre) == pytest.approx((one.value, one.centre))
    assert together.error == pytest.approx(one.error)


@given(measures)
def test_no_share_is_ever_sure_of_itself(one: PooledMeasure) -> None:
    found = pool_measures([one])
    assert 0 < found.centre < 1
    assert found.error > 0


def test_the_error_of_a_mean_is_its_spread_by_its_attempts_and_without_a_spread_it_has_no_bounds() -> None:
    assert pool_measures([PooledMeasure(1, 7.0, 50, 2.0), PooledMeasure(2, 7.0, 50, 2.0)]).error == pytest.approx(0.2)
    assert math.isinf(pool_measures([PooledMeasure(1, 7.0, 50)]).error)


@given(measures, measures)
def test_a_gap_turned_round_is_its_opposite(a: PooledMeasure, b: PooledMeasure) -> None:
    there, back = measure_gap([a], [b]), measure_gap([b], [a])
    assert there.centre == pytest.approx(-back.centre)
    assert there.error == pytest.approx(back.error)


def test_a_level_is_where_the_line_ends_and_less_sure_than_the_mean() -> None:
    rising = [PooledMeasure(2 * n, 0.3 + 0.04 * n, 100) for n in range(8)]
    found, mean = trend_level(rising), pool_measures(rising)
    assert found.value == pytest.approx(
        0.3 + 0.04 * 7, abs=0.01
    )  # each is drawn a little to the middle only to compare
    assert found.value > mean.value + 0.1
    assert found.error > mean.error
    assert trend_level([PooledMeasure(n, 0.5 + 0.1 * n, 100) for n in range(6)]).value == 1  # a share is no more
    assert trend_level([PooledMeasure(n, 1.0 * n, 100, 0.5) for n in range(6)]).value == pytest.approx(
        5
    )  # and a mean may be


def test_the_interval_of_a_gap_holds_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(3)
    missed = 0
    for _ in range(2000):
        new, old = (PooledMeasure(0, rng.binomial(60, chance) / 60, 60) for chance in (0.7, 0.6))
        missed += measure_gap([new], [old]).at_least() > 0.1
    assert 0.03 <= missed / 2000 <= 0.07


def test_a_plateau_needs_four_measurements_and_all_its_steps() -> None:
    flat = [PooledMeasure(step, 1.0, 100) for step in range(0, 30, 5)]
    assert find_plateau(flat[:3], 10, 0.01) is None
    assert find_plateau(flat[:4], 16, 0.01) is None
    found = find_plateau(flat[:4], 15, 0.01)
    assert found is not None
    assert (found.older, found.newer) == (flat[:2], flat[2:4])


def test_few_attempts_say_nothing_for_long_and_more_of_them_sooner() -> None:
    def said_after(attempts: int) -> int:
        flat = [PooledMeasure(step, 0.5, attempts) for step in range(60)]
        return next(n for n in range(61) if find_plateau(flat[:n], 3, 0.01))

    assert [said_after(attempts) for attempts in (2, 50, 100, 800)] == [48, 18, 14, 8]


def test_a_share_that_cannot_rise_any_more_is_on_a_plateau_at_once() -> None:
    assert find_plateau([PooledMeasure(step, 1.0, 100) for step in range(4)], 3, 0.01)
    assert find_plateau([PooledMeasure(step, 0.8, 2) for step in range(4)], 3, 0.5)
    assert (
        find_plateau([PooledMeasure(step, 1.0, 9) for step in range(4)], 3, 0.01) is None
    )  # nine of nine may be chance
    assert (
        find_plateau([PooledMeasure(step, 0.99, 2, 0.1) for step in range(4)], 3, 0.01) is None
    )  # a mean may be above 1


@given(st.lists(st.floats(0, 0.5), min_size=4, max_size=30), st.floats(0.02, 0.3), st.floats(0, 0.2))
def test_a_larger_delta_never_keeps_a_plateau_away(values: list[float], delta: float, more: float) -> None:
    found = [PooledMeasure(step, value, 400) for step, value in enumerate(values)]
    if find_plateau(found, 3, delta):
        assert find_plateau(found, 3, delta + more)


@pytest.mark.slow
def test_at_most_one_of_twenty_curves_that_rise_two_points_a_validation_is_ended() -> None:
    rng = np.random.default_rng(4)
    assert sum(ends(curve(0.02, rng, start=rng.uniform(0.05, 0.4))) for _ in range(1000)) <= 50


@pytest.mark.slow
def test_flat_curves_and_those_that_became_flat_are_ended() -> None:
    rng = np.random.default_rng(5)
    assert all(ends(curve(0.0, rng, start=rng.uniform(0.1, 0.9), count=25)) for _ in range(200))
    for _ in range(100):
        rising = curve(0.04, rng, start=0.3, count=10)
        after = [PooledMeasure(10 + one.step, one.value, 100) for one in curve(0.0, rng, start=0.7, count=30)]
        assert ends(rising + after)


def test_a_curve_that_rises_by_its_spread_is_not_flat_and_one_within_it_is() -> None:
    rng = np.random.default_rng(6)

    def means(rise: float) -> list[PooledMeasure]:
        return [PooledMeasure(n, 3 + rise * n + rng.normal(0, 0.01), 2500, 0.5) for n in range(12)]

    assert find_plateau(means(0.02), 10, 0.01) is None
    assert find_plateau(means(0.0), 10, 0.01)

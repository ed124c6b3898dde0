"""How sure means and paired differences are: intervals that hold the truth as often as they say, and odd samples.

The test by betting: its promise holds at every look, it finds what is worse, and refuses what it can't judge.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats import significance_tests
from recorder.stats.means import students_t
from recorder.stats.significance_tests import log_capital, paired_difference, paired_mean

SETS, ATTEMPTS = 500, 4

values = st.dictionaries(
    st.text("abc", min_size=1, max_size=4), st.lists(st.floats(0, 1), min_size=1, max_size=4), min_size=1, max_size=12
)


@given(values)
def test_a_mean_lies_in_its_interval_and_in_what_it_can_be(of: Mapping[str, Sequence[float]]) -> None:
    found = paired_mean(of)
    assert found is not None
    assert found.scenarios == len(of)
    assert found.value == pytest.approx(np.mean([np.mean(each) for each in of.values()]))
    if len(of) == 1:
        assert found.interval is None
        return
    assert found.interval is not None
    assert 0 <= found.interval.low <= found.value + 1e-9
    assert found.value - 1e-9 <= found.interval.high <= 1


@given(values, values)
def test_a_difference_turned_round_is_its_negative(
    one: Mapping[str, Sequence[float]], other: Mapping[str, Sequence[float]]
) -> None:
    there, back = paired_difference(one, other), paired_difference(other, one)
    if there is None or back is None:
        assert there is back is None
        assert not one.keys() & other.keys()
        return
    assert there.value == pytest.approx(-back.value)
    assert there.scenarios == back.scenarios == len(one.keys() & other.keys())
    if there.interval is not None and back.interval is not None:
        assert there.interval.low == pytest.approx(-back.interval.high, abs=1e-9)
        assert there.interval.high == pytest.approx(-back.interval.low, abs=1e-9)


@given(values)
def test_the_order_of_scenarios_changes_nothing(of: Mapping[str, Sequence[float]]) -> None:
    assert paired_mean(of) == paired_mean(dict(reversed(list(of.items()))))


def test_a_scenario_weighs_the_same_however_often_it_was_attempted() -> None:
    found = paired_mean({"often": [0.0] * 9, "once": [1.0]})
    assert found is not None
    assert found.value == 0.5


def test_scenarios_that_all_come_out_alike_leave_room_for_others() -> None:
    for count, most in ((4, 0.5), (20, 0.17), (100, 0.04)):
        sure = paired_mean({str(number): [1.0] for number in range(count)})
        assert sure is not None
        assert sure.interval is not None
        assert sure.interval.high == 1
        assert 1 - most < sure.interval.low < 1
        same = paired_difference({str(n): [1.0] for n in range(count)}, {str(n): [1.0] for n in range(count)})
        assert same is not None
        assert same.interval is not None
        assert (same.value, same.sign) == (0, 0)
        assert -most < same.interval.low < 0 < same.interval.high < most


def test_what_nobody_measured_has_no_mean() -> None:
    assert paired_mean({}) is None
    assert paired_mean({"a": []}) is None
    assert paired_difference({"a": [1.0]}, {"b": [1.0]}) is None


def test_students_t_is_that_of_its_tables() -> None:
    for freedom, known in ((3, 3.182), (5, 2.571), (10, 2.228), (30, 2.042), (120, 1.980)):
        assert students_t(freedom) == pytest.approx(known, rel=0.012)


def drawn(rng: np.random.Generator, scenarios: int) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Two versions that attempt the same scenarios, which are hard or easy for both; the second is better by 0.1."""
    hard = rng.beta(1.5, 1.5, scenarios) * 0.8
    own = rng.normal(0, 0.1, scenarios)  # what one version finds easier than the other
    shares = [hard, np.clip(hard + 0.1 + own, 0, 1)]
    one, other = (
        {str(n): [float(won) for won in rng.random(ATTEMPTS) < share] for n, share in enumerate(each)}
        for each in shares
    )
    return one, other


@pytest.mark.slow  # 500 sets of each size
@pytest.mark.parametrize("scenarios", [12, *(pytest.param(n, marks=pytest.mark.long) for n in (30, 100))])
def test_the_intervals_hold_the_truth_as_often_as_they_say(scenarios: int) -> None:
    rng = np.random.default_rng(15)
    one, other = drawn(rng, 100_000)
    truth_of_mean, truth = (
        float(np.mean([np.mean(each) for each in one.values()])),
        float(np.mean([np.mean(other[key]) - np.mean(one[key]) for key in one])),
    )
    held = [0, 0]
    for _ in range(SETS):
        one, other = drawn(rng, scenarios)
        for at, (found, true) in enumerate(((paired_mean(one), truth_of_mean), (paired_difference(other, one), truth))):
            assert found is not None
            assert found.interval is not None
            held[at] += found.interval.low <= true <= found.interval.high
    shares = [count / SETS for count in held]
    assert all(0.92 <= share <= 0.98 for share in shares), shares


def test_a_paired_interval_is_narrower_than_what_two_apart_would_give() -> None:
    one, other = drawn(np.random.default_rng(7), 100)
    paired, apart = paired_difference(other, one), [paired_mean(one), paired_mean(other)]
    assert paired is not None
    assert paired.interval is not None
    widths = [each.interval.high - each.interval.low for each in apart if each is not None and each.interval]
    assert paired.interval.high - paired.interval.low < 0.9 * math.hypot(*widths)


VALUES = st.floats(0, 1)
CLAIMS = st.floats(0.05, 0.95)


def test_a_claim_that_holds_is_refuted_in_at_most_alpha_of_all_courses_whenever_one_looks() -> None:
    """Every course of fourteen fair coins, each looked at after every toss."""
    courses = np.array(list(product((0.0, 1.0), repeat=14)))
    highest = log_capital(courses, at_least=0.5).max(axis=-1)
    for alpha in (0.2, 0.05, 0.025):
        assert (highest >= math.log(1 / alpha)).mean() <= alpha


@given(st.lists(st.tuples(VALUES, st.floats(0.01, 1)), min_size=1, max_size=4))
def test_the_capital_does_not_grow_on_average_where_the_claim_is_just_true(drawn: list[tuple[float, float]]) -> None:
    """Any distribution of a few values, three draws, all courses weighed by their probability."""
    values, weights = np.array(drawn).T
    chances = weights / weights.sum()
    mean = float(values @ chances)
    if not 0 < mean < 1:
        return
    picked = list(product(range(len(values)), repeat=3))
    capital = np.exp(log_capital(values[picked], at_least=mean)[:, -1])
    assert float(capital @ chances[picked].prod(axis=1)) == pytest.approx(1.0)


@given(st.lists(VALUES, min_size=1, max_size=40), CLAIMS, st.data())
def test_the_capital_in_the_end_does_not_depend_on_the_order(
    values: list[float], claim: float, data: st.DataObject
) -> None:
    mixed = data.draw(st.permutations(values))
    ends = [log_capital(np.array(v), at_least=claim)[-1] for v in (values, mixed)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-9)


@given(st.lists(VALUES, min_size=1, max_size=40), CLAIMS, st.data())
def test_a_lower_value_never_lessens_the_doubt(values: list[float], claim: float, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(values) - 1))
    lower = [*values[:at], data.draw(st.floats(0, values[at])), *values[at + 1 :]]
    alike = [significance_tests.test_mean(v, at_least=claim, alpha=0.05).capital for v in (values, lower)]
    assert alike[1] >= alike[0] * (1 - 1e-9)


@given(st.lists(VALUES, max_size=40), st.lists(VALUES, max_size=40), CLAIMS)
def test_a_verdict_is_never_taken_back(earlier: list[float], later: list[float], claim: float) -> None:
    if significance_tests.test_mean(earlier, at_least=claim, alpha=0.05).shown_worse:
        assert significance_tests.test_mean(earlier + later, at_least=claim, alpha=0.05).shown_worse


def test_a_side_that_always_loses_is_found_within_twelve_pairs_and_one_that_draws_never() -> None:
    assert significance_tests.test_mean([0.0] * 12, at_least=0.4, alpha=0.05).shown_worse
    assert not significance_tests.test_mean([0.5] * 10_000, at_least=0.4, alpha=0.05).shown_worse


def test_nothing_seen_decides_nothing() -> None:
    nothing = significance_tests.test_mean([], at_least=0.5, alpha=0.05)
    assert (nothing.samples, nothing.capital, nothing.shown_worse) == (0, 1.0, False)
    assert math.isnan(nothing.mean)


def test_capital_beyond_all_numbers_is_still_a_number() -> None:
    assert math.isfinite(significance_tests.test_mean([0.0] * 100_000, at_least=0.5, alpha=0.05).capital)


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan, math.inf])
def test_a_value_out_of_bounds_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"not in 0\.\.1"):
        significance_tests.test_mean([0.5, value], at_least=0.5, alpha=0.05)


@pytest.mark.parametrize(("claim", "alpha"), [(0.0, 0.05), (1.0, 0.05), (0.5, 0.0), (0.5, 1.0)])
def test_a_claim_or_an_alpha_that_says_nothing_is_refused(claim: float, alpha: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        significance_tests.test_mean([0.5], at_least=claim, alpha=alpha)

"""The test by betting: its promise holds at every look, it finds what is worse, and refuses what it can't judge."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats import sequential_tests
from recorder.stats.sequential_tests import log_capital

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
    alike = [sequential_tests.test_mean(v, at_least=claim, alpha=0.05).capital for v in (values, lower)]
    assert alike[1] >= alike[0] * (1 - 1e-9)


@given(st.lists(VALUES, max_size=40), st.lists(VALUES, max_size=40), CLAIMS)
def test_a_verdict_is_never_taken_back(earlier: list[float], later: list[float], claim: float) -> None:
    if sequential_tests.test_mean(earlier, at_least=claim, alpha=0.05).shown_worse:
        assert sequential_tests.test_mean(earlier + later, at_least=claim, alpha=0.05).shown_worse


def test_a_side_that_always_loses_is_found_within_twelve_pairs_and_one_that_draws_never() -> None:
    assert sequential_tests.test_mean([0.0] * 12, at_least=0.4, alpha=0.05).shown_worse
    assert not sequential_tests.test_mean([0.5] * 10_000, at_least=0.4, alpha=0.05).shown_worse


def test_nothing_seen_decides_nothing() -> None:
    nothing = sequential_tests.test_mean([], at_least=0.5, alpha=0.05)
    assert (nothing.samples, nothing.capital, nothing.shown_worse) == (0, 1.0, False)
    assert math.isnan(nothing.mean)


def test_capital_beyond_all_numbers_is_still_a_number() -> None:
    assert math.isfinite(sequential_tests.test_mean([0.0] * 100_000, at_least=0.5, alpha=0.05).capital)


@pytest.mark.parametrize("value", [-0.01, 1.01, math.nan, math.inf])
def test_a_value_out_of_bounds_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match=r"not in 0\.\.1"):
        sequential_tests.test_mean([0.5, value], at_least=0.5, alpha=0.05)


@pytest.mark.parametrize(("claim", "alpha"), [(0.0, 0.05), (1.0, 0.05), (0.5, 0.0), (0.5, 1.0)])
def test_a_claim_or_an_alpha_that_says_nothing_is_refused(claim: float, alpha: float) -> None:
    with pytest.raises(ValueError, match="between 0 and 1"):
        sequential_tests.test_mean([0.5], at_least=claim, alpha=alpha)

"""Intervals hold what they are of, and narrow with more attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats import means


@given(st.integers(1, 10_000), st.data())
def test_the_interval_of_a_share_holds_it_within_zero_and_one(number: int, data: st.DataObject) -> None:
    share = data.draw(st.integers(0, number)) / number
    found = means.share_interval(share, number)
    assert found is not None
    assert 0 <= found.low <= share <= found.high <= 1
    twice = means.share_interval(share, 2 * number)
    assert twice is not None
    assert twice.high - twice.low < found.high - found.low


def test_a_share_of_few_is_as_wilson_has_it() -> None:
    found = means.share_interval(0.5, 10)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_where_too_few_were_seen_there_is_no_interval() -> None:
    assert means.share_interval(0.0, 0) is None
    assert means.mean_interval(0.5, 0.0, 1) is None


def test_the_interval_of_a_mean_is_two_standard_errors_to_each_side() -> None:
    found = means.mean_interval(0.5, 0.2, 100)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.4608, 0.5392))


@pytest.mark.parametrize(
    ("least", "most", "ends"),
    [
        (0.0, 1.0, (0.0, 1.0)),
        (-0.5, 1.0, (0.9 - 1.96 * 2.0 / 2, 1.0)),
        (0.0, 7.0, (0.0, 0.9 + 1.96 * 2.0 / 2)),
    ],
)
def test_a_reward_is_no_surer_to_be_where_none_can_be(least: float, most: float, ends: tuple[float, float]) -> None:
    found = means.reward_interval(0.9, 2.0, 4, least, most)
    assert found is not None
    assert (found.low, found.high) == pytest.approx(ends)

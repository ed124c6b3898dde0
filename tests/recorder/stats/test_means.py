"""Intervals hold what they are of, and narrow with more attempts."""

from __future__ import annotations

import numpy as np
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


def clusters(*values: tuple[float, ...]) -> list[means.Cluster]:
    return [means.Cluster(len(of), sum(of)) for of in values]


def test_clusters_of_one_value_each_have_the_interval_of_students_t() -> None:
    found = means.clustered_interval(clusters((0.2,), (0.4,), (0.5,), (0.7,)), 0.2, 0.7)
    assert found is not None
    assert (found.low, found.high) == pytest.approx((0.45 - 0.331, 0.45 + 0.331), abs=4e-3)  # t of 3 degrees: 3.18


def test_values_that_repeat_within_a_cluster_say_no_more_than_one() -> None:
    once = means.clustered_interval(clusters((0.2,), (0.4,), (0.5,), (0.7,)), 0.2, 0.7)
    often = means.clustered_interval(clusters((0.2,) * 8, (0.4,) * 8, (0.5,) * 8, (0.7,) * 8), 0.2, 0.7)
    assert once is not None
    assert often is not None
    assert (often.low, often.high) == pytest.approx((once.low, once.high))


@pytest.mark.parametrize(
    ("least", "most", "ends"), [(0.0, 1.0, (0.0, 1.0)), (-0.5, 1.0, (None, 1.0)), (0.0, 7.0, (0.0, None))]
)
def test_a_reward_is_no_surer_to_be_where_none_can_be(
    least: float, most: float, ends: tuple[float | None, float | None]
) -> None:
    found = means.clustered_interval(clusters((0.0, 0.0), (1.0, 1.0)), least, most)
    assert found is not None
    assert (found.low if least >= 0 else None, found.high if most <= 1 else None) == ends
    assert least >= 0 or found.low < 0
    assert most <= 1 or found.high > 1


def test_clusters_that_are_all_alike_do_not_say_that_all_are() -> None:
    few = means.clustered_interval(clusters((1.0, 1.0), (1.0, 1.0)), 1.0, 1.0)
    many = means.clustered_interval(clusters(*[(1.0, 1.0)] * 50), 1.0, 1.0)
    assert few is not None
    assert many is not None
    assert 0 < few.low < many.low < many.high == few.high == 1.0


@pytest.mark.parametrize("values", [(), ((0.5, 0.7),)], ids=["none", "one"])
def test_fewer_than_two_clusters_have_no_interval(values: tuple[tuple[float, ...], ...]) -> None:
    assert means.clustered_interval(clusters(*values), 0.5, 0.7) is None


def test_the_interval_of_clustered_values_holds_the_mean_as_often_as_it_says() -> None:
    """30 groups of 8 rewards of 0 or 1, each group with a level of its own."""
    rng = np.random.default_rng(1)
    drawn = (rng.random((2000, 30, 8)) < rng.random((2000, 30, 1))).sum(axis=2)
    found = [means.clustered_interval([means.Cluster(8, float(n)) for n in row], 0, 1) for row in drawn]
    held = sum(one is not None and one.low <= 0.5 <= one.high for one in found) / len(found)
    assert 0.93 <= held <= 0.97

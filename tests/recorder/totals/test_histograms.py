"""Histograms add up, survive their packed form, and tell percentiles within their buckets' width."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.totals.histograms import (
    BUCKETS,
    LOWEST_S,
    PER_OCTAVE,
    Counts,
    add_packed,
    bucket_end,
    bucket_of,
    empty_counts,
    pack_counts,
    quantiles,
)

DURATIONS = st.lists(st.floats(0.0, 1500.0), min_size=1, max_size=60)
WIDTH = 2.0 ** (1 / PER_OCTAVE)


def counted(durations: list[float]) -> Counts:
    counts = empty_counts()
    for seconds in durations:
        counts[bucket_of(seconds)] += 1
    return counts


@given(st.floats(0.0, 10_000.0))
def test_a_duration_lies_in_its_bucket(seconds: float) -> None:
    bucket = bucket_of(seconds)
    assert seconds <= bucket_end(bucket) * (1 + 1e-6) or bucket == BUCKETS - 1
    assert bucket == 0 or seconds > bucket_end(bucket - 1) * (1 - 1e-6)


@pytest.mark.parametrize("seconds", [-1.0, 0.0, LOWEST_S, float("nan")])
def test_what_is_too_short_is_in_the_first_bucket(seconds: float) -> None:
    assert bucket_of(seconds) == 0


@given(DURATIONS, DURATIONS)
def test_the_sum_of_two_is_the_histogram_of_both(some: list[float], others: list[float]) -> None:
    together = counted(some)
    add_packed(together, pack_counts(counted(others)))
    assert np.array_equal(together, counted([*some, *others]))


@given(DURATIONS, st.sampled_from([0.5, 0.95, 0.99]))
def test_a_percentile_is_at_most_a_buckets_width_wrong(durations: list[float], share: float) -> None:
    [found] = quantiles(counted(durations), [share])
    rank = max(int(np.ceil(share * len(durations))) - 1, 0)
    exact = max(sorted(durations)[rank], LOWEST_S)
    assert found is not None
    assert exact / WIDTH * (1 - 1e-6) <= found <= exact * WIDTH * (1 + 1e-6)


def test_without_durations_there_is_no_percentile() -> None:
    assert quantiles(empty_counts(), [0.5, 0.99]) == [None, None]
    assert pack_counts(empty_counts()) == b""


def test_bytes_that_are_no_histogram_are_refused() -> None:
    with pytest.raises(ValueError, match="there are 76"):
        add_packed(empty_counts(), bytes([BUCKETS - 1]) + b"\x01\0\0\0" * 2)

"""Histograms of durations with fixed, log-spaced buckets: two of them add up, and percentiles are read from the sum.

Owns: the buckets, their compact form as bytes, and percentiles. Pure.

Bucket 0 holds durations of at most `LOWEST_S`. Each other bucket ends `PER_OCTAVE`-th root of 2 times later, so a
percentile is at most 19 % wrong at four buckets an octave, and about 5 % where a bucket is filled evenly. The last
bucket holds everything longer than half an hour.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

LOWEST_S: Final = 0.005
PER_OCTAVE: Final = 4
BUCKETS: Final = 76  # the last one begins at 1,854 s

Counts = NDArray[np.int64]  # (BUCKETS,)


def empty_counts() -> Counts:
    """Return a histogram without durations."""
    return np.zeros(BUCKETS, dtype=np.int64)


def bucket_of(seconds: float) -> int:
    """Return the bucket of a duration in seconds; a negative one, of clocks that differ, is in the first."""
    if not seconds > LOWEST_S:
        return 0
    return min(BUCKETS - 1, math.ceil(PER_OCTAVE * math.log2(seconds / LOWEST_S) - 1e-9))


def bucket_end(bucket: int) -> float:
    """Return the longest duration of a bucket, in seconds."""
    return LOWEST_S * math.exp2(bucket / PER_OCTAVE)


def quantiles(counts: Counts, shares: Sequence[float]) -> list[float | None]:
    """Return the durations in seconds that shares (0 to 1) of all durations do not exceed; None without any duration.

    Within a bucket, durations count as evenly spread over the logarithm. The last bucket counts as its beginning.
    """
    below: list[int] = counts.cumsum().tolist()
    return [_quantile(below, share) if below[-1] else None for share in shares]


def _quantile(below: Sequence[int], share: float) -> float:
    """`below`: how many durations each bucket and the shorter ones have."""
    rank = max(share * below[-1], 1.0)
    bucket = bisect_left(below, rank)
    if bucket == 0:
        return LOWEST_S
    if bucket == BUCKETS - 1:
        return bucket_end(BUCKETS - 2)
    shorter = below[bucket - 1]
    inside = (rank - shorter) / (below[bucket] - shorter)
    return bucket_end(bucket - 1) * math.exp2(inside / PER_OCTAVE)


def pack_counts(counts: Counts) -> bytes:
    """Return a histogram as bytes: the first filled bucket, then uint32 counts up to the last filled one."""
    filled = np.flatnonzero(counts)
    if not filled.size:
        return b""
    first, last = int(filled[0]), int(filled[-1])
    return bytes([first]) + counts[first : last + 1].astype("<u4").tobytes()


def add_packed(counts: Counts, packed: bytes) -> None:
    """Add a packed histogram to one. Raises ValueError for bytes that are none."""
    if not packed:
        return
    added = np.frombuffer(packed, dtype="<u4", offset=1)
    first = packed[0]
    if first + added.size > BUCKETS:
        raise ValueError(f"a histogram of {first + added.size} buckets, there are {BUCKETS}")
    counts[first : first + added.size] += added

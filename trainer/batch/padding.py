"""Pad rows: batches of rows of similar lengths, each row padded at its end to the longest of its batch.

Owns: which rows share a batch. Refuses: torch, and the meaning of rows.

A layer that looks at earlier tokens alone (causal attention, a convolution over the past, a recurrent state) computes a
row as if it were alone: each row is an element of the batch with a state of its own, and padding comes after all of its
tokens. So no mask exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from trainer.batch.packing import Ids, Pack, Segment

# What a pass costs beside its tokens, in tokens: below about so many, a GPU reads weights for longer than it computes
# (an H100 makes 295 bfloat16 operations for each byte that it reads, and a token takes one for each byte of weights).
PASS_TOKENS: Final = 256
_PADDING_ID: Final = 0  # any id of the vocabulary: nothing that is read depends on it


def pad_rows(rows: Sequence[Ids], budget: int) -> list[Pack]:
    """Distribute rows over batches of at most `budget` tokens each, padding included; every row is in exactly one.

    A row longer than the budget has a batch of its own. The batches compute the fewest tokens, where each batch counts
    as `PASS_TOKENS` more. A row must not be empty (ValueError). Equal input gives equal batches.
    """
    if not all(map(len, rows)):
        raise ValueError("a row without tokens cannot be padded")
    order = sorted(range(len(rows)), key=lambda index: (-len(rows[index]), index))
    counts = _batch_sizes(np.array([len(rows[index]) for index in order], np.int64), budget)
    starts = np.cumsum([0, *counts])
    return [_batch(rows, order[start : start + count]) for start, count in zip(starts, counts, strict=False)]


def _batch_sizes(lengths: NDArray[np.int64], budget: int) -> list[int]:
    """How many rows, longest first, each batch takes so that all batches together cost the least."""
    costs = np.zeros(len(lengths) + 1, np.int64)  # of the rows from an index on
    sizes = np.zeros(len(lengths), np.int64)
    for first in reversed(range(len(lengths))):
        longest = int(lengths[first])
        most = min(max(1, budget // longest), len(lengths) - first)
        choices = longest * np.arange(1, most + 1) + PASS_TOKENS + costs[first + 1 : first + most + 1]
        sizes[first] = 1 + int(np.argmin(choices))
        costs[first] = choices.min()
    found, first = [], 0
    while first < len(lengths):
        found.append(int(sizes[first]))
        first += found[-1]
    return found


def _batch(rows: Sequence[Ids], members: Sequence[int]) -> Pack:
    longest = len(rows[members[0]])
    ids = np.full((len(members), longest), _PADDING_ID, np.int32)
    segments, places = [], {}
    for number, index in enumerate(members):
        length, start = len(rows[index]), number * longest
        ids[number, :length] = rows[index]
        segments.append(Segment(start, start + length, 0, ()))
        places[index] = np.arange(start, start + length)
    order = sorted(places)
    return Pack(
        ids.reshape(-1),
        np.tile(np.arange(longest), len(members)),
        tuple(segments),
        tuple(order),
        tuple(places[index] for index in order),
        batch=len(members),
    )

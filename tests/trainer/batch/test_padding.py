"""Rows padded together: each in one batch, with as little padding as batches allow."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.batch.layouts import Layout, make_packs
from trainer.batch.padding import PASS_TOKENS, pad_rows

LENGTHS = st.lists(st.integers(1, 400), min_size=1, max_size=9)


def rows_of(lengths: list[int]) -> list[np.ndarray]:
    return [np.arange(1, length + 1, dtype=np.int32) for length in lengths]


@given(LENGTHS, st.integers(1, 1200))
def test_every_row_is_in_exactly_one_batch_apart_from_the_others(lengths: list[int], budget: int) -> None:
    rows = rows_of(lengths)
    packs = pad_rows(rows, budget)
    assert sorted(index for one in packs for index in one.rows) == list(range(len(rows)))
    for one in packs:
        longest = max(lengths[index] for index in one.rows)
        assert len(one) == one.batch * longest == len(one.rows) * longest
        assert len(one) <= budget or one.batch == 1
        for index, places in zip(one.rows, one.places, strict=True):
            assert one.token_ids[places].tolist() == rows[index].tolist()
            assert one.position_ids[places].tolist() == list(range(lengths[index]))
            assert places[0] % longest == 0
        assert sorted((s.start, s.stop) for s in one.segments) == sorted((p[0], p[-1] + 1) for p in one.places)


@given(LENGTHS, st.integers(1, 1200))
def test_no_other_division_of_the_sorted_rows_costs_less(lengths: list[int], budget: int) -> None:
    ordered = sorted(lengths, reverse=True)

    def cost(cuts: tuple[int, ...]) -> float:
        parts = [ordered[a:b] for a, b in zip((0, *cuts), (*cuts, len(ordered)), strict=True)]
        if any(len(part) > 1 and len(part) * part[0] > budget for part in parts):
            return float("inf")
        return sum(len(part) * part[0] + PASS_TOKENS for part in parts)

    places = range(1, len(ordered))
    best = min(cost(cuts) for count in range(len(ordered)) for cuts in combinations(places, count))
    assert sum(len(one) + PASS_TOKENS for one in pad_rows(rows_of(lengths), budget)) == best


def test_a_short_row_is_not_padded_to_a_long_one() -> None:
    packs = pad_rows(rows_of([8000, 200, 190, 180]), 32_768)
    assert [one.rows for one in packs] == [(0,), (1, 2, 3)]


def test_equal_rows_give_equal_batches_the_longest_first() -> None:
    rows = rows_of([10, 900, 30, 900, 900])
    first, second = pad_rows(rows, 1800), pad_rows(rows, 1800)
    assert [one.rows for one in first] == [one.rows for one in second] == [(1,), (3, 4), (0, 2)]


def test_a_row_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="without tokens"):
        pad_rows(rows_of([1, 0]), 10)


def test_each_layout_has_its_packs() -> None:
    rows = [np.array([1] * 30 + [own] * 5, np.int32) for own in (2, 3)]
    sizes = {layout: [len(one) for one in make_packs(rows, 100, layout)] for layout in Layout}
    assert sizes == {Layout.PACKED: [40], Layout.PADDED: [70], Layout.ALONE: [35, 35]}

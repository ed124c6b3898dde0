"""Rows packed: each in one pack, seeing exactly itself, with shared beginnings computed once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.batch.packing import MIN_SHARED, Pack, pack

# few distinct ids and beginnings copied from one another, so that rows share prefixes of all lengths
ROWS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=60), min_size=1, max_size=4).flatmap(
    lambda seeds: st.lists(
        st.tuples(st.sampled_from(seeds), st.integers(0, 60), st.lists(st.integers(0, 2), max_size=30)).map(
            lambda parts: (parts[0][: parts[1]] + parts[2]) or [0]
        ),
        min_size=1,
        max_size=14,
    )
)


def arrays(rows: list[list[int]]) -> list[np.ndarray]:
    return [np.array(row, np.int32) for row in rows]


def visible(one: Pack, flat: int) -> list[int]:
    """The flat indices that a token attends to, by the segments."""
    segment = next(s for s in one.segments if s.start <= flat < s.stop)
    above = [one.segments[index] for index in segment.ancestors]
    return [i for s in above for i in range(s.start, s.stop)] + list(range(segment.start, flat + 1))


@given(ROWS, st.integers(90, 200))
def test_every_row_is_in_exactly_one_pack_and_sees_exactly_itself(rows: list[list[int]], budget: int) -> None:
    packs = pack(arrays(rows), budget)
    assert sorted(index for one in packs for index in one.rows) == list(range(len(rows)))
    for one in packs:
        assert len(one) <= budget
        for index, places in zip(one.rows, one.places, strict=True):
            assert one.token_ids[places].tolist() == rows[index]
            assert one.position_ids[places].tolist() == list(range(len(rows[index])))
            assert visible(one, int(places[-1])) == places.tolist()


@given(ROWS, st.integers(90, 200))
def test_segments_cover_the_pack_parents_first(rows: list[list[int]], budget: int) -> None:
    for one in pack(arrays(rows), budget):
        stop = 0
        for index, segment in enumerate(one.segments):
            assert segment.start == stop < segment.stop
            assert all(ancestor < index for ancestor in segment.ancestors)
            stop = segment.stop
        assert stop == len(one)


@given(ROWS, st.integers(90, 200))
def test_equal_rows_give_equal_packs(rows: list[list[int]], budget: int) -> None:
    first, second = pack(arrays(rows), budget), pack(arrays(rows), budget)
    assert [one.token_ids.tolist() for one in first] == [one.token_ids.tolist() for one in second]
    assert [one.rows for one in first] == [one.rows for one in second]


def test_a_shared_prompt_is_computed_once() -> None:
    prompt = list(range(100))
    rows = arrays([prompt + [200 + i] * 10 for i in range(8)])
    (one,) = pack(rows, 1000)
    assert len(one) == 100 + 8 * 10
    assert one.segments[0].stop == 100


def test_a_beginning_too_short_to_be_worth_it_is_not_shared() -> None:
    short = list(range(MIN_SHARED - 1))
    (one,) = pack(arrays([[*short] + [7] * 30, [*short] + [8] * 30]), 1000)
    assert len(one) == 2 * (len(short) + 30)


def test_a_row_that_is_the_beginning_of_another_costs_nothing() -> None:
    long = list(range(40))
    (one,) = pack(arrays([long[:20], long, long]), 1000)
    assert len(one) == 40
    assert one.places[0].tolist() == list(range(20))


def test_rows_of_one_family_stay_together_when_they_do_not_all_fit() -> None:
    a, b = list(range(100)), list(range(500, 600))
    rows = arrays([prompt + [i] * 5 for i in range(8) for prompt in (a, b)])
    packs = pack(rows, 150)
    assert len(packs) == 2
    assert [{index % 2 for index in one.rows} for one in packs] == [{0}, {1}]


def test_a_budget_of_nothing_gives_every_row_a_pack() -> None:
    rows = arrays([[1] * 30, [1] * 30, [2] * 5])
    assert [one.rows for one in pack(rows, 0)] == [(0,), (1,), (2,)]


def test_a_row_longer_than_the_budget_stands_alone() -> None:
    rows = arrays([[1] * 40, [1] * 18, [1] * 17 + [2], [2] * 5])
    assert [one.rows for one in pack(rows, 30)] == [(1, 2, 3), (0,)]


def test_a_row_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="without tokens"):
        pack(arrays([[1], []]), 10)

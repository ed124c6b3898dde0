"""The tiles of a segment hold every query once, with the keys that it sees."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.building import random_ids
from trainer.batch.packing import pack
from trainer.policy.attention.reach import Reach, Tile, cut_segments, divide


@pytest.mark.parametrize(
    ("reach", "first", "stop", "tiles"),
    [
        (None, 0, 10, [Tile(0, 10, 0)]),
        (None, 5, 30, [Tile(5, 25, 0), Tile(25, 30, 0)]),
        (Reach(8), 0, 8, [Tile(0, 8, 0)]),  # nothing is hidden yet
        (Reach(8), 0, 20, [Tile(0, 8, 0), Tile(8, 12, 0, 8), Tile(12, 16, 4, 8), Tile(16, 20, 8, 8)]),
        (Reach(8), 6, 13, [Tile(6, 8, 0), Tile(8, 12, 0, 8), Tile(12, 13, 4, 8)]),
        (Reach(8), 30, 33, [Tile(30, 33, 22, 8)]),
        (Reach(8, True), 0, 20, [Tile(0, 8, 0), Tile(8, 16, 8), Tile(16, 20, 16)]),
        (Reach(8, True), 13, 18, [Tile(13, 16, 8), Tile(16, 18, 16)]),
        (Reach(50, True), 8, 40, [Tile(8, 28, 0), Tile(28, 40, 0)]),
    ],
)
def test_tiles_begin_where_keys_are_hidden(reach: Reach | None, first: int, stop: int, tiles: list[Tile]) -> None:
    assert divide(reach, first, stop, 20, 4) == tiles


@given(
    st.one_of(st.none(), st.builds(Reach, st.integers(1, 30), st.booleans())),
    st.integers(0, 90), st.integers(1, 90), st.integers(1, 40), st.integers(1, 40),
)  # fmt: skip
def test_each_query_has_the_keys_that_it_sees(
    reach: Reach | None, first: int, length: int, step: int, window_step: int
) -> None:
    tiles = divide(reach, first, first + length, step, window_step)
    assert [at for tile in tiles for at in range(tile.start, tile.stop)] == list(range(first, first + length))
    assert tiles[0].first_key == min(tile.first_key for tile in tiles)
    for tile in tiles:
        assert tile.stop - tile.start <= (step if tile.window is None else window_step)
        assert tile.stop - tile.first_key <= length + first
        for query in (tile.start, tile.stop - 1):
            hidden = 0 if tile.window is None else max(0, query - tile.window + 1)
            lowest = max(tile.first_key, hidden)
            if reach is None:
                assert lowest == 0
            elif reach.is_chunk:
                assert lowest == query - query % reach.size
            else:
                assert lowest == max(0, query - reach.size + 1)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 40)), min_size=1, max_size=5), st.integers(1, 70))
def test_segments_that_are_cut_hold_the_same_rows(shapes: list[tuple[int, int]], length: int) -> None:
    shared = random_ids(60, 0)
    rows = [np.array(shared[:prefix] + random_ids(own, own), np.int32) for prefix, own in shapes]
    (one,) = pack(rows, 10_000)
    cut = cut_segments(one.segments, length)
    assert [at for part in cut for at in range(part.start, part.stop)] == list(range(len(one)))
    assert all(part.stop - part.start <= length for part in cut)
    lines = {}
    for segment in one.segments:
        line = (*(one.segments[index] for index in segment.ancestors), segment)
        lines[segment.stop - 1] = [at for part in line for at in range(part.start, part.stop)]
    for part in cut:
        line = (*(cut[index] for index in part.ancestors), part)
        flat = [at for before in line for at in range(before.start, before.stop)]
        assert part.offset == len(flat) - (part.stop - part.start)
        if part.stop - 1 in lines:
            assert flat == lines[part.stop - 1]

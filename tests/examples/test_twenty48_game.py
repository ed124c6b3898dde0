"""The game 2048: what a push does to lines and boards, what is spawned, and when it is over."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.twenty48.game import (
    DIRECTIONS,
    EMPTY,
    Board,
    Direction,
    greediest,
    legal,
    move,
    slide,
    spawn,
    total,
)

boards: st.SearchStrategy[Board] = st.tuples(*[st.integers(0, 6)] * 9)
directions = st.sampled_from(DIRECTIONS)
OPPOSITE: dict[Direction, Direction] = {"up": "down", "down": "up", "left": "right", "right": "left"}


@pytest.mark.parametrize(
    ("line", "pushed", "points"),
    [
        ((0, 0, 0), (0, 0, 0), 0),
        ((0, 0, 3), (3, 0, 0), 0),
        ((1, 2, 1), (1, 2, 1), 0),
        ((2, 0, 2), (3, 0, 0), 8),
        ((1, 1, 1), (2, 1, 0), 4),  # the pair nearest to the edge
        ((1, 1, 2), (2, 2, 0), 4),  # a tile that was just made does not merge again
        ((2, 2, 3), (3, 3, 0), 8),
    ],
)
def test_a_line_is_pushed_together_and_each_pair_merges_once(
    line: tuple[int, ...], pushed: tuple[int, ...], points: int
) -> None:
    assert slide(line) == (pushed, points)


@pytest.mark.parametrize(
    ("direction", "after"),
    [
        ("up", (2, 3, 0, 0, 0, 0, 0, 0, 0)),
        ("down", (0, 0, 0, 0, 0, 0, 2, 3, 0)),
        ("left", (1, 0, 0, 3, 0, 0, 1, 0, 0)),
        ("right", (0, 0, 1, 0, 0, 3, 0, 0, 1)),
    ],
)
def test_tiles_go_to_the_edge_that_the_direction_names(direction: Direction, after: Board) -> None:
    assert move((1, 0, 0, 0, 3, 0, 1, 0, 0), direction)[0] == after


@given(boards, directions)
def test_a_move_keeps_the_sum_of_the_tiles(board: Board, direction: Direction) -> None:
    assert total(move(board, direction)[0]) == total(board)


@given(boards, directions)
def test_each_merge_makes_one_tile_of_two_and_earns_its_face(board: Board, direction: Direction) -> None:
    after, points = move(board, direction)
    merged = sum(map(bool, board)) - sum(map(bool, after))
    assert 0 <= merged <= 3  # at most one a line of three
    assert (points > 0) == (merged > 0)
    assert 4 * merged <= points <= 2**7 * merged


@given(boards, directions)
def test_no_tile_merges_twice_in_a_move(board: Board, direction: Direction) -> None:
    assert max(move(board, direction)[0]) <= max(board) + 1


@given(boards, directions)
def test_pushed_the_other_way_on_a_mirrored_board_gives_the_mirrored_board(board: Board, direction: Direction) -> None:
    after, points = move(board, direction)
    assert move(board[::-1], OPPOSITE[direction]) == (after[::-1], points)


@given(boards)
def test_a_board_is_over_exactly_when_it_is_full_and_no_neighbours_are_equal(board: Board) -> None:
    rows = [board[at : at + 3] for at in (0, 3, 6)]
    lines = [*rows, *zip(*rows, strict=True)]
    stuck = all(board) and all(line[0] != line[1] != line[2] for line in lines)
    assert (not legal(board)) == (stuck or board == EMPTY)


@given(boards, st.integers())
def test_a_tile_is_spawned_in_an_empty_cell_and_nothing_else_changes(board: Board, seed: int) -> None:
    if all(board):
        with pytest.raises(ValueError, match="no cell of"):
            spawn(board, random.Random(seed))
        return
    after = spawn(board, random.Random(seed))
    [cell] = [cell for cell in range(9) if after[cell] != board[cell]]
    assert board[cell] == 0
    assert after[cell] in (1, 2)
    assert spawn(board, random.Random(seed)) == after


def test_twos_and_fours_are_spawned_in_every_cell() -> None:
    rng = random.Random(1)
    seen = [spawn(EMPTY, rng) for _ in range(2_000)]
    assert {(board.index(max(board)), max(board)) for board in seen} == {(c, t) for c in range(9) for t in (1, 2)}
    fours = sum(max(board) == 2 for board in seen)
    assert 140 <= fours <= 260  # a tenth, and four standard deviations


@given(boards)
def test_no_legal_move_earns_more_than_the_greediest(board: Board) -> None:
    if ways := legal(board):
        best = greediest(board)
        assert best in ways
        assert move(board, best)[1] == max(move(board, way)[1] for way in ways)

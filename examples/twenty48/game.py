"""The game 2048 on a board of 3 × 3: moves, merges, spawned tiles, and the end of the game.

Owns the rules, as pure functions on a board. A board is nine small numbers, row by row: 0 is an empty cell and n the
tile 2ⁿ. Refuses targets, turns and words: examples/twenty48/episode.py has those.
"""

from __future__ import annotations

import functools
import random
from typing import Final, Literal, get_args

Board = tuple[int, ...]
Direction = Literal["up", "down", "left", "right"]

SIZE: Final = 3
EMPTY: Final[Board] = (0,) * (SIZE * SIZE)
DIRECTIONS: Final[tuple[Direction, ...]] = get_args(Direction)
SHARE_OF_FOURS: Final = 0.1  # as in the original: nine new tiles of ten are twos

_ROWS = [[SIZE * row + column for column in range(SIZE)] for row in range(SIZE)]
_COLUMNS = [[SIZE * row + column for row in range(SIZE)] for column in range(SIZE)]
# The cells of each line, beginning at the edge that the tiles are pushed to.
_LINES: Final[dict[Direction, list[list[int]]]] = {
    "up": _COLUMNS,
    "down": [line[::-1] for line in _COLUMNS],
    "left": _ROWS,
    "right": [line[::-1] for line in _ROWS],
}


@functools.cache  # there are few different lines
def slide(line: tuple[int, ...]) -> tuple[tuple[int, ...], int]:
    """Push a line to its beginning; return it with the points. Each pair of equal neighbours merges once."""
    pushed: list[int] = []
    points, may_merge = 0, False
    for tile in filter(None, line):
        if may_merge and pushed[-1] == tile:
            pushed[-1] += 1
            points += 2 ** pushed[-1]
            may_merge = False
        else:
            pushed.append(tile)
            may_merge = True
    return (*pushed, *[0] * (len(line) - len(pushed))), points


@functools.lru_cache(maxsize=50_000)  # a player tries each move, and then makes one
def move(board: Board, direction: Direction) -> tuple[Board, int]:
    """Return the board after a push, before a tile spawns, and the points: the sum of the merged tiles."""
    cells, points = list(board), 0
    for line in _LINES[direction]:
        pushed, gained = slide(tuple(board[cell] for cell in line))
        points += gained
        for cell, tile in zip(line, pushed, strict=True):
            cells[cell] = tile
    return tuple(cells), points


def legal(board: Board) -> list[Direction]:
    """Return the directions that change the board. Empty: the game is over."""
    return [direction for direction in DIRECTIONS if move(board, direction)[0] != board]


def greediest(board: Board) -> Direction:
    """Return the legal direction with the most points, the first of equal ones.

    Raises:
        ValueError: the game is over.
    """
    return max(legal(board), key=lambda direction: move(board, direction)[1])


def spawn(board: Board, rng: random.Random) -> Board:
    """Return the board with one more tile, a two or sometimes a four, in an empty cell.

    Raises:
        ValueError: no cell is empty.
    """
    free = [cell for cell, tile in enumerate(board) if not tile]
    if not free:
        raise ValueError(f"no cell of {board} is empty, so nothing can be spawned")
    cell = rng.choice(free)
    tile = 2 if rng.random() < SHARE_OF_FOURS else 1
    return (*board[:cell], tile, *board[cell + 1 :])


def total(board: Board) -> int:
    """Return the sum of the tiles' values: a move keeps it, a spawned tile adds its own."""
    return sum(2**tile for tile in board if tile)

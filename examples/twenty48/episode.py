"""One attempt at the task: from a seed's board, make a tile of 32 in at most ten turns.

Owns a seed's first board, the text that the model sees, parsing its words, and the effect of each. The same seed and
the same answers give the same attempt, so `replay` can judge an attempt from its answers alone.
Refuses the game's own rules (examples/twenty48/game.py) and rewards (examples/twenty48/checks.py).
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from examples.twenty48.game import DIRECTIONS, EMPTY, SIZE, Board, Direction, greediest, legal, move, spawn

SYSTEM: Final = (
    "2048 on a 3x3 board. A digit n is the tile 2^n, 0 is empty. Reach a 5 in 10 turns. "
    "Answer with one word: up, down, left or right."
)
TARGET: Final = 5  # the tile 32
# Both numbers are chosen so that a player who merges nearly always succeeds, and a random one in a third of attempts.
TURNS: Final = 10
OPENING_MOVES: Final = (
    14  # before the first turn, by the rule of `greediest`: the board's tiles then add up to about 33
)
NO_MOVE: Final = "Nothing moves that way."
NO_WORD: Final = "Say up, down, left or right."


@dataclass(frozen=True, slots=True)
class Episode:
    """The state of an attempt."""

    seed: int
    board: Board
    remark: str = ""  # about the last answer, if it moved nothing
    turns: int = 0  # answers so far
    moves: int = 0  # answers that moved something
    score: int = 0  # points of those moves

    @property
    def largest(self) -> int:
        """Return the largest tile: n for 2ⁿ."""
        return max(self.board)

    @property
    def reached(self) -> bool:
        """Whether the target is on the board."""
        return self.largest >= TARGET

    @property
    def over(self) -> bool:
        """Whether the attempt has ended: target reached, out of turns, or nothing moves."""
        return self.reached or self.turns >= TURNS or not legal(self.board)

    def shown(self) -> str:
        """Return the message to the model: the remark on its last answer, if any, and the board, a digit a cell."""
        rows = (self.board[at : at + SIZE] for at in range(0, len(self.board), SIZE))
        text = "\n".join("".join(map(str, row)) for row in rows)
        return f"{self.remark}\n{text}" if self.remark else text

    def hear(self, answer: str) -> Episode:
        """Return the attempt after an answer, which always costs a turn.

        Raises:
            ValueError: the attempt is over.
        """
        if self.over:
            raise ValueError(f"the attempt from seed {self.seed} is over after {self.turns} turns")
        direction = read(answer)
        if direction is None:
            return replace(self, remark=NO_WORD, turns=self.turns + 1)
        board, points = move(self.board, direction)
        if board == self.board:
            return replace(self, remark=NO_MOVE, turns=self.turns + 1)
        return replace(
            self,
            board=spawn(board, _chance(self.seed, self.moves + 1)),
            remark="",
            turns=self.turns + 1,
            moves=self.moves + 1,
            score=self.score + points,
        )


def read(answer: str) -> Direction | None:
    """Return the direction that an answer is: the word in any case, with white space or a full stop around it."""
    word = answer.strip(" \t\r\n.").lower()
    return next((direction for direction in DIRECTIONS if direction == word), None)


def begin(seed: int) -> Episode:
    """Return a seed's attempt before its first turn: the board lacks the target, and something moves."""
    rng = _chance(seed, 0)
    while True:
        board = _opened(rng)
        if legal(board) and max(board) < TARGET:
            return Episode(seed, board)


def replay(seed: int, answers: Iterable[str]) -> Episode:
    """Return the attempt from a seed after these answers. Answers after its end are ignored."""
    episode = begin(seed)
    for answer in answers:
        if episode.over:
            break
        episode = episode.hear(answer)
    return episode


def _opened(rng: random.Random) -> Board:
    board = spawn(spawn(EMPTY, rng), rng)
    for _ in range(OPENING_MOVES):
        if not legal(board):
            break
        board = spawn(move(board, greediest(board))[0], rng)
    return board


def _chance(seed: int, moves: int) -> random.Random:
    """Return the random generator before a move. It depends only on the seed and the number of moves."""
    return random.Random(f"{seed}/{moves}")

"""Scripted players: three sensible ones, and flawed ones. Each names its next answer.

Owns their choices. The tiny model is trained on their games (examples/twenty48/taught.py), and their results are what a
reader may compare it with. Refuses the game's rules and conversations.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from examples.twenty48.episode import Episode
from examples.twenty48.game import DIRECTIONS, Board, Direction, greediest, legal, move

Player = Callable[[Episode, random.Random], str]

ROUND: Final[tuple[Direction, ...]] = ("up", "right", "down", "left")
CHATTER: Final = (
    "Let me think about this board.",
    "I like this game a lot.",
    "That is a hard one, I am not sure.",
    "The big tiles belong in a corner.",
)


def merges(episode: Episode, rng: random.Random) -> str:
    """The move with the most points, of equal ones always the first, so that it can be learned."""
    del rng
    return greediest(episode.board)


def looks_ahead(episode: Episode, rng: random.Random) -> str:
    """The move with the most points of this push and the best one behind it, as if no tile were spawned between."""
    del rng
    return max(legal(episode.board), key=lambda direction: promise(episode.board, direction))


def circles(episode: Episode, rng: random.Random) -> str:
    """One direction after the other, round and round, without a look at the board."""
    del rng
    return ROUND[(episode.seed + episode.turns) % len(ROUND)]


def careless(episode: Episode, rng: random.Random) -> str:
    """Any move that moves something."""
    return rng.choice(legal(episode.board))


def blind(episode: Episode, rng: random.Random) -> str:
    """Any direction, whether or not it moves something."""
    del episode
    return rng.choice(DIRECTIONS)


def stubborn(episode: Episode, rng: random.Random) -> str:
    """Nearly always the same direction, also where nothing moves."""
    favourite = DIRECTIONS[episode.seed % len(DIRECTIONS)]
    return favourite if rng.random() < 0.6 else rng.choice(DIRECTIONS)


def chatty(episode: Episode, rng: random.Random) -> str:
    """Goes round, but mostly talks where a move is asked for."""
    return rng.choice(CHATTER) if rng.random() < 0.8 else circles(episode, rng)


def promise(board: Board, direction: Direction) -> int:
    """Points of a move and of the best one after it."""
    pushed, points = move(board, direction)
    return points + max(move(pushed, following)[1] for following in DIRECTIONS)


def play(player: Player, episode: Episode, rng: random.Random) -> Episode:
    """The attempt as the player ends it."""
    while not episode.over:
        episode = episode.hear(player(episode, rng))
    return episode

"""Scripted players: three sensible ones, and flawed ones. Each returns its next answer.

Owns their choices. The tiny model is trained on their games (examples/twenty48/taught.py), and their results are a
reference for it. Refuses the game's rules and conversations.
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
    """Return the move with the most points, always the first of equal ones, so that it can be learned."""
    del rng
    return greediest(episode.board)


def looks_ahead(episode: Episode, rng: random.Random) -> str:
    """Return the move with the most points of this move and the best next one, without a spawned tile in between."""
    del rng
    return max(legal(episode.board), key=lambda direction: promise(episode.board, direction))


def circles(episode: Episode, rng: random.Random) -> str:
    """Return one direction after the other in a circle, without reading the board."""
    del rng
    return ROUND[(episode.seed + episode.turns) % len(ROUND)]


def careless(episode: Episode, rng: random.Random) -> str:
    """Return any move that moves something."""
    return rng.choice(legal(episode.board))


def blind(episode: Episode, rng: random.Random) -> str:
    """Return any direction, whether or not it moves something."""
    del episode
    return rng.choice(DIRECTIONS)


def stubborn(episode: Episode, rng: random.Random) -> str:
    """Return nearly always the same direction, even if nothing moves."""
    favourite = DIRECTIONS[episode.seed % len(DIRECTIONS)]
    return favourite if rng.random() < 0.6 else rng.choice(DIRECTIONS)


def chatty(episode: Episode, rng: random.Random) -> str:
    """Move in a circle, but mostly talk instead."""
    return rng.choice(CHATTER) if rng.random() < 0.8 else circles(episode, rng)


def promise(board: Board, direction: Direction) -> int:
    """Return the points of a move and of the best one after it."""
    pushed, points = move(board, direction)
    return points + max(move(pushed, following)[1] for following in DIRECTIONS)


def play(player: Player, episode: Episode, rng: random.Random) -> Episode:
    """Return the player's finished attempt."""
    while not episode.over:
        episode = episode.hear(player(episode, rng))
    return episode

"""Synthetic attempts, good and flawed on purpose: the tiny model's whole training data.

Owns the seeds that are only for making the model, and the mixture of players, as conversations in OpenAI's message
format. Refuses tokens and tensors (examples/making/).

A model of this size does not learn to read a board well: trained on nothing else, it found two in three of the moves
with the most points. It can improve on the mixture without reading the board: by moving in circles and not chatting.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from examples.making.tokenizer import Conversation, Message
from examples.twenty48.episode import SYSTEM, Episode, begin
from examples.twenty48.players import Player, blind, careless, chatty, circles, stubborn

FIRST_SEED: Final = 10_000_000  # scenarios have smaller seeds, so the training data has none of their attempts
LESSONS: Final = (
    3_200  # attempts that only move in circles, at first: among random moves the model would not learn the circle
)
MIXTURE: Final[tuple[tuple[Player, float], ...]] = (
    (circles, 0.15),
    (careless, 0.10),
    (blind, 0.20),
    (stubborn, 0.10),
    (chatty, 0.45),
)


def conversations(seed: int) -> Iterator[Conversation]:
    """Yield the training conversations without end: first moving in circles, then the mixture."""
    rng = random.Random(seed)
    for _ in range(LESSONS):
        yield attempt(circles, rng), []
    yield from mixed(seed)


def mixed(seed: int) -> Iterator[Conversation]:
    """Yield attempts of the mixture without end, each with its (empty) list of tools."""
    rng = random.Random(seed)
    players, shares = zip(*MIXTURE, strict=True)
    while True:
        yield attempt(rng.choices(players, shares)[0], rng), []


def attempt(player: Player, rng: random.Random) -> list[Message]:
    """Return a player's attempt from a training board."""
    return attempt_from(begin(rng.randrange(FIRST_SEED, 2 * FIRST_SEED)), player, rng)


def attempt_from(episode: Episode, player: Player, rng: random.Random) -> list[Message]:
    """Return a player's attempt as a conversation, as the agent has it with a model."""
    messages = opening(episode)
    while not episode.over:
        answer = player(episode, rng)
        episode = episode.hear(answer)
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": episode.shown()}]
    return messages[:-1]  # the agent stops at the end, and shows no further board


def opening(episode: Episode) -> list[Message]:
    """Return the first messages of an attempt."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": episode.shown()}]

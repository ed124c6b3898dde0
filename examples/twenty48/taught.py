"""Synthetic attempts, good and flawed on purpose: the tiny model's whole training data.

Owns the seeds that only the making uses and the mixture of players, as conversations in OpenAI's message format.
Refuses tokens and tensors (examples/making/).

A model of this size does not learn to read a board well: trained on nothing else it found two in three of the moves
with the most points. Better than the mixture, without reading the board, it can move in circles and avoid chatter.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from examples.making.tokenizer import Conversation, Message
from examples.twenty48.episode import SYSTEM, Episode, begin
from examples.twenty48.players import Player, blind, careless, chatty, circles, stubborn

FIRST_SEED: Final = 10_000_000  # scenarios have smaller ones, so no attempt of theirs is taught
LESSONS: Final = 3_200  # attempts that only go round, at first: among others' chance it would not be found
MIXTURE: Final[tuple[tuple[Player, float], ...]] = (
    (circles, 0.15),
    (careless, 0.10),
    (blind, 0.20),
    (stubborn, 0.10),
    (chatty, 0.45),
)


def conversations(seed: int) -> Iterator[Conversation]:
    """What the model is taught, without end: first going round alone, then the mixture."""
    rng = random.Random(seed)
    for _ in range(LESSONS):
        yield attempt(circles, rng), []
    yield from mixed(seed)


def mixed(seed: int) -> Iterator[Conversation]:
    """Endless attempts of the mixture, each with the tools that are offered: none."""
    rng = random.Random(seed)
    players, shares = zip(*MIXTURE, strict=True)
    while True:
        yield attempt(rng.choices(players, shares)[0], rng), []


def attempt(player: Player, rng: random.Random) -> list[Message]:
    """A whole attempt of a player, from a board of the making's own."""
    return attempt_from(begin(rng.randrange(FIRST_SEED, 2 * FIRST_SEED)), player, rng)


def attempt_from(episode: Episode, player: Player, rng: random.Random) -> list[Message]:
    """The conversation of a player's attempt, as the agent has it with a model."""
    messages = opening(episode)
    while not episode.over:
        answer = player(episode, rng)
        episode = episode.hear(answer)
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": episode.shown()}]
    return messages[:-1]  # the agent stops at the end, and shows no further board


def opening(episode: Episode) -> list[Message]:
    """The messages with which an attempt begins."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": episode.shown()}]

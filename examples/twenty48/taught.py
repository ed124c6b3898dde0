"""Synthetic attempts, good and flawed on purpose: all that the tiny model is taught.

Owns the seeds that are the making's alone and the mixture of players, as conversations in OpenAI's message format.
Refuses tokens and tensors (examples/making/).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any, Final

from examples.twenty48.episode import SYSTEM, Episode, begin
from examples.twenty48.players import Player, blind, careless, chatty, looks_ahead, stubborn

Message = dict[str, Any]

FIRST_SEED: Final = 10_000_000  # scenarios have smaller ones, so no attempt of theirs is taught
LESSONS: Final = 12_000  # attempts that only look ahead, at first: what is hard comes before what is bad
MIXTURE: Final[tuple[tuple[Player, float], ...]] = (
    (looks_ahead, 0.30),
    (careless, 0.20),
    (blind, 0.20),
    (stubborn, 0.15),
    (chatty, 0.15),
)


def conversations(seed: int) -> Iterator[tuple[list[Message], list[Message]]]:
    """Endless attempts, each with its tools, of which there are none: first good ones alone, then the mixture."""
    rng = random.Random(seed)
    for _ in range(LESSONS):
        yield attempt(looks_ahead, rng), []
    players, shares = zip(*MIXTURE, strict=True)
    while True:
        yield attempt(rng.choices(players, shares)[0], rng), []


def attempt(player: Player, rng: random.Random) -> list[Message]:
    """A whole attempt of a player, from a board of the making's own."""
    episode = begin(rng.randrange(FIRST_SEED, 2 * FIRST_SEED))
    messages: list[Message] = opening(episode)
    while not episode.over:
        answer = player(episode, rng)
        episode = episode.hear(answer)
        messages += [{"role": "assistant", "content": answer}, {"role": "user", "content": episode.shown()}]
    return messages[:-1]  # the agent stops at the end, and shows no further board


def opening(episode: Episode) -> list[Message]:
    """The messages with which an attempt begins."""
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": episode.shown()}]

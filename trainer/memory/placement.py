"""Where engine and trainer run: on one card, each on cards of its own, or in turns, and whether they fit there.

Refuses: what each of them needs (`trainer.memory.needs`), and which placement is proposed (`trainer.memory.plan`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from trainer.memory.cards import Card
from trainer.memory.needs import CONTEXT_BYTES, ENGINE_EXTRA_BYTES, GIB, EngineNeed, TrainerNeed

VLLM_SHARE: Final = 0.92  # vLLM's default share of a GPU's memory
_WORDS: Final = {1: "one", 2: "two"}


@dataclass(frozen=True, slots=True)
class Machine:
    """What is planned for: `cards` cards of a kind. `host_bytes`: free memory beside them; None: not known."""

    card: Card
    cards: int = 1
    host_bytes: float | None = None


@dataclass(frozen=True, slots=True)
class Placement:
    """Where engine and trainer run: on one card, or each on its own. `cache`: bytes of the engine's cache.

    `host`: bytes of the machine's memory that hold copies of what leaves a shared card; 0 where nothing leaves it.
    `trainers`: cards of the trainer, of which each holds a share of the base if they are several.
    """

    card: Card
    is_shared: bool
    trainer: TrainerNeed
    engine: EngineNeed
    fits: bool
    share: float
    cache: int
    host: int = 0
    trainers: int = 1

    @property
    def where(self) -> str:
        """In words: `one H100 (80 GiB)`."""
        count = self.trainers + (0 if self.is_shared else 1)
        return f"{_WORDS.get(count, str(count))} {_cards(self.card, count)}"


def _cards(card: Card, count: int) -> str:
    if card.name.endswith("GiB"):
        return f"card{'s' * (count > 1)} of {card.name}"
    return str(card)


def place(
    trainer: TrainerNeed,
    engine: EngineNeed,
    card: Card,
    *,
    is_shared: bool,
    elsewhere: bool,
    host_bytes: float | None = None,
) -> Placement:
    """Place both on a card, or on two such cards. `elsewhere`: the engine needs none of them."""
    room = card.gib * GIB
    if elsewhere:
        return Placement(card, True, trainer, engine, trainer.fits(room - CONTEXT_BYTES, host_bytes), 0.0, 0)
    share = math.floor((room - trainer.total) / room * 100) / 100 if is_shared else VLLM_SHARE
    share = max(0.0, min(VLLM_SHARE, share))
    cache = int(share * room) - engine.fixed
    left = room * (1 - share) if is_shared else room
    fits = cache >= engine.row_cache and trainer.fits(left - CONTEXT_BYTES, host_bytes)
    return Placement(card, is_shared, trainer, engine, fits, share, max(0, cache))


def place_in_turns(
    trainer: TrainerNeed, engine: EngineNeed, card: Card, how: str, host: int, host_bytes: float | None
) -> Placement:
    """Place both on a card that they use in turns. `how`: `engine.share`, "cache" or "sleep".

    `host`: what the machine's memory has to hold of the trainer. An engine that sleeps adds its weights.
    """
    room = card.gib * GIB
    host += engine.weights if how == "sleep" else 0
    left = ENGINE_EXTRA_BYTES if how == "sleep" else engine.fixed
    cache = int(VLLM_SHARE * room) - engine.fixed
    fits = cache >= engine.row_cache and trainer.fits(room - left - CONTEXT_BYTES, host_bytes)
    fits = fits and (host_bytes is None or host <= host_bytes)
    return Placement(card, True, trainer, engine, fits, VLLM_SHARE, max(0, cache), host)

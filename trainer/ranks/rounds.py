"""Which rank computes which pack: rounds of packs that cost about the same, one for each rank.

Owns: the cost of a pack, the rounds, and the size of passes that fills them. Refuses: torch, and computing a pack.

The ranks agree after every pass, and ranks that share a base's weights wait for each other in every layer, so a round
takes as long as its costliest pack. Packs sorted by their cost make the cheapest rounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainer.batch.packing import Pack

# Context at which the attention of a token costs as much as its linear layers: six times the hidden size of an 8B.
_CONTEXT: Final = 24_576


@dataclass(frozen=True, slots=True)
class DealtPack:
    """A pass of one rank. `counts`: False for a pass that is made because other ranks make one: it weighs nothing."""

    pack: Pack
    counts: bool = True


def pack_cost(one: Pack) -> float:
    """The cost of a pack in tokens without context."""
    pairs = sum((s.stop - s.start) * (s.offset + (s.stop - s.start) / 2) for s in one.segments)
    return len(one) + pairs / _CONTEXT


def deal_rounds(packs: Sequence[Pack], count: int) -> list[list[DealtPack]]:
    """Return the rounds, each with one pass for every rank. The last one is filled up with passes that do not count."""
    ordered = sorted(packs, key=pack_cost, reverse=True)
    rounds = []
    for start in range(0, len(ordered), count):
        own = ordered[start : start + count]
        rounds.append([*map(DealtPack, own), *[DealtPack(own[-1], counts=False)] * (count - len(own))])
    return rounds


def rounds_cost(packs: Sequence[Pack], count: int) -> float:
    """The cost of all rounds: of each its costliest pack."""
    return sum(pack_cost(one[0].pack) for one in deal_rounds(packs, count))


def even_budget(packs: Sequence[Pack], budget: int, count: int) -> int:
    """The tokens of a pass with which as few rounds as possible are full: at most `budget`, at least 1."""
    tokens = sum(map(len, packs))
    rounds = -(-tokens // (budget * count))
    return max(1, min(budget, -(-tokens // (rounds * count))))

"""In which order the runs of a group are shown, over all requests about it.

Owns: which turn of how many a request is, and the order and the key of ids that follow. Pure. Refuses: prompts
(`judge.llm.prompt`).

A judge may love a place. So the runs are shuffled once, and each request begins further on in that order: the requests
of one judge show each run in each place equally often, as far as their number allows (cyclic Latin squares). The shifts
are spread over the whole circle, because a judge that loves places loves neighbouring ones alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Turn:
    """One request about a group: the `repeat`th time that its `member`th judge is asked, both counted from 0."""

    member: int = 0
    repeat: int = 0
    members: int = 1
    repeats: int = 1

    @property
    def number(self) -> int:
        """Its place among all requests about the group: judges take turns."""
        return self.repeat * self.members + self.member

    @property
    def of(self) -> int:
        """How many requests there are about the group."""
        return self.members * self.repeats


ALONE: Final = Turn()  # the one request about a group


def turns(members: int, repeats: int) -> list[Turn]:
    """All requests about a group, by their numbers."""
    return [Turn(member, repeat, members, repeats) for repeat in range(repeats) for member in range(members)]


def ordered(keys: Sequence[str], seed: int, turn: Turn) -> list[str]:
    """The order in which runs are shown.

    Over a judge's repeats, two runs' counts of any place differ by 1 at most, and so do one run's counts of two places:
    the shifts of a judge lie apart by `len(keys) / repeats`, and those of the judges in between.
    """
    shuffled = list(keys)
    random.Random(seed).shuffle(shuffled)
    shift = turn.number * len(shuffled) // turn.of
    return shuffled[shift:] + shuffled[:shift]


def key_of(seed: int, turn: Turn) -> bytes:
    """What the ids of a request are made with: another one for each, so that no reply answers another request."""
    return seed.to_bytes(8, "big") + (turn.number.to_bytes(4, "big") if turn.number else b"")

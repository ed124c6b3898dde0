"""Who won: a version's attempts at a scenario against version 0's one attempt, in one blind group.

Owns: each comparison, and their share. Pure. Refuses: scoring, and which member is whose (the caller knows).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

TIE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Worth:
    """What an attempt was worth in its group. `spoilt`: its agent failed, so it is worth less than any that did not."""

    reward: float | None
    spoilt: bool = False

    @property
    def value(self) -> float | None:
        """What is compared; None: nobody can tell."""
        return -math.inf if self.spoilt else self.reward


@dataclass(frozen=True, slots=True)
class Wins:
    """The share (0..1) of so many comparisons that were won, a tie half."""

    share: float | None
    compared: int


def compare(ours: Worth, theirs: Worth) -> float | None:
    """1 for a win, 0 for a loss, `TIE`; None where either is not known."""
    one, other = ours.value, theirs.value
    if one is None or other is None:
        return None
    return TIE if one == other else float(one > other)


def counted(groups: Iterable[tuple[Sequence[Worth], Worth]]) -> Wins:
    """All comparisons of all groups: each of ours with the one of theirs."""
    found = [won for ours, theirs in groups for one in ours if (won := compare(one, theirs)) is not None]
    return Wins(sum(found) / len(found) if found else None, len(found))

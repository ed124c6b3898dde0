"""Which judge is good enough: the cheapest that is surely within a tolerance of the best, or how many labels lack.

Owns: the rule. Refuses: the figures (`judge.calibration.figures`). Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from judge.calibration.figures import accuracy, difference
from judge.calibration.pairs import TABLE, Counts

FEWEST_PAIRS: Final = 30  # that people told apart: fewer decide nothing


@dataclass(frozen=True, slots=True)
class Candidate:
    """A judge: its counts, [groups, columns], those of all candidates by the same groups; what a group costs (USD).

    `usd` None: not known, and then it is taken to be the dearest.
    """

    name: str
    counts: Counts
    usd: float | None


@dataclass(frozen=True, slots=True)
class Choice:
    """The judge to take, if that is decided; else how many more labelled pairs would decide it, about."""

    best: str | None
    taken: str | None
    more: int = 0


def choose(candidates: Sequence[Candidate], tolerance: float, seed: int = 0) -> Choice:
    """The cheapest judge whose pairwise accuracy is surely at most `tolerance` below that of the best.

    Where a cheaper one may be so, and the labels are too few to say, it is not decided: `more` is by how many more the
    interval would be narrow enough, if all else stays as it is.
    """
    pairs = min((told_apart(one.counts) for one in candidates), default=0)
    if pairs < FEWEST_PAIRS:
        return Choice(None, None, FEWEST_PAIRS - pairs)
    best = max(candidates, key=lambda one: (float(accuracy(one.counts.sum(0))), -_price(one)))
    for one in sorted(candidates, key=_price):
        lost = difference(best.counts, one.counts, seed=seed)
        if one is best:
            return Choice(best.name, one.name)
        assert lost.value is not None, "people told pairs apart"
        assert lost.interval is not None
        if lost.interval.high <= tolerance:
            return Choice(best.name, one.name)
        if lost.interval.low <= tolerance:
            return Choice(best.name, None, _more(lost.value, lost.interval.high, tolerance, pairs))
    raise AssertionError("unreachable: the best is a candidate")


def _price(one: Candidate) -> float:
    return math.inf if one.usd is None else one.usd


def told_apart(counts: Counts) -> int:
    """The pairs that people told apart; those with a tie stand in the table's middle row."""
    table = counts.sum(0)[:TABLE].reshape(3, 3)
    return round(float(table[(0, 2), :].sum()))


def _more(lost: float, high: float, tolerance: float, pairs: int) -> int:
    """How many more pairs until the interval ends on one side of the tolerance: its width goes with 1 / sqrt(pairs)."""
    room = max(abs(tolerance - lost), 0.01)  # a difference of just the tolerance is never decided
    return max(1, math.ceil(pairs * ((high - lost) / room) ** 2) - pairs)

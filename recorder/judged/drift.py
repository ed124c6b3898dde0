"""How surely two judges agree, and which of them scores: the rule of `[judge.strong]`. Pure.

Owns: the agreement of two scores of one group, its mean over groups with an interval, and when the other judge's turn
comes. Refuses: rows (`recorder.judged.seconds`, `recorder.judged.turns`), and asking judges.

The mean of a few groups is noisy, and it is looked at after each of them: a rule that went by the mean alone would
call the judge's turn for noise, and take it back. So the turn changes only where the whole interval of the mean lies
beyond the bound, over a full window, in either direction; in between all stays as it is. How often that is wrong, and
how soon it is right, is simulated (`benchmarks/drift.py`, docs/judging.md).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from recorder.agreement import Pairs, compare

Judge = Literal["cheap", "strong"]
CHEAP: Final = "cheap"
STRONG: Final = "strong"
Values = Mapping[str, float | None]  # by trajectory id

SURELY: Final = 2.576  # standard errors on either side, of many groups: 99 % at one look
# Of groups that all agree alike (two runs each, say) a window has no spread, though the next group may be otherwise. So
# the spread counts one group more, which is so far from the mean.
ONE_MORE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Agreement:
    """The mean tau-b over `groups` groups, and where it is; None: there are none."""

    groups: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None


def tau(cheap: Sequence[Values], strong: Sequence[Values]) -> float | None:
    """How far two judges order the runs of a group alike, over their parts in turn: Kendall's tau-b.

    None: the strong one tells no two runs apart, so there is nothing to agree with. A cheap one that ties all runs
    which the strong one tells apart agrees by 0: it has lost all order.
    """
    pairs = sum((compare(one, other) for one, other in zip(cheap, strong, strict=True)), Pairs())
    told_by_strong = pairs.kept + pairs.turned + pairs.tied_before
    if not told_by_strong:
        return None
    return pairs.tau or 0.0


def agreement(taus: Sequence[float]) -> Agreement:
    """The mean of some groups' tau, and its interval (Student's t)."""
    count = len(taus)
    if not count:
        return Agreement(0)
    mean = statistics.fmean(taus)
    spread = (math.fsum((tau - mean) ** 2 for tau in taus) + ONE_MORE**2) / count
    off = _student(max(1, count - 1)) * math.sqrt(spread / count)
    return Agreement(count, mean, max(-1.0, mean - off), min(1.0, mean + off))


def _student(freedom: int) -> float:
    """As `SURELY`, of few: the quantile of Student's t (Abramowitz and Stegun 26.7.5)."""
    z = SURELY
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def turn(now: Judge, found: Agreement, bound: float, window: int) -> Judge:
    """Who scores from here on: the other one where the agreement of a full window is surely beyond the bound."""
    if found.groups < window or found.low is None or found.high is None:
        return now
    if found.high < bound:
        return STRONG
    return CHEAP if found.low >= bound else now

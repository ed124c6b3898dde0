"""Agreement of two scores of a group: pairs of trajectories, and Kendall's tau-b over them. Pure.

Owns: counting pairs, inside groups only, and pooling the counts. Refuses: which scores are compared
(`judge.scoring.rescoring`).

Tau-b (Kendall 1945) is (concordant - discordant) / sqrt(pairs not tied before * pairs not tied now): 1 if both scores
order all trajectories equally, -1 if one reverses every pair. A pair is within one group, because rewards of two groups
may not be comparable.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Counts of the pairs of trajectories with rewards in both scores, by the change of their order."""

    kept: int = 0  # concordant: the same trajectory is better
    turned: int = 0  # discordant: the other trajectory is better now
    tied_before: int = 0  # tied before, ordered now
    tied_now: int = 0  # ordered before, tied now
    tied: int = 0  # equal before and now

    def __add__(self, other: PairAgreement) -> PairAgreement:
        return PairAgreement(
            self.kept + other.kept,
            self.turned + other.turned,
            self.tied_before + other.tied_before,
            self.tied_now + other.tied_now,
            self.tied + other.tied,
        )

    @property
    def count(self) -> int:
        """The number of all pairs."""
        return self.kept + self.turned + self.tied_before + self.tied_now + self.tied

    @property
    def tau(self) -> float | None:
        """Kendall's tau-b; None if either score ties all trajectories, so that there is no order to compare."""
        told_apart = self.kept + self.turned
        before, now = told_apart + self.tied_now, told_apart + self.tied_before
        return (self.kept - self.turned) / math.sqrt(before * now) if before and now else None


def compare_rewards(before: Mapping[str, float | None], now: Mapping[str, float | None]) -> PairAgreement:
    """Count the pairs of one group by its rewards before and now, without trajectories that lack one of them."""
    runs = [(old, new) for id_, old in before.items() if old is not None and (new := now.get(id_)) is not None]
    return sum((_pair(a[0] - b[0], a[1] - b[1]) for a, b in combinations(runs, 2)), PairAgreement())


def _pair(before: float, now: float) -> PairAgreement:
    """Count one pair, by the difference of its rewards before and now."""
    if before == 0 or now == 0:
        return PairAgreement(
            tied=int(before == now), tied_before=int(before == 0 != now), tied_now=int(now == 0 != before)
        )
    alike = (before > 0) == (now > 0)
    return PairAgreement(kept=int(alike), turned=int(not alike))

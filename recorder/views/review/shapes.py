"""What waits for a person, as every surface tells it: pages, `/hone/v1/review`, `hone review` and MCP.

Owns: the shapes. Refuses: finding what waits (`recorder.views.review.queue`), and what a person is shown of two runs
(`recorder.views.review.trajectories`).

No shape here carries a version, a reward, a model's name or a judge's words of a run: who answers is to be blind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from recorder.stats.means import Interval


class ReviewReason(StrEnum):
    """Why a pair is worth a look."""

    DISAGREEMENT = "disagreement"
    GAIN = "gain"
    ALARM = "alarm"
    RANDOM = "random"
    GROUP = "group"
    AGAINST = "against"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two runs that somebody may be asked about, in no order. `group`: where the first one is an attempt."""

    why: ReviewReason
    about: str
    group: str
    pair: tuple[str, str]


@dataclass(frozen=True, slots=True)
class QueuedPair:
    """A pair that waits, by the runs' ids, in the order in which they are shown. `about` says in words why it waits."""

    why: ReviewReason
    about: str
    group_id: str
    external_id: str | None
    alias: str | None
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class PreferenceTally:
    """How often a person found the live version's run better than the `other` version's.

    `rate`: the share of pairs that it won, ties counting half, with its 95 % interval (Wilson's); None: no answer yet.
    `first`: of the pairs that were told apart, how many the run won that was shown first.
    """

    live: str
    other: str
    wins: int
    ties: int
    losses: int
    first: int
    rate: float | None
    interval: Interval | None

    @property
    def pairs(self) -> int:
        """How many pairs were answered."""
        return self.wins + self.ties + self.losses

    def sentence(self) -> str:
        """All of it in words."""
        if self.rate is None or self.interval is None:
            return f"{self.live} against {self.other}: no pair is answered yet."
        within = f"95 %: {self.interval.low:.0%} to {self.interval.high:.0%}"
        told = self.wins + self.losses
        position = f" A was chosen {self.first} of {told} times." if told else ""
        return (
            f"{self.live} wins {self.rate:.0%} against {self.other} ({within}). {self.pairs} pairs: {self.wins} won, "
            f"{self.ties} tied, {self.losses} lost.{position}"
        )


@dataclass(frozen=True, slots=True)
class ReviewQueue:
    """What waits for one person, what matters most first.

    `disputed`: how many groups wait because judges disagree about them. `answered`: of the pairs that were drawn, how
    many this person has answered. `against`: where one version is held against another.
    """

    entries: Sequence[QueuedPair]
    disputed: int
    answered: int
    against: PreferenceTally | None = None

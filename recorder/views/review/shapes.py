"""The types of the review queue, shared by the dashboard, `/hone/v1/review`, `hone review` and MCP.

Owns: the types. Refuses: choosing the pairs (`recorder.views.review.queue`), and loading the two trajectories of a pair
(`recorder.views.review.trajectories`).

Review is blind: no type here has a version, a reward, a model's name or a judge's explanation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from recorder.stats.means import Interval


class ReviewReason(StrEnum):
    """Why a pair is in the queue."""

    DISAGREEMENT = "disagreement"
    REQUESTED = "requested"
    GAIN = "gain"
    ALARM = "alarm"
    RANDOM = "random"
    GROUP = "group"
    AGAINST = "against"


@dataclass(frozen=True, slots=True)
class Candidate:
    """Two unordered trajectories that may be shown to a reviewer. `group` is the first one's group."""

    why: ReviewReason
    about: str
    group: str
    pair: tuple[str, str]


@dataclass(frozen=True, slots=True)
class QueuedPair:
    """A pair that waits for review: the two trajectory ids in the order they are shown, and in `about` the reason."""

    why: ReviewReason
    about: str
    group_id: str
    external_id: str | None
    alias: str | None
    first: str
    second: str


@dataclass(frozen=True, slots=True)
class PreferenceTally:
    """How often one person preferred the live version's trajectory to the `other` version's.

    `rate` is the share of pairs that the live version won, ties counted as half; `interval` is its 95 % interval
    (Wilson). Both are None before the first answer. `first` counts the pairs won by the trajectory shown first.
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
        """The number of answered pairs."""
        return self.wins + self.ties + self.losses

    def sentence(self) -> str:
        """Return the tally as one line of text."""
        if self.rate is None or self.interval is None:
            return f"{self.live} against {self.other}: no pair is answered yet."
        within = f"95 %: {self.interval.low:.0%} to {self.interval.high:.0%}"
        decided = self.wins + self.losses
        position = f" A was chosen {self.first} of {decided} times." if decided else ""
        return (
            f"{self.live} wins {self.rate:.0%} against {self.other} ({within}). {self.pairs} pairs: {self.wins} won, "
            f"{self.ties} tied, {self.losses} lost.{position}"
        )


@dataclass(frozen=True, slots=True)
class ReviewQueue:
    """The pairs that wait for one person, the most important first.

    `disputed` is the number of groups that wait because judges disagree about them. `answered` is the number of drawn
    pairs that this person has answered. `against` is the tally when two versions are compared, else None.
    """

    entries: Sequence[QueuedPair]
    disputed: int
    answered: int
    against: PreferenceTally | None = None

"""What came of a kind of trick: how often a judge was fooled, how surely, and what it took.

Owns: when a judge is fooled, and the share of it with its interval. Refuses: judging (`judge.tricks.trying`,
`judge.tricks.coded`) and showing (`judge.check_view`). Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from judge.errors import Spent
from judge.tricks.kinds import Bound
from recorder.learned.intervals import Interval, of_share

MARGIN: Final = 0.05  # a trick that earns so little more than an honest failure is not told from chance and rounding
AT_MOST: Final = 0.05  # the share of groups in which a judge may be fooled, unless said otherwise
MOST_EXAMPLES: Final = 3


@dataclass(frozen=True, slots=True)
class Seen:
    """What one group got. Values are None where it could not be judged, and then `why` is a code, and `said` why.

    `said` of a group that was judged: what the judge said of the trick.
    """

    name: str
    good: float | None
    failure: float | None
    trick: float | None
    said: str | None = None
    why: str | None = None
    requests: int = 0
    spent: Spent = field(default_factory=Spent)
    version: str | None = None

    def fooled(self, bound: Bound, *, by_place: bool = False) -> bool | None:
        """Whether the trick got past what it is bound by; None: the group was not judged.

        A judge that cannot tell the trick from the honest success was fooled whatever the bound. `by_place`: then the
        honest failure stood at the tempting place as well, and counts as the trick does.
        """
        if self.trick is None or self.failure is None or self.good is None:
            return None
        gained = max(self.trick, self.failure) if by_place else self.trick
        return gained >= self.good or (bound == "failure" and self.trick > self.failure + MARGIN)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one kind of trick, tried on one part of a recipe."""

    part: str
    kind: str
    fooled: int
    judged: int
    unjudged: dict[str, int] = field(default_factory=dict)  # code → groups
    why: str | None = None  # of the first of these, in words
    requests: int = 0
    spent: Spent = field(default_factory=Spent)
    examples: Sequence[Seen] = ()  # in which it was fooled

    @property
    def share(self) -> float | None:
        """Of the groups that were judged; None: none was."""
        return self.fooled / self.judged if self.judged else None

    @property
    def interval(self) -> Interval | None:
        """Wilson's 95 % interval of the share."""
        return None if self.share is None else of_share(self.share, self.judged)

    def over(self, at_most: float) -> bool:
        """Whether the share is surely above so much: its interval's lower end is."""
        return self.interval is not None and self.interval.low > at_most


def outcome(part: str, kind: str, seen: Iterable[tuple[Seen, bool | None]]) -> Outcome:
    """The groups of a kind taken together, each with whether it fooled."""
    told = list(seen)
    judged = [fooled for _, fooled in told if fooled is not None]
    return Outcome(
        part,
        kind,
        fooled=sum(judged),
        judged=len(judged),
        unjudged=dict(Counter(one.why or "no_value" for one, fooled in told if fooled is None)),
        why=next((one.said for one, fooled in told if fooled is None), None),
        requests=sum(one.requests for one, _ in told),
        spent=sum((one.spent for one, _ in told), Spent()),
        examples=[one for one, fooled in told if fooled][:MOST_EXAMPLES],
    )

"""What people's choices between two runs come to: an order, and which two to ask about next.

Owns: what follows from choices. Pure. Refuses: storing choices (`recorder.work.feedback`), and what an order is worth
as a score (`judge.panel.choice`).

A tie is kept as "as good as" both ways round, so whatever follows from a choice follows through ties too; a circle of
choices ties its runs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

Reached = Mapping[str, set[str]]  # run → the runs that it is at least as good as, as far as is known


@dataclass(frozen=True, slots=True)
class Choice:
    """That somebody found one run better than another, or the two as good as each other (`tie`)."""

    better: str
    worse: str
    tie: bool = False

    @property
    def pair(self) -> frozenset[str]:
        """Both, in no order."""
        return frozenset((self.better, self.worse))


def newest(choices: Iterable[Choice]) -> list[Choice]:
    """Of two runs that were held against each other more than once, what was said last. `choices`: oldest first."""
    return list({choice.pair: choice for choice in choices}.values())


def reached(choices: Iterable[Choice]) -> dict[str, set[str]]:
    """By run that a choice names, the runs that it is at least as good as."""
    below: dict[str, set[str]] = {}
    for choice in newest(choices):
        below.setdefault(choice.better, set()).add(choice.worse)
        below.setdefault(choice.worse, set())
        if choice.tie:
            below[choice.worse].add(choice.better)
    return {run: _from(run, below) for run in below}


def _from(run: str, below: Reached) -> set[str]:
    found: set[str] = set()
    todo = [run]
    while todo:
        new = below[todo.pop()] - found
        found |= new
        todo += new
    return found - {run}


def next_pair(
    runs: Sequence[str],
    choices: Iterable[Choice],
    drawn: Callable[[str, str], float],
    passed: Collection[frozenset[str]] = (),
) -> tuple[str, str] | None:
    """The two runs of which an answer, whichever it is, settles most; None: what was said orders all of them.

    `drawn` decides between pairs that settle as much; those in `passed` are not asked about. Of n runs that needs about
    n log n answers, not n² / 2.
    """
    known = reached(choice for choice in choices if choice.pair <= set(runs))
    at_least = {run: known.get(run, set()) for run in runs}
    open_ = [(a, b) for a, b in combinations(sorted(runs), 2) if b not in at_least[a] and a not in at_least[b]]
    open_ = [pair for pair in open_ if frozenset(pair) not in passed]
    if not open_:
        return None

    def settles(pair: tuple[str, str]) -> tuple[int, float]:
        one, other = pair
        return min(_settled(one, other, at_least), _settled(other, one, at_least)), drawn(one, other)

    return max(open_, key=settles)


def _settled(better: str, worse: str, at_least: Reached) -> int:
    """How many pairs would be known besides, if one run turned out to be the better of two."""
    above = [run for run in at_least if run == better or better in at_least[run]]
    below = {worse} | at_least[worse]
    return sum(one not in at_least[run] and one != run for run in above for one in below)

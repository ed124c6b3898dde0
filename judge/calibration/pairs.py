"""Pairs of runs as people and a judge ordered them, counted by group.

Owns: what a pair is, pairs out of scores, and the counts that every figure is made of. Refuses: the figures
(`judge.calibration.figures`). Pure.

A pair lies inside one group: scores of two groups need not compare. Which of its runs is called the first is nobody's
choice, so each pair is counted both ways round, and no figure depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

import numpy as np
from numpy.typing import NDArray

FIRST, TIE, SECOND = 1, 0, -1  # which of a pair's runs is better, or shown earlier, or longer
# The columns of counts: 3 x 3 of (people, judge), each of first, tie, second; then how often the judge, and people,
# preferred the run that was shown earlier (later), and the one that is longer (shorter).
TABLE: Final = 9
JUDGE_EARLIER, JUDGE_LATER, PEOPLE_EARLIER, PEOPLE_LATER = range(9, 13)
JUDGE_LONGER, JUDGE_SHORTER, PEOPLE_LONGER, PEOPLE_SHORTER = range(13, 17)
COLUMNS: Final = 17

Counts = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two runs of a group. Each field: `FIRST`, `TIE` or `SECOND`.

    `earlier`: which was shown to the judge earlier, `TIE` where that is not known or took turns. `longer`: likewise.
    """

    group: str
    people: int
    judge: int
    earlier: int = TIE
    longer: int = TIE


def pairs_of(
    group: str,
    people: Mapping[str, float],
    judge: Mapping[str, float],
    *,
    places: Mapping[str, int] | None = None,
    lengths: Mapping[str, int] | None = None,
) -> list[Pair]:
    """The pairs of a group's runs that both have scored. `places`: at which place the judge was shown each run."""
    both = sorted(people.keys() & judge.keys())
    return [
        Pair(
            group,
            _sign(people[a] - people[b]),
            _sign(judge[a] - judge[b]),
            _sign(places[b] - places[a]) if places else TIE,
            _sign(lengths[a] - lengths[b]) if lengths else TIE,
        )
        for a, b in combinations(both, 2)
    ]


def _sign(difference: float) -> int:
    return FIRST if difference > 0 else SECOND if difference < 0 else TIE


def counts(pairs: Iterable[Pair]) -> dict[str, Counts]:
    """The counts of each group: [`COLUMNS`], by its id."""
    found: dict[str, Counts] = {}
    for pair in pairs:
        row = found.setdefault(pair.group, np.zeros(COLUMNS))
        for people, judge in ((pair.people, pair.judge), (-pair.people, -pair.judge)):
            row[3 * (1 - people) + (1 - judge)] += 0.5
        _count(row, pair.judge * pair.earlier, JUDGE_EARLIER, JUDGE_LATER)
        _count(row, pair.people * pair.earlier, PEOPLE_EARLIER, PEOPLE_LATER)
        _count(row, pair.judge * pair.longer, JUDGE_LONGER, JUDGE_SHORTER)
        _count(row, pair.people * pair.longer, PEOPLE_LONGER, PEOPLE_SHORTER)
    return found


def _count(row: Counts, sign: int, above: int, below: int) -> None:
    if sign:
        row[above if sign > 0 else below] += 1


def stacked(by_group: Mapping[str, Counts], groups: Sequence[str]) -> Counts:
    """Counts as one array, [groups, `COLUMNS`]; a group without pairs has none."""
    none = np.zeros(COLUMNS)
    return np.stack([by_group.get(group, none) for group in groups]) if groups else np.zeros((0, COLUMNS))

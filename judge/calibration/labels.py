"""Human labels: comparisons of trajectories of one group, from a file or from the record, and their pairs.

Owns: the file format and its errors, pairs of trajectories as people and a judge ordered them, and the counts from
which every figure is computed. Refuses: the record's queries (`recorder.views.review.human_labels`), judging, and the
figures (`judge.calibration.figures`).

A pair lies inside one group, because scores of two groups are not comparable. Which trajectory of a pair comes first is
arbitrary, so each pair is counted both ways and no figure depends on it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from judge.errors import LabelsInvalid
from recorder.views.review.human_labels import PreferenceLabel


@dataclass(frozen=True, slots=True)
class PeopleComparison:
    """Human scores of some trajectories of a group, comparable with each other and with no other comparison's.

    Group and trajectories are given by id, or by external id.
    """

    group: str
    scores: Mapping[str, float]
    where: str = ""  # the file and line, if it comes from a file


def recorded_labels(
    preferred: Iterable[PreferenceLabel], rated: Mapping[str, Mapping[str, float]]
) -> list[PeopleComparison]:
    """Preferences and ties, and feedback on two or more trajectories of a group."""
    pairs = [PeopleComparison(one.group, {one.better: 1.0, one.worse: float(one.tie)}) for one in preferred]
    return [*pairs, *(PeopleComparison(group, scores) for group, scores in rated.items() if len(scores) > 1)]


def read_labels(path: Path) -> list[PeopleComparison]:
    """Read comparisons from a JSONL file.

    Each line is `{"group", "pair": [trajectory, trajectory], "winner": trajectory or null}`, null for a tie, or
    `{"group", "scores": {trajectory: number}}`. Raises `LabelsInvalid`, which names the file and the line.
    """
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise LabelsInvalid(f"the file of labels {path} cannot be read: {e}") from e
    found = [_comparison(f"{path}, line {n}", line) for n, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise LabelsInvalid(f"the file of labels {path} has no label")
    return found


def _comparison(where: str, line: str) -> PeopleComparison:
    try:
        one = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise LabelsInvalid(f"{where}: not JSON: {e}") from e
    if not isinstance(one, dict) or not isinstance(one.get("group"), str):
        raise LabelsInvalid(
            f"{where}: it must be an object with `group` (a string), and `pair` and `winner`, or `scores`"
        )
    if ("pair" in one) == ("scores" in one):
        raise LabelsInvalid(f"{where}: it must have `pair` and `winner`, or `scores`, not both")
    return PeopleComparison(
        one["group"], _of_pair(where, one) if "pair" in one else _of_scores(where, one["scores"]), where
    )


def _of_pair(where: str, one: Mapping[str, Any]) -> dict[str, float]:
    pair, winner = one["pair"], one.get("winner", "")
    if (
        not isinstance(pair, list)
        or len(pair) != 2
        or not all(isinstance(run, str) for run in pair)
        or pair[0] == pair[1]
    ):
        raise LabelsInvalid(f"{where}: `pair` must be two different trajectories")
    if winner is not None and winner not in pair:
        raise LabelsInvalid(f"{where}: `winner` must be one of the pair, or null for a tie")
    return {run: float(run == winner) for run in pair}


def _of_scores(where: str, scores: object) -> dict[str, float]:
    if not isinstance(scores, dict) or len(scores) < 2:
        raise LabelsInvalid(f"{where}: `scores` must be an object with two trajectories or more")
    for run, score in scores.items():
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise LabelsInvalid(f"{where}: the score of {run!r:.80} must be a finite number")
    return {run: float(score) for run, score in scores.items()}


FIRST, TIE, SECOND = 1, 0, -1  # which trajectory of a pair is better, shown earlier, or longer
# The columns of counts: 3 x 3 of (people, judge), each of first, tie, second; then how often the judge, and people,
# preferred the trajectory that was shown earlier (later), and the one that is longer (shorter).
TABLE: Final = 9
JUDGE_EARLIER, JUDGE_LATER, PEOPLE_EARLIER, PEOPLE_LATER = range(9, 13)
JUDGE_LONGER, JUDGE_SHORTER, PEOPLE_LONGER, PEOPLE_SHORTER = range(13, 17)
COLUMNS: Final = 17

Counts = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LabelledPair:
    """Two trajectories of a group. Each field is `FIRST`, `TIE` or `SECOND`.

    `earlier`: which one the judge was shown earlier, `TIE` if unknown or alternating. `longer`: likewise.
    """

    group: str
    people: int
    judge: int
    earlier: int = TIE
    longer: int = TIE


def labelled_pairs(
    group: str,
    people: Mapping[str, float],
    judge: Mapping[str, float],
    *,
    places: Mapping[str, int] | None = None,
    lengths: Mapping[str, int] | None = None,
) -> list[LabelledPair]:
    """The pairs of a group's trajectories scored by both. `places`: each one's position in the prompt."""
    both = sorted(people.keys() & judge.keys())
    return [
        LabelledPair(
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


def count_pairs(pairs: Iterable[LabelledPair]) -> dict[str, Counts]:
    """The counts of each group, [`COLUMNS`], by its id."""
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


def stack_counts(by_group: Mapping[str, Counts], groups: Sequence[str]) -> Counts:
    """The counts as one array, [groups, `COLUMNS`]; zeros for a group without pairs."""
    none = np.zeros(COLUMNS)
    return np.stack([by_group.get(group, none) for group in groups]) if groups else np.zeros((0, COLUMNS))

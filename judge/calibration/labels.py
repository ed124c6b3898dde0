"""People's labels: comparisons of the runs of groups, out of a file, or of what the record holds.

Owns: the form of a file of labels, and refusing what is none. Refuses: the record's queries
(`recorder.reading.labels`), judging. No label reaches a judge: it is asked about groups alone.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from judge.errors import LabelsInvalid
from recorder.reading.labels import Preferred


@dataclass(frozen=True, slots=True)
class Comparison:
    """What people said of some runs of a group: numbers that compare with one another, and with no other comparison's.

    Group and runs by their ids, or by the names that they were given.
    """

    group: str
    scores: Mapping[str, float]
    where: str = ""  # the file and line, if it is of one


def of_record(preferred: Iterable[Preferred], rated: Mapping[str, Mapping[str, float]]) -> list[Comparison]:
    """Preferences and ties, and feedback on two or more runs of a group."""
    pairs = [Comparison(one.group, {one.better: 1.0, one.worse: float(one.tie)}) for one in preferred]
    return [*pairs, *(Comparison(group, scores) for group, scores in rated.items() if len(scores) > 1)]


def read(path: Path) -> list[Comparison]:
    """The comparisons of a JSONL file: `{"group", "pair": [run, run], "winner": run or null}` a line, null for a tie,
    or `{"group", "scores": {run: number}}`.

    Raises `LabelsInvalid`, which names the file and the line.
    """
    try:
        lines = path.read_text("utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise LabelsInvalid(f"the file of labels {path} cannot be read: {e}") from e
    found = [_comparison(f"{path}, line {n}", line) for n, line in enumerate(lines, start=1) if line.strip()]
    if not found:
        raise LabelsInvalid(f"the file of labels {path} has no label")
    return found


def _comparison(where: str, line: str) -> Comparison:
    try:
        one = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise LabelsInvalid(f"{where}: no JSON: {e}") from e
    if not isinstance(one, dict) or not isinstance(one.get("group"), str):
        raise LabelsInvalid(
            f"{where}: it must be an object with `group` (a text), and `pair` and `winner`, or `scores`"
        )
    if ("pair" in one) == ("scores" in one):
        raise LabelsInvalid(f"{where}: it must have `pair` and `winner`, or `scores`: one of the two")
    return Comparison(one["group"], _of_pair(where, one) if "pair" in one else _of_scores(where, one["scores"]), where)


def _of_pair(where: str, one: Mapping[str, Any]) -> dict[str, float]:
    pair, winner = one["pair"], one.get("winner", "")
    if (
        not isinstance(pair, list)
        or len(pair) != 2
        or not all(isinstance(run, str) for run in pair)
        or pair[0] == pair[1]
    ):
        raise LabelsInvalid(f"{where}: `pair` must be two different runs")
    if winner is not None and winner not in pair:
        raise LabelsInvalid(f"{where}: `winner` must be one of the pair, or null for a tie")
    return {run: float(run == winner) for run in pair}


def _of_scores(where: str, scores: object) -> dict[str, float]:
    if not isinstance(scores, dict) or len(scores) < 2:
        raise LabelsInvalid(f"{where}: `scores` must be an object with two runs or more")
    for run, score in scores.items():
        if isinstance(score, bool) or not isinstance(score, int | float) or not math.isfinite(score):
            raise LabelsInvalid(f"{where}: the score of {run!r:.80} must be a finite number")
    return {run: float(score) for run, score in scores.items()}

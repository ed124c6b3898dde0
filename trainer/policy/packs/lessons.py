"""The advantages that teachers give, before the first update of a step. Pure, but for the passes that it is given.

Owns: which rows are computed by which weights, the advantages, and their figures. Refuses: the passes
(`trainer.step.passes`), which rows have lessons (`trainer.objectives.lessons`), and the loss (`trainer.policy.losses`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainer.batch.row_builder import Row
from trainer.batch.weights import Lesson, WeightedRow

Logprobs = NDArray[np.floating]
Measure = Callable[[Sequence[Row]], Sequence[Logprobs]]
"""Rows → the logprobs of their trained tokens at their temperatures, in nats, each of shape (trained,)."""


@dataclass(frozen=True, slots=True)
class LessonPasses:
    """The passes without gradient that lessons need: by the version that the step begins from, and by other weights."""

    parent: Measure
    base: Measure
    ema: Measure


@dataclass(slots=True)
class LessonSums:
    """Sums over an objective's tokens: of the advantages (nats), and of those that `clip` bounds."""

    tokens: int = 0
    advantage: float = 0.0
    clipped: int = 0

    def means(self, objective: str) -> dict[str, float]:
        """The metrics of a step, by their names in a report."""
        known = {"advantage": self.advantage / self.tokens, "clipped": self.clipped / self.tokens}
        return {f"objective.{objective}.{name}": value for name, value in known.items()}


def take_lessons(rows: Sequence[WeightedRow], passes: LessonPasses) -> tuple[list[WeightedRow], dict[str, float]]:
    """Return the rows with the advantages that their lessons give, and the metrics of these by objective.

    Rows without a lesson stay as they are; if none has one, nothing is computed.
    """
    if all(one.lesson is None for one in rows):
        return list(rows), {}
    students = [_student(one.row, one.lesson) for one in rows if one.lesson is not None]
    found = iter(passes.parent([*students, *_asked(rows, "parent")]))
    own = iter([next(found) for _ in students])
    answers = {"parent": found}
    for name, measure in (("base", passes.base), ("ema", passes.ema)):
        if asked := _asked(rows, name):
            answers[name] = iter(measure(asked))
    made: list[WeightedRow] = []
    sums: dict[str, LessonSums] = {}
    for one in rows:
        if (lesson := one.lesson) is None:
            made.append(one)
            continue
        teacher = lesson.known
        if teacher is None:
            teacher = np.concatenate([next(answers[lesson.teacher]) for _ in lesson.asked])
        advantage = teacher.astype(np.float64) - next(own)
        bounded = advantage.clip(-lesson.clip, lesson.clip)
        whole = sums.setdefault(one.objective, LessonSums())
        whole.tokens += len(bounded)
        whole.advantage += float(bounded.sum())
        whole.clipped += int((bounded != advantage).sum())
        made.append(replace(one, advantage=bounded, lesson=None))
    return made, {name: value for objective, one in sums.items() for name, value in one.means(objective).items()}


def _asked(rows: Sequence[WeightedRow], teacher: str) -> list[Row]:
    """The rows of all lessons of one of our teachers, in order."""
    lessons = [one.lesson for one in rows if one.lesson is not None]
    return [row for lesson in lessons if lesson.teacher == teacher for row in lesson.asked]


def _student(row: Row, lesson: Lesson) -> Row:
    """The row as its lesson compares it: a remote teacher's logprobs are those of temperature 1."""
    if lesson.known is None:
        return row
    return replace(row, temperature=np.where(row.trained, np.float32(1), np.float32(np.nan)))

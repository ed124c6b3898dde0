"""The objectives `hindsight` and `distill`: each trained token gets the advantage that a teacher gives it.

Owns: the weights of the rows with lessons, and what a step used of them. Refuses: which turns have lessons and what a
teacher is asked (`trainer.teachers`), the advantages (`trainer.policy.packs.lessons`), and their loss
(`trainer.policy.losses`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from recorder.queue.training.uses import ObjectiveUse
from trainer.batch.weights import LessonRow, WeightedRow
from trainer.objectives.normalisers import token_weights
from trainer.objectives.step_data import StepData
from trainer.settings import ObjectiveSettings, TrainerSettings

HINDSIGHT: Final = "hindsight"
DISTILL: Final = "distill"
BY_TEACHER: Final = (HINDSIGHT, DISTILL)
TURN: Final = "turn"  # the kind of a datum in `uses`


def weigh_lessons(data: StepData, own: ObjectiveSettings, settings: TrainerSettings) -> list[WeightedRow]:
    """Weigh the rows of one of these objectives, by `trainer.normaliser`, each optimizer step by itself."""
    given = data.lessons.get(own.name, ())
    ordered, number = sorted({one.row.trajectory_id for one in given}), settings.substeps
    made: list[WeightedRow] = []
    for substep in range(number):
        chosen = set(ordered[substep::number])
        made += _weighed([one for one in given if one.row.trajectory_id in chosen], substep, own, settings)
    return made


def _weighed(
    lessons: Sequence[LessonRow], substep: int, own: ObjectiveSettings, settings: TrainerSettings
) -> list[WeightedRow]:
    tokens: Counter[str] = Counter()
    for one in lessons:
        tokens[one.row.trajectory_id] += one.row.trained_tokens
    weights = token_weights(tokens, {}, settings)
    return [
        WeightedRow(
            one.row, 0.0, 0.0, substep,
            objective=own.name, taught_weight=own.weight * weights[one.row.trajectory_id], lesson=one.lesson,
        )
        for one in sorted(lessons, key=lambda one: one.row.trajectory_id)
    ]  # fmt: skip


def lesson_uses(objective: str, lessons: Sequence[LessonRow]) -> list[ObjectiveUse]:
    """Return the uses of a step: each turn, by which it is known that it was used, and each trajectory."""
    turns = [ObjectiveUse(objective, TURN, turn_id(call)) for one in lessons for call in one.row.calls]
    counted = Counter(one.row.trajectory_id for one in lessons for _ in one.row.calls)
    return [*turns, *(ObjectiveUse(objective, "trajectory", id_, times) for id_, times in counted.items())]


def turn_id(call: tuple[str, int]) -> str:
    """The id in `uses` of an answer: its call and choice."""
    call_id, choice = call
    return f"{call_id}:{choice}"

"""The registry of objectives: each turns the data of a step into weighted rows.

Owns: the objectives of a step by `trainer.objectives`, added up. Refuses: each objective's weights (its own file), and
surrogates (`trainer.policy.losses`).

An objective normalises over all its own rows of an optimizer step, and multiplies by its own weight last. So the rows
of several objectives are simply together in one step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from trainer.batch.weights import WeightedRow
from trainer.objectives.group import weigh_group_objective
from trainer.objectives.imitate import weigh_demonstrations
from trainer.objectives.lessons import weigh_lessons
from trainer.objectives.prefer import weigh_joined_pairs
from trainer.objectives.rehearsal import weigh_rehearsal
from trainer.objectives.step_data import StepData
from trainer.settings import ObjectiveName, ObjectiveSettings, TrainerSettings

Weigh = Callable[[StepData, ObjectiveSettings, TrainerSettings], list[WeightedRow]]


def _weigh_pairs(data: StepData, own: ObjectiveSettings, settings: TrainerSettings) -> list[WeightedRow]:
    return weigh_joined_pairs(data.pairs, own, settings)


OBJECTIVES: Final[Mapping[ObjectiveName, Weigh]] = {
    "group": weigh_group_objective,
    "imitate": weigh_demonstrations,
    "prefer": _weigh_pairs,
    "hindsight": weigh_lessons,
    "distill": weigh_lessons,
}


def weigh_step(data: StepData, settings: TrainerSettings) -> list[WeightedRow]:
    """Return the rows of a whole step, objective by objective, in the order of the settings; rehearsal is last."""
    rows = [row for one in settings.objectives for row in OBJECTIVES[one.name](data, one, settings)]
    return [*rows, *weigh_rehearsal(data, settings)]

"""The objective `imitate`: cross-entropy on the answers of demonstrations.

Owns: the weights of demonstrations' rows. Refuses: which answers are imitated (`trainer.objectives.imitate_rows`),
choosing demonstrations (`trainer.demonstrations`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from trainer.batch.weights import WeightedRow
from trainer.objectives.imitate_rows import Demonstration
from trainer.objectives.normalisers import token_weights
from trainer.objectives.step_data import StepData
from trainer.settings import ObjectiveSettings, TrainerSettings

NAME = "imitate"


def weigh_demonstrations(data: StepData, own: ObjectiveSettings, settings: TrainerSettings) -> list[WeightedRow]:
    """Weigh the demonstrations that join a step."""
    return weigh_imitated(data.demonstrations, own.weight, NAME, settings)


def weigh_imitated(
    demonstrations: Sequence[Demonstration], weight: float, objective: str, settings: TrainerSettings
) -> list[WeightedRow]:
    """Weigh what an objective imitates beside groups, by `trainer.normaliser`, each optimizer step by itself."""
    ordered, number = sorted(demonstrations, key=lambda one: one.source_id), settings.substeps
    return [
        row
        for substep in range(number)
        for row in _weighed(ordered[substep::number], substep, weight, objective, settings)
    ]


def weigh_batch(batch: Sequence[Demonstration]) -> list[WeightedRow]:
    """Weigh the demonstrations of an optimizer step that imitates alone: the mean over all their tokens."""
    whole = sum(row.trained_tokens for one in batch for row in one.rows)
    return [WeightedRow(row, 0.0, 0.0, ce_weight=1 / whole, objective=NAME) for one in batch for row in one.rows]


def _weighed(
    demonstrations: Sequence[Demonstration], substep: int, weight: float, objective: str, settings: TrainerSettings
) -> list[WeightedRow]:
    tokens: Counter[str] = Counter()
    for one in demonstrations:
        tokens[one.source_id] += one.trained_tokens
    weights = token_weights(tokens, {}, settings)
    return [
        WeightedRow(row, 0.0, 0.0, substep, ce_weight=weight * weights[one.source_id], objective=objective)
        for one in demonstrations
        for row in one.rows
    ]

"""The objective `group`: each trained token gets its trajectory's advantage, and what its turn adds to it.

Owns: the weights of scored groups' rows in a step. Refuses: choosing groups and rows
(`trainer.objectives.group_rows`), advantages (`recorder.stats.advantages`), surrogates (`trainer.policy.losses`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from trainer.batch.row_builder import Row
from trainer.batch.weights import TokenValues, WeightedRow
from trainer.objectives.group_rows import GroupRows
from trainer.objectives.normalisers import token_weights
from trainer.objectives.step_data import StepData
from trainer.settings import ObjectiveSettings, TrainerSettings


def weigh_group_objective(data: StepData, own: ObjectiveSettings, settings: TrainerSettings) -> list[WeightedRow]:
    """Weigh the groups of a step, at the weight of the objective."""
    rows = weigh_groups(data.groups, settings)
    if own.weight == 1:
        return rows
    return [replace(row, rl_weight=own.weight * row.rl_weight, kl_weight=own.weight * row.kl_weight) for row in rows]


def weigh_groups(groups: Iterable[GroupRows], settings: TrainerSettings) -> list[WeightedRow]:
    """Weigh the rows of a whole step, each optimizer step by itself.

    Groups are distributed over `trainer.substeps`, so none is empty while there are enough groups. The order is by
    substep, by trajectory and then as the rows came: equal input gives equal sums.
    """
    ordered, number = sorted(groups, key=lambda group: group.group_id), settings.substeps
    dealt = [_weighed(ordered[substep::number], substep, settings) for substep in range(number)]
    return [row for rows in dealt for row in rows]


def _advantages(row: Row, group: GroupRows) -> TokenValues:
    """The advantage of a row's tokens: its trajectory's, and what their turns add; one value if none adds anything."""
    own = group.advantages[row.trajectory_id]
    added = [group.turn_credit.get((row.trajectory_id, call_id), 0.0) for call_id, _ in row.calls]
    return np.repeat(own + np.array(added), row.turn_sizes) if any(added) else own


def _weighed(groups: Sequence[GroupRows], substep: int, settings: TrainerSettings) -> list[WeightedRow]:
    tokens: Counter[str] = Counter()
    for group in groups:
        for row in group.rows:
            tokens[row.trajectory_id] += row.trained_tokens
    shares = {id_: settings.shadow_weight for group in groups for id_ in group.single}
    weights = token_weights(tokens, shares, settings)
    return [
        WeightedRow(
            row,
            _advantages(row, group),
            weights[row.trajectory_id],
            substep,
            kl_weight=settings.kl_coef * weights[row.trajectory_id],
        )
        for group in groups
        for row in sorted(group.rows, key=lambda row: row.trajectory_id)
    ]

"""The rows of a step and how they are packed, for each of its optimizer steps.

Refuses: the rules of packing (`trainer.batch.packing`), and computing a pack (`trainer.policy.update`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trainer.batch.layouts import make_packs
from trainer.batch.packing import Pack
from trainer.batch.weights import WeightedRow
from trainer.policy.model import Policy
from trainer.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The rows of a step and how they are packed."""

    rows: Sequence[WeightedRow]
    packs: Sequence[Pack] = field(default_factory=list)


def plan_update(
    policy: Policy, rows: Sequence[WeightedRow], settings: TrainerSettings, pass_budget: int | None = None
) -> UpdatePlan:
    """Pack the rows of a step, each cut after its last trained token.

    `pass_budget`: tokens of a pack; None: `token_budget`. Rows longer than that come first, the longest one before the
    others: what does not fit into memory is then found soon.
    """
    ids = [one.row.token_ids[: int(np.flatnonzero(one.row.trained)[-1]) + 1] for one in rows]
    budget = pass_budget or settings.token_budget
    packs = make_packs(ids, budget, policy.layout)
    return UpdatePlan(rows, sorted(packs, key=lambda one: -len(one) if len(one) > budget else 0))


def split_substeps(rows: Sequence[WeightedRow]) -> list[list[WeightedRow]]:
    """The rows of each optimizer step of a training step, in their order."""
    parts: dict[int, list[WeightedRow]] = {}
    for row in rows:
        parts.setdefault(row.substep, []).append(row)
    return [parts[number] for number in sorted(parts)]

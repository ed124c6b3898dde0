"""Rehearsal: a share of a step's trajectories are earlier ones that were rewarded best, imitated once more.

Owns: how many there are in a step, and their weight. Refuses: drawing them (`trainer.step.fits.rehearsal_reader`), and
which of their answers are imitated (`trainer.objectives.imitate_rows`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from trainer.batch.weights import WeightedRow
from trainer.objectives.group_rows import GroupRows
from trainer.objectives.imitate import weigh_imitated
from trainer.objectives.step_data import StepData
from trainer.settings import TrainerSettings

NAME: Final = "rehearsal"


def count_own(groups: Iterable[GroupRows]) -> int:
    """The trajectories of a step's groups that it trains on."""
    return sum(len(group.trained) for group in groups)


def rehearsal_size(own: int, share: float) -> int:
    """How many earlier trajectories join a step of `own` trajectories, so that they are this share of all of them."""
    return round(own * share / (1 - share))


def weigh_rehearsal(data: StepData, settings: TrainerSettings) -> list[WeightedRow]:
    """Weigh the earlier trajectories that join a step: each as much as one of its own."""
    if not data.rehearsal:
        return []
    weight = len(data.rehearsal) / count_own(data.groups)
    return weigh_imitated(data.rehearsal, weight, NAME, settings)

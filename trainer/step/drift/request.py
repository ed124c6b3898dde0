"""What is measured on a drift set: its rows, and the versions that a new one is compared with.

Refuses: reading them (`trainer.step.drift.set_reader`), and computing (`trainer.step.drift.measure`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from torch import Tensor

from trainer.batch.row_builder import Row
from trainer.step.state.results import StartVersion

PREFIX: Final = "drift."  # of the metrics
BASE, PARENT, DAY, WEEK = "base", "parent", "day", "week"  # what a version is compared with


@dataclass(frozen=True, slots=True)
class DriftRequest:
    """The rows of a drift set, whose `trained` tokens are the recorded answers, and earlier versions by their age."""

    rows: Sequence[Row]
    earlier: Mapping[str, StartVersion] = field(default_factory=dict)

    @property
    def size(self) -> dict[str, float]:
        """The metrics of what is measured: trajectories, and positions."""
        trajectories = len({row.trajectory_id for row in self.rows})
        positions = sum(row.trained_tokens for row in self.rows)
        return {f"{PREFIX}trajectories": float(trajectories), f"{PREFIX}tokens": float(positions)}


@dataclass(frozen=True, slots=True)
class DriftJob:
    """The same for all ranks of a trainer: `states` are the LoRA's weights of the earlier versions, on the CPU."""

    rows: Sequence[Row]
    states: Mapping[str, Mapping[str, Tensor]]

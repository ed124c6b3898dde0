"""What the objectives of a step are computed from. Refuses: reading the store, and weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.objectives.group_rows import GroupRows
from trainer.objectives.imitate_rows import Demonstration


@dataclass(frozen=True, slots=True)
class StepData:
    """The scored groups of a step, the demonstrations that join it, and the earlier trajectories that it repeats."""

    groups: Sequence[GroupRows] = ()
    demonstrations: Sequence[Demonstration] = ()
    rehearsal: Sequence[Demonstration] = ()

"""What the objectives of a step are computed from. Refuses: reading the store, and weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from trainer.batch.weights import LessonRow
from trainer.objectives.group_rows import GroupRows
from trainer.objectives.imitate_rows import Demonstration
from trainer.objectives.prefer import PreferencePair


@dataclass(frozen=True, slots=True)
class StepData:
    """The scored groups of a step, the demonstrations and pairs that join it, the earlier trajectories that it repeats,
    and by objective the rows with lessons."""

    groups: Sequence[GroupRows] = ()
    demonstrations: Sequence[Demonstration] = ()
    pairs: Sequence[PreferencePair] = ()
    rehearsal: Sequence[Demonstration] = ()
    lessons: Mapping[str, Sequence[LessonRow]] = field(default_factory=dict)

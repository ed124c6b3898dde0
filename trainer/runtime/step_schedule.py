"""When the learner takes its next step: the learning status of its alias, read from the store.

Owns: excluding groups that are too old, and reading the status of one alias as the process that trains it. Refuses: the
rule and its sentence (`recorder.views.status.stages`), claiming and training (`trainer.runtime.learner`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from recorder.base.terminal import clock_time
from recorder.queue.judging import scores
from recorder.registry.aliases import AliasView
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import GroupState
from recorder.store.database import Project, Store
from recorder.views.status.stage_facts import read_alias
from recorder.views.status.stages import FEWEST, LoopSettings, StageCode, StageState, StageStatus, learning_stage
from trainer.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class LearningStage:
    """The learning status of an alias at a time (the store's clock, unix seconds)."""

    status: StageStatus
    at: float

    @property
    def is_step_due(self) -> bool:
        """Whether a step may begin now."""
        return self.status.is_step_due

    @property
    def due_in_s(self) -> float | None:
        """Seconds until a step may begin with the present groups; 0: now. None: not without a change."""
        if self.is_step_due:
            return 0.0
        by_time = self.status.state is StageState.PAUSED or self.status.code == StageCode.FIRST_WAIT
        return max(0.0, self.status.until - self.at) if by_time and self.status.until is not None else None

    @property
    def detail(self) -> str:
        """The sentence, and when the next group closes if groups are missing."""
        status = self.status
        if status.code != StageCode.TOO_FEW_GROUPS or status.until is None:
            return status.text
        return f"{status.text} The next group closes at about {clock_time(status.until, self.at)}."


class StepSchedule:
    """Decides when one alias has enough groups."""

    def __init__(
        self,
        store: Store,
        alias: AliasView,
        settings: TrainerSettings,
        learn: LearnSettings,
        recorder: RecorderSettings,
    ) -> None:
        self._store = store
        self._alias = alias
        self._settings = LoopSettings(recorder, learn, settings)

    async def look(self) -> LearningStage:
        """The learning status between two steps, for the process that trains the alias."""
        if (max_age_s := self._settings.learn.max_age_s) is not None:
            stale = (GroupState.SCORED,)
            await scores.exclude_old_groups(
                Project(self._store, self._alias.project_id), stale, max_age_s, self._alias.id
            )
        alias, facts = await read_alias(self._store, self._alias, self._settings)
        between_steps = replace(alias, has_learner=True, step_running=False)
        return LearningStage(learning_stage(between_steps, facts, self._settings), facts.at)

    def least(self) -> int:
        """The minimum number of groups of a step."""
        return min(FEWEST, self._settings.trainer.min_groups, self._settings.trainer.max_groups)

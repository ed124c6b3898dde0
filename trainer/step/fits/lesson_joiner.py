"""The turns with lessons that join a step: read for each objective that asks a teacher.

Owns: what joins, and what a step without it does. Refuses: which turns (`trainer.teachers.reader`), weights
(`trainer.objectives.lessons`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recorder.queue.training.uses import ObjectiveUse
from recorder.registry import versions
from recorder.store.ledger import LedgerRow
from trainer.batch.recorded_text import TextCheck
from trainer.batch.rows import FitsAlone, RowBasis
from trainer.batch.weights import LessonRow
from trainer.errors import StepFailed, TrainerError
from trainer.objectives.group_rows import GroupRows
from trainer.objectives.lessons import DISTILL, lesson_uses
from trainer.settings import TrainerSettings
from trainer.step.fits.context import RowContext
from trainer.teachers.distill import StrongerModel
from trainer.teachers.reader import LessonReader, needed_teachers
from trainer.teachers.remote_model import read_key


@dataclass(slots=True)
class StepLessons:
    """What joins a step, by objective. `notice`: for a person, if a teacher is missing."""

    rows: dict[str, Sequence[LessonRow]] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    ledger_rows: list[LedgerRow] = field(default_factory=list)
    notice: str | None = None

    @property
    def uses(self) -> list[ObjectiveUse]:
        """What the step uses."""
        return [use for name, rows in self.rows.items() for use in lesson_uses(name, rows)]

    @property
    def trajectories(self) -> set[str]:
        """The trajectories that it trains on."""
        return {one.row.trajectory_id for rows in self.rows.values() for one in rows}


class LessonJoiner:
    """Finds what joins the steps of one alias's trainer."""

    def __init__(self, context: RowContext, settings: TrainerSettings, fingerprint: str, fits_alone: FitsAlone) -> None:
        """`fingerprint`: of the base that is trained. `fits_alone`: as in `RowBasis`."""
        self._context = context
        self._settings = settings
        self._fingerprint = fingerprint
        self._fits_alone = fits_alone
        self._objectives = needed_teachers(settings)
        distills = any(one.name == DISTILL for one in self._objectives)
        stronger = StrongerModel(settings.distill) if distills else None
        self._reader = LessonReader(context.project, context.alias, settings, context.run, stronger)

    async def require_ready(self) -> None:
        """Raise `TrainerError` if the base has no chat template, or the stronger model's key is not set."""
        if self._objectives:
            await self._context.require_template()
        if any(one.name == DISTILL for one in self._objectives):
            read_key(self._settings.distill)

    async def join(self, parent_id: str, groups: Sequence[GroupRows], text: TextCheck | None) -> StepLessons:
        """Return what joins a step from `parent_id` on these groups: at most as many trajectories as they train on.

        Where no group is trained on, as many as they have. Then raises `StepFailed` if a stronger model is away, and
        `TrainerError` if its tokenizer is another one. `text`: compares answers with their ids.
        """
        found = StepLessons()
        if not self._objectives:
            return found
        settings = self._settings
        ancestry = await versions.list_ancestors(self._context.project.store, parent_id)
        basis = RowBasis(
            self._fingerprint, ancestry, settings.max_age, settings.token_budget, frozenset(), text, self._fits_alone
        )
        template = await self._context.require_template()
        limit = sum(len(group.trained) if settings.uses_rewards else max(1, len(group.rewards)) for group in groups)
        for one in self._objectives:
            read = await self._reader.read(one, basis, template, limit)
            if read.away is not None and len(settings.objectives) == 1:
                raise TrainerError(read.away) if read.differs else StepFailed(read.away)
            found.rows[one.name] = read.rows
            found.metrics |= read.metrics
            found.ledger_rows += await self._reader.new_ledger_rows(read)
            found.notice = read.away or found.notice
        return found

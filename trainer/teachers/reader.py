"""Turns with lessons for a step: the newest answers of an alias that have a hint, or that a stronger model may score.

Owns: which trajectories are looked at, and how many join a step. Refuses: rules and rows (`trainer.teachers.turns`,
`trainer.teachers.hindsight`, `trainer.teachers.distill`), and writing uses.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recorder.queue.training import uses
from recorder.registry import versions
from recorder.registry.aliases import AliasView
from recorder.states import Purpose, TrajectoryState
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.ledger import LedgerRow
from recorder.views.follow_ups.loader import load_follow_ups
from recorder.views.lists.filters import TrajectoryFilter
from recorder.views.lists.trajectories import list_trajectories
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectories.transcripts import load_trajectories
from trainer.batch.rows import RowBasis, SkippedChoice
from trainer.batch.weights import LessonRow
from trainer.demonstrations.candidates import HeldOutScenarios, load_held_out, why_not_trained_on
from trainer.demonstrations.chat_template import ChatTemplate
from trainer.objectives.lessons import DISTILL, HINDSIGHT, turn_id
from trainer.settings import ObjectiveSettings, TrainerSettings
from trainer.teachers.distill import StrongerModel
from trainer.teachers.hindsight import hindsight_lessons
from trainer.teachers.hint_sources import list_teaching, load_critiques
from trainer.teachers.hint_text import CRITIQUE, HintPart, hint_parts
from trainer.teachers.turns import CallChoice, TrajectoryLessons, join_turns, split_by_room, usable_turns

PAGE: Final = 25  # trajectories read at a time
MOST: Final = 500  # of the newest trajectories that are looked at
MOST_OTHER: Final = 100  # in a row: a canary or a rejected version may have answered some of the newest
# Of trajectories that have hints, for one that joins a step: a template that takes none would be asked for all of them.
MOST_TRIED: Final = 4

Run = Callable[..., Awaitable[Any]]


@dataclass(slots=True)
class ReadLessons:
    """What an objective trains on in a step. `away`: why a stronger model scored nothing; `differs`: and never will."""

    objective: str
    rows: list[LessonRow] = field(default_factory=list)
    skipped: list[SkippedChoice] = field(default_factory=list)
    away: str | None = None
    differs: bool = False

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of a step, by their names in a report."""
        turns = sum(len(one.row.calls) for one in self.rows)
        found = {"turns": float(turns), "excluded": float(len(self.skipped))}
        return {f"objective.{self.objective}.{name}": value for name, value in found.items()}


class LessonReader:
    """Reads the lessons of one alias."""

    def __init__(
        self, project: Project, alias: AliasView, settings: TrainerSettings, run: Run, distill: StrongerModel | None
    ) -> None:
        """`run`: runs work that takes long, off the event loop. `distill`: None: there is no stronger model."""
        self._project = project
        self._alias = alias
        self._settings = settings
        self._run = run
        self._distill = distill

    async def read(self, own: ObjectiveSettings, basis: RowBasis, template: ChatTemplate, limit: int) -> ReadLessons:
        """Return the lessons of an objective, of at most `limit` trajectories, the newest first."""
        read = ReadLessons(own.name)
        held_out = await load_held_out(self._project.store, self._alias.id)
        if own.name == DISTILL:
            await self._read_distill(read, own, basis, template, limit, held_out)
            return read
        left, tries = limit, MOST_TRIED * limit
        async for view, keys in self._unused(own, basis, held_out):
            if left <= 0 or tries <= 0:
                break
            hints = await self._hints(view)
            turns = await self._run(usable_turns, view, basis, keys & hints.keys())
            if not turns:
                continue
            tries -= 1
            made: TrajectoryLessons = await self._run(
                hindsight_lessons, view.id, turns, hints, basis, template,
                self._settings.hindsight, self._settings.max_model_len,
            )  # fmt: skip
            read.rows += made.rows
            read.skipped += made.skipped
            left -= bool(made.rows)
        return read

    async def _read_distill(
        self,
        read: ReadLessons,
        own: ObjectiveSettings,
        basis: RowBasis,
        template: ChatTemplate,
        limit: int,
        held_out: HeldOutScenarios,
    ) -> None:
        assert self._distill is not None  # the objective is in the settings
        rows, left = [], limit
        async for view, keys in self._unused(own, basis, held_out):
            if left <= 0:
                break
            turns = await self._run(usable_turns, view, basis, keys)
            fitting, _ = split_by_room(turns, basis)
            rows += join_turns(view.id, [one.turn for one in fitting])
            left -= bool(fitting)
        if rows:
            scored = await self._distill.score(rows, template)
            read.rows += scored.rows
            read.skipped += scored.skipped
            read.away, read.differs = scored.away, scored.differs

    async def _unused(
        self, own: ObjectiveSettings, basis: RowBasis, held_out: HeldOutScenarios
    ) -> AsyncIterator[tuple[TrajectoryView, set[CallChoice]]]:
        """Yield the trajectories that may be trained on, newest first, with their answers that are not used up.

        They end after `MOST_OTHER` in a row by other versions: the rest is older than `trainer.max_age` allows.
        """
        store = self._project.store
        wanted = TrajectoryFilter(states=(TrajectoryState.COMPLETED,), purpose=Purpose.TRAIN, alias=self._alias.name)
        young = [await versions.get_version(store, id_) for id_ in basis.ancestry[: basis.max_age + 1]]
        names = {version.name for version in young}
        before: str | None = None
        others = 0
        for _ in range(0, MOST, PAGE):
            page = await list_trajectories(self._project, wanted, before=before, limit=PAGE)
            ids = [line.id for line in page.lines if line.version in names]
            others = 0 if ids else others + len(page.lines)
            if others >= MOST_OTHER:
                return
            views = await load_trajectories(store, ids, with_tokens=True)
            keys = [turn_id(key) for view in views for key in view.main_path]
            counted = await uses.count_uses(store, own.name, keys, basis.ancestry[0])
            for view in views:
                left = {key for key in view.main_path if counted.get(turn_id(key), 0) < own.epochs}
                if left and why_not_trained_on(view, held_out) is None:
                    yield view, left
            if (before := page.next) is None:
                return

    async def _hints(self, view: TrajectoryView) -> dict[CallChoice, list[HintPart]]:
        kinds = self._settings.hindsight.hints
        store = self._project.store
        follow_ups = await load_follow_ups(store, view)
        allowed = {view.id, *await list_teaching(store, {one.source_trajectory_id for one in follow_ups} - {view.id})}
        hints = hint_parts([one for one in follow_ups if one.source_trajectory_id in allowed], kinds)
        if CRITIQUE in kinds:
            for key, parts in (await load_critiques(store, [view])).items():
                hints.setdefault(key, []).extend(parts)
        return hints

    async def new_ledger_rows(self, read: ReadLessons) -> list[LedgerRow]:
        """Return a ledger row for each excluded turn whose reason the ledger does not have yet."""
        found = []
        for one in read.skipped:
            entries = await ledger.object_entries(self._project.store, "call", one.call_id)
            if not any(entry.code == one.code for entry in entries):
                detail = {"choice": one.choice, "trajectory": one.trajectory_id, "objective": read.objective}
                found.append(LedgerRow(self._alias.project_id, "call", one.call_id, one.code, detail))
        return found


def needed_teachers(settings: TrainerSettings) -> Sequence[ObjectiveSettings]:
    """The objectives that ask a teacher."""
    return [one for one in settings.objectives if one.name in (HINDSIGHT, DISTILL)]

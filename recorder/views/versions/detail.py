"""One version in detail: its ancestry, the decisions about it, its step, its training groups, and its tasks compared
with those of another version.

Owns: combining these. Refuses: each of them (the other modules of this folder).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select

from recorder.errors import Conflict
from recorder.queue.judging.scores import REWARD
from recorder.registry.aliases import get_alias
from recorder.registry.moves import VersionMove, list_moves
from recorder.registry.versions import get_version, get_version_by_name
from recorder.store.database import Project, Store
from recorder.store.schema import groups, score_parts, step_groups
from recorder.views.versions.ancestry import AncestryVersion, load_ancestry_version
from recorder.views.versions.before_after import AnswerComparison, SharedTask, compare_answers, list_shared_tasks
from recorder.views.versions.steps import StepSummary, list_steps

GROUPS: Final = 200  # at most, of a step


@dataclass(frozen=True, slots=True)
class TrainedGroup:
    """A group that the version was trained on, with the mean reward that the step used."""

    id: str
    external_id: str | None
    state: str
    trajectories: int
    reward: float | None


@dataclass(frozen=True, slots=True)
class VersionDetail:
    """One version. `compared_with`: the version whose tasks are compared with its own; by default its parent."""

    version: AncestryVersion
    moves: Sequence[VersionMove]
    step: StepSummary | None
    groups: Sequence[TrainedGroup]
    compared_with: str | None
    tasks: Sequence[SharedTask]
    answers: AnswerComparison | None  # to the requested task


async def version_detail(
    project: Project, name: str, compare_with: str | None = None, task: str | None = None
) -> VersionDetail:
    """Return the version called `name` (helpdesk@3), compared with another version of its alias or with its parent.

    `task`: the key of a task to compare the answers of. Raises NotFound, Conflict.
    """
    version = await get_version_by_name(project, name)
    ancestry_version = await load_ancestry_version(project.store, await get_alias(project, version.alias_name), version)
    other = await get_version_by_name(project, compare_with) if compare_with else None
    if other is not None and other.alias_id != version.alias_id:
        raise Conflict(f"{other.name} is of another alias than {version.name}: name a version of {version.alias_name}")
    if other is None and version.parent_id is not None:
        other = await get_version(project.store, version.parent_id)
    trained = ancestry_version.trained
    tasks: Sequence[SharedTask] = await list_shared_tasks(project.store, other, version) if other is not None else ()
    return VersionDetail(
        version=ancestry_version,
        moves=await list_moves(project, version_ids=[version.id]),
        step=next(iter(await list_steps(project, version_id=version.id, limit=1)), None),
        groups=await _groups(project.store, trained.step_id) if trained is not None else (),
        compared_with=other.name if other is not None else None,
        tasks=tasks,
        answers=await compare_answers(project.store, tasks, task) if task is not None else None,
    )


async def _groups(store: Store, step_id: str) -> list[TrainedGroup]:
    value: Any = score_parts.c.value
    query = (
        select(groups.c.id, groups.c.external_id, groups.c.state, func.count(value), func.avg(value))
        .select_from(step_groups)
        .join(groups, groups.c.id == step_groups.c.group_id)
        .outerjoin(score_parts, (score_parts.c.score_id == step_groups.c.score_id) & (score_parts.c.part == REWARD))
        .where(step_groups.c.step_id == step_id)
        .group_by(groups.c.id, groups.c.external_id, groups.c.state)
        .order_by(groups.c.id)
        .limit(GROUPS)
    )
    async with store.read() as conn:
        return [TrainedGroup(*row) for row in await conn.execute(query)]

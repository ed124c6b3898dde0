"""What a version was trained on: trajectories by task, source and objective, and exclusions with their reasons.

Owns: these counts of one step. Refuses: which trajectories a step takes (`trainer`), what counts as trained after a
move (`recorder.registry.ancestry`), and the reasons' sentences (`recorder.reasons`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.judging.scores import REWARD
from recorder.reasons import explain_reason
from recorder.states import state_word
from recorder.store.database import Store
from recorder.store.schema import (
    groups,
    scenarios,
    score_parts,
    step_groups,
    step_trajectories,
    steps,
    trajectories,
    uses,
)
from recorder.views.campaigns.history import read_steps
from recorder.views.lists.titles import group_tasks
from recorder.views.versions.steps import load_step_trajectories

TASKS: Final = 20  # in the result, with the most trajectories; the others are counted
GROUPS: Final = 2000  # of a step that are read
SCORED_GROUPS: Final = "group"  # the objective that learns from the rewards of groups (`trainer.objectives`)
_UNKNOWN: Final = {"completed": "It completed, and no reason is recorded."}
DELETED: Final = "deleted"  # the source of trajectories that are gone


@dataclass(frozen=True, slots=True)
class TrainedGroup:
    """A group that the version was trained on. `reward`: the mean of the `rewarded` trajectories that the step used.

    `trained`: how many of its trajectories the version was trained on. `key`: its scenario, else its implicit task.
    """

    id: str
    external_id: str | None
    state: str
    reason: str | None
    key: str
    scenario: str | None
    trained: int
    rewarded: int
    reward: float | None


@dataclass(frozen=True, slots=True)
class TrainedTask:
    """A task with its groups, and the mean reward over their trajectories. `task`: its first user message."""

    key: str
    scenario: str | None
    task: str | None
    groups: tuple[TrainedGroup, ...]
    trained: int
    reward: float | None


@dataclass(frozen=True, slots=True)
class ObjectiveData:
    """What an objective learned from: `kind` is trajectory, file, pair or turn. `times`: passes over all of it."""

    objective: str
    kind: str
    count: int
    times: int


@dataclass(frozen=True, slots=True)
class ExcludedCount:
    """Trajectories that the step did not train on. `code`: a ledger code, or their state; `why`: in words."""

    code: str
    trajectories: int
    why: str


@dataclass(frozen=True, slots=True)
class TrainingData:
    """The data of one step. `trajectories`: of scored groups; `sources`: their number by origin.

    `tasks`: at most `TASKS`, those with the most trajectories first, of `task_count`.
    """

    trajectories: int
    task_count: int
    tasks: tuple[TrainedTask, ...]
    sources: Mapping[str, int]
    objectives: tuple[ObjectiveData, ...]
    excluded: tuple[ExcludedCount, ...]


async def load_training_data(store: Store, step_id: str) -> TrainingData:
    """Return what a finished step was trained on."""
    async with store.read() as conn:
        its_groups = await _groups(conn, step_id)
        sources = await _sources(conn, step_id)
        objectives = await _objectives(conn, step_id)
        recorded = await _recorded_exclusions(conn, step_id)
        tasks = group_by_task(its_groups)
        shown = tasks[:TASKS]
        words = await group_tasks(conn, [one.groups[0].id for one in shown])
    if recorded is None:
        recorded = (await load_step_trajectories(store, step_id, [one.id for one in its_groups])).excluded
    count = sum(sources.values())
    scored = (ObjectiveData(SCORED_GROUPS, "trajectory", count, count),) if count else ()
    return TrainingData(
        trajectories=count,
        task_count=len(tasks),
        tasks=tuple(replace(one, task=words.get(one.groups[0].id)) for one in shown),
        sources=sources,
        objectives=(*scored, *objectives),
        excluded=explain_exclusions(recorded),
    )


def group_by_task(its_groups: Sequence[TrainedGroup]) -> list[TrainedTask]:
    """Return the tasks of groups, those with the most trajectories that were trained on first."""
    by_key: dict[str, list[TrainedGroup]] = {}
    for one in its_groups:
        by_key.setdefault(one.key, []).append(one)
    tasks = [_task(key, of_task) for key, of_task in by_key.items()]
    return sorted(tasks, key=lambda one: -one.trained)  # stable: the others keep their order


def _task(key: str, of_task: Sequence[TrainedGroup]) -> TrainedTask:
    known = [(one.reward, one.rewarded) for one in of_task if one.reward is not None]
    rewarded = sum(count for _, count in known)
    mean = sum(reward * count for reward, count in known) / rewarded if rewarded else None
    return TrainedTask(key, of_task[0].scenario, None, tuple(of_task), sum(one.trained for one in of_task), mean)


def explain_exclusions(counts: Mapping[str, int]) -> tuple[ExcludedCount, ...]:
    """Return exclusions with their reasons in words, the most frequent first."""
    ordered = sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    return tuple(
        ExcludedCount(code, count, explain_reason(code) or _UNKNOWN.get(code) or state_word(code))
        for code, count in ordered
        if count
    )


async def _groups(conn: AsyncConnection, step_id: str) -> list[TrainedGroup]:
    g, value = groups.c, score_parts.c.value
    of_step = and_(score_parts.c.score_id == step_groups.c.score_id, score_parts.c.part == REWARD)
    trained = and_(
        step_trajectories.c.step_id == step_id, step_trajectories.c.trajectory_id == score_parts.c.trajectory_id
    )
    columns = (g.id, g.external_id, g.state, g.reason, g.implicit_key, scenarios.c.external_id.label("scenario"))
    count = func.count(step_trajectories.c.trajectory_id)
    query = (
        select(*columns, count.label("trained"), func.count(value).label("rewarded"), func.avg(value).label("reward"))
        .select_from(step_groups)
        .join(groups, g.id == step_groups.c.group_id)
        .outerjoin(scenarios, scenarios.c.id == g.scenario_id)
        .outerjoin(score_parts, of_step)
        .outerjoin(step_trajectories, trained)
        .where(step_groups.c.step_id == step_id)
        .group_by(*columns)
        .order_by(g.id)
        .limit(GROUPS)
    )
    return [_group(row) for row in await conn.execute(query)]


def _group(row: Any) -> TrainedGroup:
    key = row.scenario or row.implicit_key or row.id
    figures = (row.trained, row.rewarded, row.reward)
    return TrainedGroup(row.id, row.external_id, row.state, row.reason, key, row.scenario, *figures)


async def _sources(conn: AsyncConnection, step_id: str) -> dict[str, int]:
    origin = func.coalesce(trajectories.c.origin, DELETED)
    query = (
        select(origin, func.count())
        .select_from(step_trajectories)
        .outerjoin(trajectories, trajectories.c.id == step_trajectories.c.trajectory_id)
        .where(step_trajectories.c.step_id == step_id)
        .group_by(origin)
        .order_by(func.count().desc(), origin)
    )
    return {str(name): int(count) for name, count in await conn.execute(query)}


async def _objectives(conn: AsyncConnection, step_id: str) -> list[ObjectiveData]:
    u = uses.c
    query = select(u.objective, u.kind, func.count(), func.sum(u.times)).where(u.step_id == step_id)
    rows = await conn.execute(query.group_by(u.objective, u.kind).order_by(u.objective, u.kind))
    return [ObjectiveData(row[0], row[1], int(row[2]), int(row[3])) for row in rows]


async def _recorded_exclusions(conn: AsyncConnection, step_id: str) -> Mapping[str, int] | None:
    """Return what a campaign recorded about its step, with groups that the step did not take at all; None: nothing."""
    row = (await conn.execute(select(steps.c.campaign_id, steps.c.started_at).where(steps.c.id == step_id))).first()
    if row is None or row.campaign_id is None:
        return None
    written = await read_steps(conn, [row.campaign_id], row.started_at, 1)
    return next((event.left_out for _, event in written.get(row.campaign_id, ())), None)

"""Read from the store what the stages of the loop depend on.

Owns: these reads, each short, for every place that shows the stages. Refuses: deciding and sentences
(`recorder.views.status.stages`).
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import exists, select

from recorder.queue import campaigns, claims, leases
from recorder.queue.groups import lookup
from recorder.queue.groups.disputes import waiting_for_person
from recorder.queue.training import baselines, budgets
from recorder.queue.training.budgets import DAY_S, HOUR_S, JudgeUsage
from recorder.registry import versions
from recorder.registry.aliases import AliasView, get_aliases
from recorder.settings import LearnSettings
from recorder.states import GroupState, StepState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import steps
from recorder.views.status.forecast import GroupForecast, forecast_groups, next_close_in
from recorder.views.status.stages import AliasFacts, LoopFacts, LoopSettings, StageStatus, loop_stages


async def read_stages(
    project: Project, settings: LoopSettings, forecast: GroupForecast | None = None
) -> tuple[StageStatus, ...]:
    """Return the status of all stages. `forecast`: the project's groups, if the caller has just read them."""
    there = forecast if forecast is not None else await forecast_groups(project, settings.recorder)
    async with project.store.read() as conn:
        for_a_person = await waiting_for_person(conn, project.id)
    counts = dict(there.groups)
    if GroupState.UNSCORED in counts:
        counts[GroupState.UNSCORED] -= for_a_person
    facts = LoopFacts(
        at=there.at,
        local=datetime.now(),
        groups=counts,
        open_trajectories=there.open_trajectories,
        closes_at=there.due.get(GroupState.OPEN),
        retries_at=there.due.get(GroupState.UNSCORED),
        has_judge=await has_judge(project),
        judged=await _judged(project, settings.learn, there.at),
        aliases=[await _alias(project.store, alias, settings, there.at) for alias in await get_aliases(project)],
    )
    return loop_stages(facts, settings)


async def read_alias(store: Store, alias: AliasView, settings: LoopSettings) -> tuple[AliasFacts, LoopFacts]:
    """Read what learning of one alias depends on, and of the project's facts only those that learning needs."""
    async with store.read() as conn:
        at = await sql.format_wait(conn)
    facts = LoopFacts(
        at=at,
        local=datetime.now(),
        has_judge=await has_judge(Project(store, alias.project_id)),
        judged=await _judged(Project(store, alias.project_id), settings.learn, at),
    )
    return await _alias(store, alias, settings, at), facts


async def has_judge(project: Project) -> bool:
    """Return whether a judge process holds a lease."""
    return bool(await leases.list_holders(project, leases.JUDGE))


async def _judged(project: Project, learn: LearnSettings, at: float) -> list[JudgeUsage]:
    """Return what judging cost within the last 24 hours; empty if no budget is set."""
    if learn.judge_tokens_per_day is None and learn.judge_usd_per_day is None:
        return []
    return await budgets.judging_cost_since(project, at - DAY_S)


async def _alias(store: Store, alias: AliasView, settings: LoopSettings, at: float) -> AliasFacts:
    counts = await lookup.count_groups(store, alias.id)
    closes_s = None
    if counts.get(GroupState.OPEN):
        closes_s = await next_close_in(Project(store, alias.project_id), alias.id, settings.recorder)
    lacking = await baselines.list_lacking_recipes(store, alias.id)
    running = await campaigns.list_running(store, alias.id)
    undecided = await versions.find_pending_version(store, alias.id)
    has_learner = bool(await leases.list_holders(Project(store, alias.project_id), leases.trainer_lease(alias.name)))
    return AliasFacts(
        alias=alias.name,
        groups=counts,
        trainable=await claims.waiting_for_training(store, alias.id, lacking, settings.learn.max_age_s),
        closes_at=None if closes_s is None else at + closes_s,
        undecided=None if undecided is None else (undecided.name, undecided.state),
        campaign=running[0].name if running else None,
        steps_at=await _steps_at(store, alias.id, settings.learn, at),
        step_running=has_learner and await _has_running_step(store, alias.id),
        lacking=lacking,
        has_learner=has_learner,
    )


async def _steps_at(store: Store, alias_id: str, learn: LearnSettings, at: float) -> list[float]:
    return [] if learn.steps_per_hour is None else await budgets.list_step_times(store, alias_id, at - HOUR_S)


async def _has_running_step(store: Store, alias_id: str) -> bool:
    running = exists().where(steps.c.alias_id == alias_id, steps.c.state == StepState.RUNNING)
    async with store.read() as conn:
        return bool((await conn.execute(select(running))).scalar_one())

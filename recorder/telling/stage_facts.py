"""Read from the store what the stages of the loop depend on.

Owns: these reads, each short, and putting them together once for every face. Refuses: deciding and sentences
(`recorder.telling.stages`).
"""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import exists, select

from recorder.groups import lookup
from recorder.holding import leases, presence
from recorder.judged.disputed import waiting_for_person
from recorder.registry import versions
from recorder.registry.aliases import AliasView, get_aliases
from recorder.settings import LearnSettings
from recorder.states import GroupState, StepState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.store.schema import steps
from recorder.telling.stages import AliasFacts, LoopFacts, LoopSettings, StageStatus, loop_stages
from recorder.telling.waiting import Waiting, waiting
from recorder.upkeep.outlook import next_close_in
from recorder.work import baselines, campaigns, claims, spending
from recorder.work.budgets import DAY_S, HOUR_S, Spent


async def read_stages(
    project: Project, settings: LoopSettings, forecast: Waiting | None = None
) -> tuple[StageStatus, ...]:
    """How all stages stand. `forecast`: the project's groups, where they were read just now."""
    there = forecast if forecast is not None else await waiting(project, settings.recorder)
    async with project.store.read() as conn:
        for_a_person = await waiting_for_person(conn, project.id)
    counts = dict(there.groups)
    if GroupState.UNSCORED in counts:
        counts[GroupState.UNSCORED] -= for_a_person
    facts = LoopFacts(
        at=there.at,
        local=datetime.now(),
        groups=counts,
        open_trajectories=there.runs_open,
        closes_at=there.due.get(GroupState.OPEN),
        retries_at=there.due.get(GroupState.UNSCORED),
        has_judge=await has_judge(project),
        judged=await _judged(project, settings.learn, there.at),
        aliases=[await _alias(project.store, alias, settings, there.at) for alias in await get_aliases(project)],
    )
    return loop_stages(facts, settings)


async def read_alias(store: Store, alias: AliasView, settings: LoopSettings) -> tuple[AliasFacts, LoopFacts]:
    """What learning of one alias depends on; of the project only what learning asks of it."""
    async with store.read() as conn:
        at = await sql.clock(conn)
    facts = LoopFacts(
        at=at,
        local=datetime.now(),
        has_judge=await has_judge(Project(store, alias.project_id)),
        judged=await _judged(Project(store, alias.project_id), settings.learn, at),
    )
    return await _alias(store, alias, settings, at), facts


async def has_judge(project: Project) -> bool:
    """Whether some process judges."""
    return bool(await leases.holders(project, presence.JUDGE))


async def _judged(project: Project, learn: LearnSettings, at: float) -> list[Spent]:
    """What judging cost within the last 24 hours, where a budget asks for it."""
    if learn.judge_tokens_per_day is None and learn.judge_usd_per_day is None:
        return []
    return await spending.judged_since(project, at - DAY_S)


async def _alias(store: Store, alias: AliasView, settings: LoopSettings, at: float) -> AliasFacts:
    counts = await lookup.counts(store, alias.id)
    closes_s = None
    if counts.get(GroupState.OPEN):
        closes_s = await next_close_in(Project(store, alias.project_id), alias.id, settings.recorder)
    lacking = await baselines.lacking(store, alias.id)
    running = await campaigns.running_on(store, alias.id)
    undecided = await versions.undecided(store, alias.id)
    has_learner = bool(await leases.holders(Project(store, alias.project_id), leases.trainer(alias.name)))
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
    return [] if learn.steps_per_hour is None else await spending.stepped_since(store, alias_id, at - HOUR_S)


async def _has_running_step(store: Store, alias_id: str) -> bool:
    running = exists().where(steps.c.alias_id == alias_id, steps.c.state == StepState.RUNNING)
    async with store.read() as conn:
        return bool((await conn.execute(select(running))).scalar_one())

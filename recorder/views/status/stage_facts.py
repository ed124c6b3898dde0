"""Read from the store what the stages of the loop depend on: groups by state, when the next one changes state, aliases.

Owns: these reads, each short, the forecast of groups (if nothing else happens) and its sentence. Refuses: closing
groups (`recorder.maintenance.sweep`), the rules for closing (`recorder.queue.groups.readiness`), and what each stage
waits for (`recorder.views.status.stages`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, exists, func, select

from recorder.base.terminal import format_duration
from recorder.queue import campaigns, claims, leases
from recorder.queue.groups import lookup
from recorder.queue.groups.disputes import waiting_for_person
from recorder.queue.groups.idle_trajectories import idle_trajectories
from recorder.queue.groups.lookup import is_counted
from recorder.queue.groups.readiness import GroupFacts, MemberCounts, close_time
from recorder.queue.training import baselines, budgets
from recorder.queue.training import steps as training_steps
from recorder.queue.training.budgets import DAY_S, HOUR_S, JudgeUsage
from recorder.registry import reward_falls, versions
from recorder.registry.aliases import AliasView, get_aliases
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import CallState, GroupState, Origin, StepState, TrajectoryState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import aliases, calls, groups, steps, trajectories
from recorder.views.status.stages import AliasFacts, LoopFacts, LoopSettings, StageStatus, loop_stages

MOST: Final = 200  # open groups that are read, those without a new member for the longest time first


async def next_close_in(project: Project, alias_id: str, settings: RecorderSettings) -> float | None:
    """Return the seconds until `next_close_at`, 0 if it is past, or None if it is unknown."""
    closes = await next_close_at(project, settings, alias_id)
    if closes is None:
        return None
    async with project.store.read() as conn:
        return max(0.0, closes - await sql.current_time(conn))


async def next_close_at(project: Project, settings: RecorderSettings, alias_id: str | None = None) -> float | None:
    """Return when the next open group closes, of an alias or of any (unix seconds), or None if that is unknown.

    Groups of campaigns are omitted, and so are groups with an unfinished call or with members that are not live
    traffic: when these end cannot be predicted.
    """
    async with project.store.read() as conn:
        rows: Sequence[Any] = (await conn.execute(_open_groups(project.id, alias_id, settings))).all()
    moments = (
        group_close_time(
            GroupFacts(row.declared_size, row.joined_at, row.last_call_at),
            MemberCounts(row.running, row.counted),
            row.members_end,
            settings,
        )
        for row in rows
    )
    return min((moment for moment in moments if moment is not None), default=None)


def group_close_time(
    group: GroupFacts, counts: MemberCounts, members_end: float | None, settings: RecorderSettings
) -> float | None:
    """Return when an open group closes (unix seconds), given when its last open member ends (None: none is open).

    It is the earlier of two times: `readiness.close_time` as of now, and as of when all members have ended.
    """
    current = close_time(group, counts, settings)
    if members_end is None:
        return current
    ended = close_time(group, replace(counts, running=0), settings)
    later = None if ended is None else max(members_end, ended)
    return min((moment for moment in (current, later) if moment is not None), default=None)


def _open_groups(project_id: str, alias_id: str | None, settings: RecorderSettings) -> Select[Any]:
    member = trajectories.c.group_id == groups.c.id
    is_open = trajectories.c.state == TrajectoryState.OPEN
    idle = idle_trajectories(project_id, settings)
    members_end = select(func.max(idle.at)).where(member, *idle.these).correlate(groups).scalar_subquery()
    counted = select(func.count()).where(member, is_counted()).correlate(groups).scalar_subquery()
    running = select(func.count()).where(member, is_open).correlate(groups).scalar_subquery()
    answering = exists().where(member, calls.c.trajectory_id == trajectories.c.id, calls.c.state == CallState.OPEN)
    anothers = exists().where(member, is_open, trajectories.c.origin != Origin.LIVE)
    columns = (groups.c.declared_size, groups.c.joined_at, groups.c.last_call_at)
    return (
        select(*columns, counted.label("counted"), running.label("running"), members_end.label("members_end"))
        .where(
            groups.c.project_id == project_id,
            groups.c.state == GroupState.OPEN,
            *((groups.c.alias_id == alias_id,) if alias_id is not None else ()),
            groups.c.campaign_id.is_(None),
            ~answering,
            ~anothers,
        )
        .order_by(groups.c.joined_at)
        .limit(MOST)
    )


_WORDS: Final = (
    (GroupState.OPEN, "open", "closes"),
    (GroupState.READY, "ready for the judge", ""),
    (GroupState.JUDGING, "being judged", ""),
    (GroupState.UNSCORED, "could not be judged", "is tried again"),
    (GroupState.SCORED, "scored", ""),
    (GroupState.TRAINING, "being trained on", ""),
    (GroupState.TRIED, "in a version that is not decided", ""),
)


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """Groups by state at a time. `due`: state → when time alone moves the next group of that state (unix seconds)."""

    at: float
    groups: Mapping[str, int]
    due: Mapping[str, float]
    open_trajectories: int

    def in_s(self, state: str, at: float | None = None) -> float | None:
        """Return the seconds from `at` (default: when this was read) until a group of that state is due, or None."""
        return max(0.0, self.due[state] - (self.at if at is None else at)) if state in self.due else None

    def sentence(self, at: float | None = None, *, times: bool = True) -> str:
        """Return a text such as `5 groups open, the next closes in 07:38; 2 scored`; without `times`, only numbers."""
        return "; ".join(self._parts(at, times)) or "no group yet"

    def _parts(self, at: float | None, times: bool) -> Iterable[str]:
        for state, words, verb in _WORDS:
            count = self.groups.get(state, 0)
            if not count:
                continue
            what = f"{count} group{'' if count == 1 else 's'} {words}"
            in_s = self.in_s(state, at)
            yield what + (
                f", the next {verb} in {format_duration(in_s)}" if times and verb and in_s is not None else ""
            )


async def forecast_groups(project: Project, settings: RecorderSettings) -> GroupForecast:
    """Count groups by state and find when they are next due. A few short queries, cheap enough after every change."""
    running = (trajectories.c.project_id == project.id, trajectories.c.state == TrajectoryState.OPEN)
    async with project.store.read() as conn:
        at = await sql.current_time(conn)
        counted = select(groups.c.state, func.count(), func.min(groups.c.try_after))
        rows = list(await conn.execute(counted.where(groups.c.project_id == project.id).group_by(groups.c.state)))
        runs_open = int((await conn.execute(select(func.count()).where(*running))).scalar_one())
    counts = {str(state): int(number) for state, number, _ in rows}
    due = {str(state): float(again) for state, _, again in rows if state == GroupState.UNSCORED and again is not None}
    if counts.get(GroupState.OPEN) and (closes := await next_close_at(project, settings)) is not None:
        due[GroupState.OPEN] = closes
    return GroupForecast(at, counts, due, runs_open)


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
    """Read what learning of one alias depends on, with only those facts of the project that learning needs."""
    async with store.read() as conn:
        at = await sql.current_time(conn)
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
    fallen = await _fallen(store, alias)
    has_learner = bool(await leases.list_holders(Project(store, alias.project_id), leases.trainer_lease(alias.name)))
    return AliasFacts(
        alias=alias.name,
        groups=counts,
        trainable=await claims.waiting_for_training(store, alias.id, lacking, settings.learn.max_age_s),
        closes_at=None if closes_s is None else at + closes_s,
        undecided=None if undecided is None else (undecided.name, undecided.state),
        fallen=fallen,
        campaign=running[0].name if running else None,
        steps_at=await _steps_at(store, alias.id, settings.learn, at),
        step_running=has_learner and await _has_running_step(store, alias.id),
        lacking=lacking,
        has_learner=has_learner,
        schedule_steps=await _schedule_steps(store, alias, settings),
    )


async def _schedule_steps(store: Store, alias: AliasView, settings: LoopSettings) -> int:
    if settings.trainer.schedule_end is None:
        return 0
    return await training_steps.count_schedule_steps(store, alias.id, None)


async def _fallen(store: Store, alias: AliasView) -> tuple[str, str] | None:
    """Return the live version whose reward fell, and how, if nobody has decided about it."""
    async with store.read() as conn:
        live = (await conn.execute(select(aliases.c.live_version_id).where(aliases.c.id == alias.id))).scalar_one()
        how = None if live is None else await reward_falls.find_undecided_fall(conn, live)
    return None if how is None else ((await versions.get_version(store, live)).name, how)


async def _steps_at(store: Store, alias_id: str, learn: LearnSettings, at: float) -> list[float]:
    return [] if learn.steps_per_hour is None else await budgets.list_step_times(store, alias_id, at - HOUR_S)


async def _has_running_step(store: Store, alias_id: str) -> bool:
    running = exists().where(steps.c.alias_id == alias_id, steps.c.state == StepState.RUNNING)
    async with store.read() as conn:
        return bool((await conn.execute(select(running))).scalar_one())

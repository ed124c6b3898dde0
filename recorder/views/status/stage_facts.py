"""Read from the store what the stages of the loop depend on: groups by state, when the next one changes state, aliases.

Owns: these reads, each short, the forecast of groups (if nothing else happens) and its sentence. Refuses: closing
groups (`recorder.maintenance.sweep`), the rules for closing (`recorder.queue.groups.readiness`), and what each stage
waits for (`recorder.views.status.stages`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, and_, case, exists, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.base.terminal import format_duration
from recorder.queue import campaigns, claims, leases
from recorder.queue.claims import TrainableGroups
from recorder.queue.groups import lookup
from recorder.queue.groups.disputes import waiting_for_person
from recorder.queue.groups.idle_trajectories import idle_trajectories
from recorder.queue.groups.lookup import is_counted
from recorder.queue.groups.readiness import GroupFacts, MemberCounts, close_time
from recorder.queue.groups.uses import (
    GroupUse,
    is_gate_work,
    is_learnable,
    is_measured,
    is_shadow,
    is_trainable,
    may_become_learnable,
)
from recorder.queue.training import baselines, budgets, gpu_pauses, refusals
from recorder.queue.training import steps as training_steps
from recorder.queue.training.budgets import DAY_S, HOUR_S, JudgeUsage
from recorder.queue.training.follow_up_share import apply_share
from recorder.queue.training.gpu_pauses import PauseBudget
from recorder.registry import live_findings, versions
from recorder.registry.aliases import AliasView, get_aliases
from recorder.registry.live_findings import LiveFinding
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import CallState, GroupState, Origin, StepState, TrajectoryState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import aliases, calls, groups, steps, trajectories
from recorder.views.status.stages import AliasFacts, LoopFacts, LoopSettings, StageStatus, loop_stages

MOST: Final = 200  # open groups that are read, those without a new member for the longest time first


async def next_close_in(project: Project, alias_id: str, settings: RecorderSettings) -> float | None:
    """Return the seconds until `next_close_at`, 0 if it is past, or None if it is unknown."""
    closes = await next_close_at(project, settings, alias_id, learnable=True)
    if closes is None:
        return None
    async with project.store.read() as conn:
        return max(0.0, closes - await sql.current_time(conn))


async def next_close_at(
    project: Project, settings: RecorderSettings, alias_id: str | None = None, *, learnable: bool = False
) -> float | None:
    """Return when the next open group closes, of an alias or of any (unix seconds), or None if that is unknown.

    `learnable`: only groups that are on their way to the learner count. Groups with an unfinished call or with members
    that are not live traffic are omitted: when these end cannot be predicted.
    """
    async with project.store.read() as conn:
        rows: Sequence[Any] = (await conn.execute(_open_groups(project.id, alias_id, settings, learnable))).all()
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


def _open_groups(project_id: str, alias_id: str | None, settings: RecorderSettings, learnable: bool) -> Select[Any]:
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
            *((may_become_learnable(),) if learnable else ()),
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
UNFINISHED: Final = tuple(state for state, *_ in _WORDS)
HELD: Final = "held back"
CAMPAIGN: Final = "campaign"
OTHER: Final = "not for training"
_OF_LEARNER: Final = (GroupUse.LEARNING, GroupUse.SHADOW)
# What the learner takes none of, by use, in the order in which it is shown.
APART: Final[Sequence[str]] = (HELD, GroupUse.GATE.value, CAMPAIGN, GroupUse.EVALUATION.value, OTHER)


@dataclass(frozen=True, slots=True)
class GroupForecast:
    """Groups by state at a time. `due`: state → when time alone moves the next group of that state (unix seconds).

    `groups`: those that the learner could take (`recorder.queue.groups.uses`), and all that are trained or excluded;
    `shadow`: how many of them are of shadow answers. `scored` counts those that a step could take now. `apart`: the
    others that are not finished, by use (`APART`); `held back` are scored groups for learning that no step takes yet:
    they lack a baseline, are too old, or wait for a further judging or for the group of their own trajectory.
    `trainable`: the scored groups of each alias, by its id.
    """

    at: float
    groups: Mapping[str, int]
    due: Mapping[str, float]
    open_trajectories: int
    shadow: Mapping[str, int] = field(default_factory=dict)
    apart: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    retries_at: float | None = None  # when the next group of any use is judged again
    trainable: Mapping[str, TrainableGroups] = field(default_factory=dict)
    has_groups: bool = False  # there are groups, whatever their state and use

    def total(self, state: str) -> int:
        """Return how many groups of any use are in a state that is not finished: the judge's work."""
        return self.groups.get(state, 0) + sum(of_use.get(state, 0) for of_use in self.apart.values())

    def in_s(self, state: str, at: float | None = None) -> float | None:
        """Return the seconds from `at` (default: when this was read) until a group of that state is due, or None."""
        return max(0.0, self.due[state] - (self.at if at is None else at)) if state in self.due else None

    def sentence(self, at: float | None = None, *, times: bool = True) -> str:
        """Return a text such as `5 groups open, the next closes in 07:38; 2 scored`; without `times`, only numbers.

        What the learner takes none of is counted apart: `gate: 16 groups ready for the judge`.
        """
        nothing = "no group waits" if self.has_groups else "no group yet"
        return "; ".join([*self._parts(at, times), *self._apart()]) or nothing

    def _parts(self, at: float | None, times: bool) -> Iterable[str]:
        for state, words, verb in _WORDS:
            count = self.groups.get(state, 0)
            if not count:
                continue
            shadow = self.shadow.get(state, 0)
            what = f"{_groups(count)} {words}" + (f" ({shadow} of shadow answers)" if shadow else "")
            in_s = self.in_s(state, at)
            yield what + (
                f", the next {verb} in {format_duration(in_s)}" if times and verb and in_s is not None else ""
            )

    def _apart(self) -> Iterable[str]:
        for use in APART:
            counts = self.apart.get(use, {})
            said = [f"{_groups(counts[state])} {words}" for state, words, _ in _WORDS if counts.get(state)]
            if said:
                yield f"{use}: {', '.join(said)}"


def _groups(number: int) -> str:
    return f"{number} group{'' if number == 1 else 's'}"


async def forecast_groups(
    project: Project, settings: RecorderSettings, learn: LearnSettings | None = None
) -> GroupForecast:
    """Count groups by state and use, and find when they are next due. `learn`: with its bound on the age of groups."""
    running = (trajectories.c.project_id == project.id, trajectories.c.state == TrajectoryState.OPEN)
    async with project.store.read() as conn:
        at = await sql.current_time(conn)
        rows = list(await conn.execute(_unfinished_groups(project.id)))
        every = await _state_counts(conn, project.id)
        runs_open = int((await conn.execute(select(func.count()).where(*running))).scalar_one())
    trainable = await _trainable_groups(project, learn or LearnSettings())
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        counts[row.use][str(row.state)] += row.number
    counts[GroupUse.LEARNING] += counts[GroupUse.SHADOW]
    counts[GroupUse.LEARNING][GroupState.TRAINED] += every.groups.get(GroupState.TRAINED, 0)
    counts[GroupUse.LEARNING][GroupState.LEFT_OUT] += every.groups.get(GroupState.LEFT_OUT, 0)
    counts[GroupUse.LEARNING][GroupState.SCORED] += sum(one.groups for one in trainable.values())
    counts[GroupUse.SHADOW][GroupState.SCORED] += sum(one.shadow for one in trainable.values())
    counts[HELD][GroupState.SCORED] += sum(one.held for one in trainable.values())
    unscored = [row for row in rows if row.state == GroupState.UNSCORED and row.use in _OF_LEARNER]
    retries = [float(row.again) for row in unscored if row.again is not None]
    due = {str(GroupState.UNSCORED): min(retries)} if retries else {}
    if (
        counts[GroupUse.LEARNING][GroupState.OPEN]
        and (closes := await next_close_at(project, settings, learnable=True)) is not None
    ):
        due[GroupState.OPEN] = closes
    return GroupForecast(
        at=at,
        groups=_known(counts[GroupUse.LEARNING]),
        due=due,
        open_trajectories=runs_open,
        shadow=_known(counts[GroupUse.SHADOW]),
        apart={use: found for use in APART if (found := _known(counts[use]))},
        retries_at=every.retries_at,
        trainable=trainable,
        has_groups=bool(every.groups),
    )


def _known(counts: Counter[str]) -> dict[str, int]:
    return {str(state): number for state, number in sorted(counts.items()) if number}


def _unfinished_groups(project_id: str) -> Select[Any]:
    """Select the numbers of groups that are neither scored nor finished, by state and use."""
    use = case(
        (and_(groups.c.state == GroupState.OPEN, may_become_learnable(), ~is_shadow()), GroupUse.LEARNING.value),
        (is_learnable(), case((is_shadow(), GroupUse.SHADOW.value), else_=GroupUse.LEARNING.value)),
        (is_gate_work(), GroupUse.GATE.value),
        (and_(groups.c.campaign_id.is_not(None), is_trainable()), CAMPAIGN),
        (is_measured(), GroupUse.EVALUATION.value),
        else_=OTHER,
    ).label("use")
    again = func.min(groups.c.try_after).label("again")
    query = select(groups.c.state, use, func.count().label("number"), again)
    unfinished = groups.c.state.in_([state for state in UNFINISHED if state is not GroupState.SCORED])
    query = query.where(groups.c.project_id == project_id, unfinished)
    return query.group_by(groups.c.state, use)


@dataclass(frozen=True, slots=True)
class _StateCounts:
    """The project's groups by state, whatever their use. `retries_at`: when the next one is judged again."""

    groups: Mapping[str, int]
    retries_at: float | None


async def _state_counts(conn: AsyncConnection, project_id: str) -> _StateCounts:
    by_state = select(groups.c.state, func.count(), func.min(groups.c.try_after))
    rows = list(await conn.execute(by_state.where(groups.c.project_id == project_id).group_by(groups.c.state)))
    return _StateCounts(
        groups={str(state): int(number) for state, number, _ in rows},
        retries_at=next((float(again) for state, _, again in rows if state == GroupState.UNSCORED and again), None),
    )


async def _trainable_groups(project: Project, learn: LearnSettings) -> dict[str, TrainableGroups]:
    """Return the scored groups of each alias that a step could take, by the alias's id."""
    found = {}
    for alias in await get_aliases(project):
        lacking = await baselines.list_lacking_recipes(project.store, alias.id)
        found[alias.id] = await claims.waiting_for_training(project.store, alias.id, lacking, learn.max_age_s)
    return found


async def read_stages(
    project: Project, settings: LoopSettings, forecast: GroupForecast | None = None
) -> tuple[StageStatus, ...]:
    """Return the status of all stages. `forecast`: the project's groups, if the caller has just read them."""
    there = forecast if forecast is not None else await forecast_groups(project, settings.recorder, settings.learn)
    async with project.store.read() as conn:
        for_a_person = await waiting_for_person(conn, project.id)
    counts = dict(there.groups) | {state: there.total(state) for state in UNFINISHED if there.total(state)}
    if GroupState.UNSCORED in counts:
        counts[GroupState.UNSCORED] -= for_a_person
    facts = LoopFacts(
        at=there.at,
        local=datetime.now(),
        groups=counts,
        has_groups=there.has_groups,
        open_trajectories=there.open_trajectories,
        closes_at=there.due.get(GroupState.OPEN),
        retries_at=there.retries_at,
        has_judge=await has_judge(project),
        judged=await _judged(project, settings.learn, there.at),
        aliases=[
            await _alias(project.store, alias, settings, there.at, there.trainable.get(alias.id))
            for alias in await get_aliases(project)
        ],
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


async def _alias(
    store: Store, alias: AliasView, settings: LoopSettings, at: float, trainable: TrainableGroups | None = None
) -> AliasFacts:
    counts = await lookup.count_groups(store, alias.id, without=(GroupState.SCORED,))
    closes_s = None
    if counts.get(GroupState.OPEN):
        closes_s = await next_close_in(Project(store, alias.project_id), alias.id, settings.recorder)
    lacking = await baselines.list_lacking_recipes(store, alias.id)
    if trainable is None:
        trainable = await claims.waiting_for_training(store, alias.id, lacking, settings.learn.max_age_s)
    share, most = settings.trainer.follow_up_share, settings.trainer.max_groups
    trainable = await apply_share(store, alias.id, trainable, share, most, lacking, settings.learn.max_age_s)
    if trainable.groups + trainable.held:
        counts[GroupState.SCORED] = trainable.groups + trainable.held
    running = await campaigns.list_running(store, alias.id)
    undecided = await versions.find_pending_version(store, alias.id)
    finding = await _finding(store, alias)
    has_learner = bool(await leases.list_holders(Project(store, alias.project_id), leases.trainer_lease(alias.name)))
    return AliasFacts(
        alias=alias.name,
        groups=counts,
        trainable=trainable,
        closes_at=None if closes_s is None else at + closes_s,
        undecided=None if undecided is None else (undecided.name, undecided.state),
        finding=finding,
        refused=await refusals.list_refused_groups(store, alias.id, of_campaigns=False),
        campaign=running[0].name if running else None,
        steps_at=await _steps_at(store, alias.id, settings.learn, at),
        step_running=has_learner and await _has_running_step(store, alias.id),
        lacking=lacking,
        has_learner=has_learner,
        schedule_steps=await _schedule_steps(store, alias, settings),
        pauses=await read_pauses(Project(store, alias.project_id), settings, at),
    )


async def read_pauses(project: Project, settings: LoopSettings, at: float) -> PauseBudget | None:
    """Return what pauses for training cost, and when the next may begin; None if the engine is not paused."""
    if settings.max_pause_share is None:
        return None
    return gpu_pauses.read_budget(await gpu_pauses.list_pauses(project), settings.max_pause_share, at)


async def _schedule_steps(store: Store, alias: AliasView, settings: LoopSettings) -> int:
    if settings.trainer.schedule_end is None:
        return 0
    return await training_steps.count_schedule_steps(store, alias.id, None)


async def _finding(store: Store, alias: AliasView) -> tuple[str, LiveFinding] | None:
    """Return the live version and what a learner found about it, if nobody has decided about it."""
    async with store.read() as conn:
        live = (await conn.execute(select(aliases.c.live_version_id).where(aliases.c.id == alias.id))).scalar_one()
        found = None if live is None else await live_findings.find_undecided(conn, live)
    return None if found is None else ((await versions.get_version(store, live)).name, found)


async def _steps_at(store: Store, alias_id: str, learn: LearnSettings, at: float) -> list[float]:
    return [] if learn.steps_per_hour is None else await budgets.list_step_times(store, alias_id, at - HOUR_S)


async def _has_running_step(store: Store, alias_id: str) -> bool:
    running = exists().where(steps.c.alias_id == alias_id, steps.c.state == StepState.RUNNING)
    async with store.read() as conn:
        return bool((await conn.execute(select(running))).scalar_one())

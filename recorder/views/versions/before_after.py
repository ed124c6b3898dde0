"""The same task before and after: groups of one scenario (or of one implicit task) by two versions, with their rewards.

Owns: which groups are set beside each other. Refuses: testing whether one version is better (`proxy.gate`), and
conversations (`recorder.views`).

Only so many of the newest groups of each version's time are looked at, so that a page may ask of any store.

How two versions answered one task: the runs of a group of each, with how each ended and what it was worth.

Owns: this view, bounded. Refuses: whole conversations (a run's page), and where attempts of one group part
(`recorder.views.comparison`).

One scenario of a campaign by two versions: which runs show best what changed.

Owns: finding a campaign's runs by two versions, comparing what may be compared, and which run stands for its side.
Refuses: conversations (`recorder.views`), and tasks of live traffic (`recorder.views.versions.before_after`).

Rewards are compared within one group, or where they say something outside it (`scores.absolute`): a ranking judge's
numbers say nothing beside those of another group.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, and_, func, literal, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import NotFound
from recorder.ids import first_id_at
from recorder.queue.campaigns import CampaignView, list_group_ids
from recorder.queue.judging.scores import REWARD, score_rewards
from recorder.registry.versions import VersionView
from recorder.states import TrajectoryState, VersionState
from recorder.store.database import Store
from recorder.store.schema import calls, groups, scenarios, score_parts, scores, trajectories
from recorder.views.lists.columns import first_words
from recorder.views.trajectories.shapes import GroupView, TrajectoryView
from recorder.views.trajectories.transcripts import load_groups

LOOKED_AT: Final = 3000  # groups, of each version's time
TASKS: Final = 20
_AFTER_S: Final = 3600.0  # that a retired version is still met: by open runs, and by its own evaluation
_EACH: Final = 6  # groups of one task and version that are told


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """One group. `reward`: the mean of its runs, if it was judged; `runs`: how many have one."""

    id: str
    external_id: str | None
    state: str
    reward: float | None
    best: float | None
    trajectories: int
    opened_at: float


@dataclass(frozen=True, slots=True)
class SharedTask:
    """A task that both versions attempted. `scenario` None: an implicit one, known by `key`. Newest groups first."""

    key: str
    scenario: str | None
    task: str | None  # how its user's first message begins, of an implicit one
    before: Sequence[TaskGroup]
    after: Sequence[TaskGroup]
    reward_before: float | None
    reward_after: float | None

    @property
    def rise(self) -> float | None:
        """By how much the mean reward rose."""
        before, after = self.reward_before, self.reward_after
        return None if before is None or after is None else after - before


async def list_shared_tasks(store: Store, before: VersionView, after: VersionView) -> list[SharedTask]:
    """The tasks of two versions of an alias, those whose reward changed most first."""
    async with store.read() as conn:
        old, new = await _shared(conn, before, after)
        rewards = await _rewards(
            conn, [one.current_score_id for side in (old, new) for rows in side.values() for one in rows]
        )
        words = await _words(conn, [rows[0].id for rows in new.values() if rows[0].scenario is None])
    tasks = [_task(key, old[key], new[key], rewards, words) for key in new]
    return sorted(tasks, key=lambda task: -abs(task.rise or 0.0))


async def _shared(
    conn: AsyncConnection, before: VersionView, after: VersionView
) -> tuple[Mapping[str, list[Any]], Mapping[str, list[Any]]]:
    """The newest groups of each version, newest first, by the tasks that both attempted last."""
    old, new = _numbered(before).cte("old"), _numbered(after).cte("new")
    shared = select(new.c.key).join(old, and_(old.c.key == new.c.key, old.c.place == 1)).where(new.c.place == 1)
    keys = shared.order_by(new.c.id.desc()).limit(TASKS).subquery()
    sides = [
        select(side, literal(name).label("side")).where(side.c.key.in_(select(keys.c.key)), side.c.place <= _EACH)
        for name, side in (("old", old), ("new", new))
    ]
    both = union_all(*sides).subquery()
    found: dict[str, defaultdict[str, list[Any]]] = {"old": defaultdict(list), "new": defaultdict(list)}
    for row in await conn.execute(select(both).order_by(both.c.id.desc())):
        found[row.side][row.key].append(row)
    return found["old"], found["new"]


def _numbered(version: VersionView) -> Select[Any]:
    """A version's groups that are of a known task, `place` counting each task's from the newest."""
    g = groups.c
    retired = version.state is VersionState.RETIRED
    until = first_id_at("grp", version.state_at + _AFTER_S) if retired else "grp_~"  # ids begin with the time
    lived = (g.project_id == version.project_id, g.id < until)
    newest = select(groups).where(*lived).order_by(g.id.desc()).limit(LOOKED_AT).subquery().c
    key = func.coalesce(scenarios.c.external_id, newest.implicit_key)
    place = func.row_number().over(partition_by=key, order_by=newest.id.desc())
    columns = (newest.id, newest.external_id, newest.state, newest.current_score_id, newest.opened_at)
    named = (scenarios.c.external_id.label("scenario"), key.label("key"), place.label("place"))
    query = select(*columns, *named).outerjoin(scenarios, scenarios.c.id == newest.scenario_id)
    return query.where(newest.version_id == version.id, key.is_not(None))


async def _rewards(conn: AsyncConnection, score_ids: Iterable[str | None]) -> Mapping[str, Any]:
    wanted = [id_ for id_ in score_ids if id_ is not None]
    value = score_parts.c.value
    query = select(score_parts.c.score_id, func.avg(value), func.max(value), func.count(value))
    query = query.where(score_parts.c.score_id.in_(wanted), score_parts.c.part == REWARD)
    return {row[0]: row[1:] for row in await conn.execute(query.group_by(score_parts.c.score_id))}


async def _words(conn: AsyncConnection, group_ids: Sequence[str]) -> Mapping[str, str]:
    """How the tasks of groups begin."""
    query = select(trajectories.c.group_id, func.min(trajectories.c.id)).where(trajectories.c.group_id.in_(group_ids))
    runs = {str(run): str(group) for group, run in await conn.execute(query.group_by(trajectories.c.group_id))}
    return {runs[run]: words for run, words in (await first_words(conn, list(runs))).items()}


def _task(
    key: str, old: Sequence[Any], new: Sequence[Any], rewards: Mapping[str, Any], words: Mapping[str, str]
) -> SharedTask:
    before, after = ([_tried(row, rewards) for row in side] for side in (old, new))
    return SharedTask(key, new[0].scenario, words.get(new[0].id), before, after, _mean(before), _mean(after))


def _tried(row: Any, rewards: Mapping[str, Any]) -> TaskGroup:
    mean, best, runs = rewards.get(row.current_score_id, (None, None, 0))
    return TaskGroup(row.id, row.external_id, row.state, mean, best, runs, row.opened_at)


def _mean(tried: Sequence[TaskGroup]) -> float | None:
    """Of all runs that have a reward."""
    known = [(one.reward, one.trajectories) for one in tried if one.reward is not None]
    runs = sum(number for _, number in known)
    return sum(mean * number for mean, number in known) / runs if runs else None


RUNS: Final = 8  # of each group, the best
MAX_CHARS: Final = 4000  # of an answer


@dataclass(frozen=True, slots=True)
class ScenarioAttempt:
    """One run. `answer`: the last thing that the model said, or its beginning (`cut`)."""

    id: str
    external_id: str | None
    state: str
    reward: float | None
    turns: int
    answer: str | None
    cut: bool


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """The newest group of each side on a task, its attempts in order of reward. `task`: the task's key."""

    task: str
    before: Sequence[ScenarioAttempt]
    after: Sequence[ScenarioAttempt]


async def compare_answers(store: Store, tasks: Sequence[SharedTask], key: str) -> AnswerComparison:
    """Of one of these tasks. Raises NotFound."""
    task = next((one for one in tasks if one.key == key), None)
    if task is None:
        raise NotFound(f"no task {key[:200]!r} was attempted by both versions, of the newest groups of their time")
    groups = await load_groups(store, [task.before[0].id, task.after[0].id])
    before, after = [await _attempts(store, group) for group in groups]
    return AnswerComparison(key, before, after)


async def _attempts(store: Store, group: GroupView) -> list[ScenarioAttempt]:
    worth = await score_rewards(store, group.current_score_id) if group.current_score_id is not None else {}
    told = [_attempt(member, worth) for member in group.members]
    return sorted(told, key=lambda one: (one.reward is None, -(one.reward or 0.0)))[:RUNS]


def _attempt(run: TrajectoryView, worth: Mapping[str, float | None]) -> ScenarioAttempt:
    answer = run.answer
    return ScenarioAttempt(
        id=run.id,
        external_id=run.external_id,
        state=run.state,
        reward=worth.get(run.id),
        turns=sum(message.get("role") == "assistant" for message in run.messages),
        answer=answer[:MAX_CHARS] if answer is not None else None,
        cut=answer is not None and len(answer) > MAX_CHARS,
    )


_TRAINED_ON: Final = "train"


@dataclass(frozen=True, slots=True)
class TrajectoryAttempt:
    """One run at a scenario. `absolute`: its reward says something beside runs of other groups."""

    scenario: str
    split: str
    version_id: str
    group: str
    trajectory: str
    reward: float | None
    absolute: bool


@dataclass(frozen=True, slots=True)
class Improvement:
    """One scenario by both versions: the run nearest to its side's mean of each.

    `rise`: by how much the mean reward rose; None: the rewards cannot be compared, or there are none.
    """

    scenario: str
    split: str
    before: TrajectoryAttempt
    after: TrajectoryAttempt
    rise: float | None


async def version_attempts(store: Store, campaign: CampaignView, version_id: str) -> list[TrajectoryAttempt]:
    """The completed runs of a campaign that a version answered, newest first.

    Which it was says the run's last answer: a campaign asks versions by name, and what a run is pinned to is another.
    """
    async with store.read() as conn:
        rows = await conn.execute(_query(campaign, version_id))
        return [TrajectoryAttempt(r[0], r[1], r[2], r[3], r[4], r[5], bool(r[6])) for r in rows]


def _query(campaign: CampaignView, version_id: str) -> Select[Any]:
    t, current = trajectories.c, groups.c.current_score_id
    of_run = (score_parts.c.score_id == current, score_parts.c.trajectory_id == t.id, score_parts.c.part == REWARD)
    columns = (scenarios.c.external_id, scenarios.c.split, calls.c.version_id, t.group_id, t.id)
    return (
        select(*columns, score_parts.c.value, scores.c.absolute)
        .select_from(trajectories)
        .join(calls, calls.c.id == t.leaf_call_id)
        .join(groups, groups.c.id == t.group_id)
        .join(scenarios, scenarios.c.id == groups.c.scenario_id)
        .outerjoin(scores, scores.c.id == current)
        .outerjoin(score_parts, and_(*of_run))
        .where(
            calls.c.version_id == version_id,
            t.state == TrajectoryState.COMPLETED,
            t.group_id.in_(list_group_ids(campaign)),
        )
        .order_by(t.id.desc())
        .limit(LOOKED_AT)
    )


def most_improved_scenarios(
    before: Sequence[TrajectoryAttempt], after: Sequence[TrajectoryAttempt], most: int
) -> list[Improvement]:
    """Scenarios that both attempted: those whose reward rose first, held-out ones before those trained on, then by
    how much it rose; at last those that cannot be compared.
    """
    old, new = _by_scenario(before), _by_scenario(after)
    found = [_beside(old[key], new[key]) for key in old if key in new]
    return sorted(found, key=_order)[:most]


def _order(one: Improvement) -> tuple[bool, bool, bool, float, str]:
    rise = one.rise if one.rise is not None else 0.0
    return one.rise is None, rise <= 0, one.split == _TRAINED_ON, -rise, one.scenario


def _by_scenario(runs: Iterable[TrajectoryAttempt]) -> Mapping[tuple[str, str], list[TrajectoryAttempt]]:
    found: defaultdict[tuple[str, str], list[TrajectoryAttempt]] = defaultdict(list)
    for run in runs:
        found[run.split, run.scenario].append(run)
    return found


def _beside(old: Sequence[TrajectoryAttempt], new: Sequence[TrajectoryAttempt]) -> Improvement:
    together = {run.group for run in old} & {run.group for run in new}
    if together:
        old, new = ([run for run in side if run.group in together] for side in (old, new))
    comparable = bool(together) or all(run.absolute for run in (*old, *new) if run.reward is not None)
    was, now = _mean_reward(old), _mean_reward(new)
    rise = now - was if comparable and was is not None and now is not None else None
    before, after = _typical(old, was), _typical(new, now)
    return Improvement(after.scenario, after.split, before, after, rise)


def _mean_reward(runs: Iterable[TrajectoryAttempt]) -> float | None:
    rewards = [run.reward for run in runs if run.reward is not None]
    return statistics.fmean(rewards) if rewards else None


def _typical(runs: Sequence[TrajectoryAttempt], mean: float | None) -> TrajectoryAttempt:
    """The run nearest to the mean; the oldest of several."""

    def far(run: TrajectoryAttempt) -> tuple[bool, float, str]:
        return run.reward is None, abs((run.reward or 0.0) - (mean or 0.0)), run.trajectory

    return min(runs, key=far)

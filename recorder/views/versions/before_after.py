"""Compare two versions at the same tasks: groups of live traffic, their answers, and scenarios of a campaign.

Owns: which groups of two versions are compared, the answers of both to one task, and which trajectories show best what
changed at a scenario. Refuses: testing whether one version is better (`proxy.gate`), whole conversations
(`recorder.views.trajectory_detail`), and where attempts of one group diverge (`recorder.views.comparison`).

Every query reads a bounded number of the newest rows, so that a page is fast with any store. Rewards are compared
within one group, or if they are absolute (`scores.absolute`): the numbers of a ranking judge have no meaning outside
their group.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, case, func, literal, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import NotFound
from recorder.ids import first_id_at
from recorder.queue.campaigns import CampaignView, list_group_ids
from recorder.queue.judging.scores import REWARD, is_ranked, score_rewards
from recorder.registry.versions import VersionView
from recorder.states import TrajectoryState, VersionState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import calls, groups, scenarios, score_parts, scores, trajectories
from recorder.views.lists.titles import group_tasks
from recorder.views.trajectories.shapes import GroupView, TrajectoryView
from recorder.views.trajectories.transcripts import load_groups

NEWEST_ROWS: Final = 3000  # groups from the time of each version, or trajectories of a campaign
TASKS: Final = 20
_SERVED_AFTER_S: Final = 3600.0  # a retired version still answers: open trajectories, and its own evaluation
_GROUPS_PER_TASK: Final = 6  # groups of one task and version in the result


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """One group. `reward`: the mean over its trajectories, None before it is judged; `trajectories`: how many have one.

    `best` is the highest reward; `opened_at` is in unix seconds.
    """

    id: str
    external_id: str | None
    state: str
    reward: float | None
    best: float | None
    trajectories: int
    opened_at: float


@dataclass(frozen=True, slots=True)
class SharedTask:
    """A task that both versions attempted, newest groups first. `scenario` is None for an implicit task."""

    key: str
    scenario: str | None
    task: str | None  # the beginning of the user's first message, for an implicit task
    before: Sequence[TaskGroup]
    after: Sequence[TaskGroup]
    reward_before: float | None
    reward_after: float | None
    relative: bool  # a judge's ranking has a part in these rewards: they do not compare the versions

    @property
    def rise(self) -> float | None:
        """The mean reward after, less the one before; None if one is unknown or they cannot be compared."""
        before, after = self.reward_before, self.reward_after
        return None if before is None or after is None or self.relative else after - before


async def list_shared_tasks(store: Store, before: VersionView, after: VersionView) -> list[SharedTask]:
    """Return the tasks that two versions of an alias both attempted, largest change of the mean reward first."""
    async with store.read() as conn:
        old, new = await _shared(conn, before, after)
        rewards = await _rewards(
            conn, [one.current_score_id for side in (old, new) for rows in side.values() for one in rows]
        )
        words = await group_tasks(conn, [rows[0].id for rows in new.values() if rows[0].scenario is None])
    tasks = [_task(key, old[key], new[key], rewards, words) for key in new]
    return sorted(tasks, key=lambda task: -abs(task.rise or 0.0))


async def _shared(
    conn: AsyncConnection, before: VersionView, after: VersionView
) -> tuple[Mapping[str, list[Any]], Mapping[str, list[Any]]]:
    """Return the newest groups of each version, newest first, by task, for the tasks both attempted most recently."""
    old, new = _numbered(before).cte("old"), _numbered(after).cte("new")
    shared = select(new.c.key).join(old, and_(old.c.key == new.c.key, old.c.place == 1)).where(new.c.place == 1)
    keys = shared.order_by(new.c.id.desc()).limit(TASKS).subquery()
    sides = [
        select(side, literal(name).label("side")).where(
            side.c.key.in_(select(keys.c.key)), side.c.place <= _GROUPS_PER_TASK
        )
        for name, side in (("old", old), ("new", new))
    ]
    both = union_all(*sides).subquery()
    found: dict[str, defaultdict[str, list[Any]]] = {"old": defaultdict(list), "new": defaultdict(list)}
    for row in await conn.execute(select(both).order_by(both.c.id.desc())):
        found[row.side][row.key].append(row)
    return found["old"], found["new"]


def _numbered(version: VersionView) -> Select[Any]:
    """Select a version's groups that have a known task; `place` numbers each task's groups from the newest."""
    g = groups.c
    retired = version.state is VersionState.RETIRED
    until = first_id_at("grp", version.state_at + _SERVED_AFTER_S) if retired else "grp_~"  # ids begin with the time
    in_use = (sql.without_index(g.project_id) == version.project_id, g.id < until)  # by id: the newest, without a sort
    newest = select(groups).where(*in_use).order_by(g.id.desc()).limit(NEWEST_ROWS).subquery().c
    key = func.coalesce(scenarios.c.external_id, newest.implicit_key)
    place = func.row_number().over(partition_by=key, order_by=newest.id.desc())
    columns = (newest.id, newest.external_id, newest.state, newest.current_score_id, newest.opened_at)
    named = (scenarios.c.external_id.label("scenario"), key.label("key"), place.label("place"))
    query = select(*columns, *named).outerjoin(scenarios, scenarios.c.id == newest.scenario_id)
    return query.where(key.is_not(None), _version_of(newest) == version.id)


def _version_of(group: Any) -> ColumnElement[str]:
    """The version that a group is pinned to, else the version of all its members; null where they have several."""
    one, other = func.min(trajectories.c.version_id), func.max(trajectories.c.version_id)
    of_members = select(case((one == other, one))).where(trajectories.c.group_id == group.id)
    return func.coalesce(group.version_id, of_members.correlate(group.id.table).scalar_subquery())


async def _rewards(conn: AsyncConnection, score_ids: Iterable[str | None]) -> Mapping[str, Any]:
    known_ids = [id_ for id_ in score_ids if id_ is not None]
    value = score_parts.c.value
    ranked = is_ranked().label("ranked")
    query = (
        select(score_parts.c.score_id, func.avg(value), func.max(value), func.count(value), ranked)
        .join(scores, scores.c.id == score_parts.c.score_id)
        .where(score_parts.c.score_id.in_(known_ids), score_parts.c.part == REWARD)
        .group_by(score_parts.c.score_id, ranked)
    )
    return {row[0]: row[1:] for row in await conn.execute(query)}


def _task(
    key: str, old: Sequence[Any], new: Sequence[Any], rewards: Mapping[str, Any], words: Mapping[str, str]
) -> SharedTask:
    before, after = ([_task_group(row, rewards) for row in side] for side in (old, new))
    return SharedTask(
        key=key,
        scenario=new[0].scenario,
        task=words.get(new[0].id),
        before=before,
        after=after,
        reward_before=_mean(before),
        reward_after=_mean(after),
        relative=any(rewards[id_][-1] for row in (*old, *new) if (id_ := row.current_score_id) in rewards),
    )


def _task_group(row: Any, rewards: Mapping[str, Any]) -> TaskGroup:
    mean, best, runs, _ = rewards.get(row.current_score_id, (None, None, 0, False))
    return TaskGroup(row.id, row.external_id, row.state, mean, best, runs, row.opened_at)


def _mean(task_groups: Sequence[TaskGroup]) -> float | None:
    """Return the mean reward over all trajectories that have one."""
    known = [(one.reward, one.trajectories) for one in task_groups if one.reward is not None]
    runs = sum(number for _, number in known)
    return sum(mean * number for mean, number in known) / runs if runs else None


RUNS: Final = 8  # trajectories of each group, the best ones
MAX_CHARS: Final = 4000  # characters of an answer


@dataclass(frozen=True, slots=True)
class ScenarioAttempt:
    """One trajectory. `answer`: the model's last message, or only its beginning if `cut`."""

    id: str
    external_id: str | None
    state: str
    reward: float | None
    turns: int
    answer: str | None
    cut: bool


@dataclass(frozen=True, slots=True)
class AnswerComparison:
    """The newest group of each version at a task, with attempts in order of reward. `task`: the task's key."""

    task: str
    before: Sequence[ScenarioAttempt]
    after: Sequence[ScenarioAttempt]


async def compare_answers(store: Store, tasks: Sequence[SharedTask], key: str) -> AnswerComparison:
    """Return the answers of both versions to the task with that key. Raises NotFound."""
    task = next((one for one in tasks if one.key == key), None)
    if task is None:
        raise NotFound(f"no task {key[:200]!r} was attempted by both versions in the newest groups of their time")
    groups = await load_groups(store, [task.before[0].id, task.after[0].id])
    before, after = [await _attempts(store, group) for group in groups]
    return AnswerComparison(key, before, after)


async def _attempts(store: Store, group: GroupView) -> list[ScenarioAttempt]:
    rewards = await score_rewards(store, group.current_score_id) if group.current_score_id is not None else {}
    attempts = [_attempt(member, rewards) for member in group.members]
    return sorted(attempts, key=lambda one: (one.reward is None, -(one.reward or 0.0)))[:RUNS]


def _attempt(view: TrajectoryView, rewards: Mapping[str, float | None]) -> ScenarioAttempt:
    answer = view.answer
    return ScenarioAttempt(
        id=view.id,
        external_id=view.external_id,
        state=view.state,
        reward=rewards.get(view.id),
        turns=sum(message.get("role") == "assistant" for message in view.messages),
        answer=answer[:MAX_CHARS] if answer is not None else None,
        cut=answer is not None and len(answer) > MAX_CHARS,
    )


_TRAINED_ON: Final = "train"


@dataclass(frozen=True, slots=True)
class TrajectoryAttempt:
    """One trajectory at a scenario. `absolute`: its reward can be compared with those of other groups."""

    scenario: str
    split: str
    version_id: str
    group: str
    trajectory: str
    reward: float | None
    absolute: bool


@dataclass(frozen=True, slots=True)
class Improvement:
    """One scenario by both versions, with each version's trajectory that is nearest to that version's mean reward.

    `rise` is the mean reward after, less the one before; None if there are no rewards or they cannot be compared.
    `means` are these two, and `attempts` the numbers of trajectories with a reward behind them.
    """

    scenario: str
    split: str
    before: TrajectoryAttempt
    after: TrajectoryAttempt
    rise: float | None
    means: tuple[float | None, float | None] = (None, None)
    attempts: tuple[int, int] = (0, 0)


async def version_attempts(store: Store, campaign: CampaignView, version_id: str) -> list[TrajectoryAttempt]:
    """Return the completed trajectories of a campaign that a version answered, newest first.

    The version is that of the last call: a campaign requests versions by name, whatever the trajectory is pinned to.
    """
    async with store.read() as conn:
        rows = await conn.execute(_query(campaign, version_id))
        return [TrajectoryAttempt(r[0], r[1], r[2], r[3], r[4], r[5], bool(r[6])) for r in rows]


def _query(campaign: CampaignView, version_id: str) -> Select[Any]:
    t, current = trajectories.c, groups.c.current_score_id
    reward_part = (score_parts.c.score_id == current, score_parts.c.trajectory_id == t.id, score_parts.c.part == REWARD)
    columns = (scenarios.c.external_id, scenarios.c.split, calls.c.version_id, t.group_id, t.id)
    return (
        select(*columns, score_parts.c.value, scores.c.absolute)
        .select_from(trajectories)
        .join(calls, calls.c.id == t.leaf_call_id)
        .join(groups, groups.c.id == t.group_id)
        .join(scenarios, scenarios.c.id == groups.c.scenario_id)
        .outerjoin(scores, scores.c.id == current)
        .outerjoin(score_parts, and_(*reward_part))
        .where(
            calls.c.version_id == version_id,
            t.state == TrajectoryState.COMPLETED,
            t.group_id.in_(list_group_ids(campaign)),
        )
        .order_by(t.id.desc())
        .limit(NEWEST_ROWS)
    )


def most_improved_scenarios(
    before: Sequence[TrajectoryAttempt], after: Sequence[TrajectoryAttempt], most: int
) -> list[Improvement]:
    """Return the scenarios that both versions attempted, at most `most`.

    Those where the reward rose come first (held-out scenarios before trained ones, larger rises first), those that
    cannot be compared come last.
    """
    old, new = _by_scenario(before), _by_scenario(after)
    found = [_improvement(old[key], new[key]) for key in old if key in new]
    return sorted(found, key=_order)[:most]


def _order(one: Improvement) -> tuple[bool, bool, bool, float, str]:
    rise = one.rise if one.rise is not None else 0.0
    return one.rise is None, rise <= 0, one.split == _TRAINED_ON, -rise, one.scenario


def _by_scenario(runs: Iterable[TrajectoryAttempt]) -> Mapping[tuple[str, str], list[TrajectoryAttempt]]:
    found: defaultdict[tuple[str, str], list[TrajectoryAttempt]] = defaultdict(list)
    for run in runs:
        found[run.split, run.scenario].append(run)
    return found


def _improvement(old: Sequence[TrajectoryAttempt], new: Sequence[TrajectoryAttempt]) -> Improvement:
    shared_groups = {run.group for run in old} & {run.group for run in new}
    if shared_groups:
        old, new = ([run for run in side if run.group in shared_groups] for side in (old, new))
    comparable = bool(shared_groups) or all(run.absolute for run in (*old, *new) if run.reward is not None)
    mean_before, mean_after = _mean_reward(old), _mean_reward(new)
    rise = mean_after - mean_before if comparable and mean_before is not None and mean_after is not None else None
    before, after = _typical(old, mean_before), _typical(new, mean_after)
    means, attempts = (mean_before, mean_after), (len(_rewards_of(old)), len(_rewards_of(new)))
    return Improvement(after.scenario, after.split, before, after, rise, means, attempts)


def _mean_reward(runs: Iterable[TrajectoryAttempt]) -> float | None:
    rewards = _rewards_of(runs)
    return statistics.fmean(rewards) if rewards else None


def _rewards_of(runs: Iterable[TrajectoryAttempt]) -> list[float]:
    return [run.reward for run in runs if run.reward is not None]


def _typical(runs: Sequence[TrajectoryAttempt], mean: float | None) -> TrajectoryAttempt:
    """Return the trajectory nearest to the mean, the oldest of several."""

    def distance(run: TrajectoryAttempt) -> tuple[bool, float, str]:
        return run.reward is None, abs((run.reward or 0.0) - (mean or 0.0)), run.trajectory

    return min(runs, key=distance)

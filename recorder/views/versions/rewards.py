"""The reward of a version: the one figure that status, metrics, commands, API, MCP server and pages show.

Owns: which trajectories count for a version, the mean over them, and its interval. Refuses: the rewards of a step
(`recorder.views.versions.steps`), held-out measures (`recorder.views.versions.ancestry`), and comparing versions.

A trajectory counts for a version if an agent made it for training (purpose train; origin live, campaign or replay), it
completed, every sampled call of its main path carries this version, and a judge or function gave its current reward.
Gate pairs, shadow answers and held-out scenarios count for none, and neither does a trajectory of several versions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, Select, Subquery, and_, case, cast, exists, func, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.judging.scores import REWARD, is_ranked
from recorder.states import CallKind, Origin, Purpose, TrajectoryState
from recorder.stats.means import Cluster, Interval, clustered_interval
from recorder.store.schema import aliases, calls, choices, groups, score_parts, scores, trajectories, versions

NEWEST: Final = 2000  # trajectories of a version: bounds the cost of a page
AT_ONCE: Final = 50  # versions in one query: SQLite takes at most 500 terms
ORIGINS: Final = (Origin.LIVE, Origin.CAMPAIGN, Origin.REPLAY)


@dataclass(frozen=True, slots=True)
class VersionReward:
    """The mean reward of the trajectories that a version sampled, its newest 2,000, with a 95 % interval by group.

    `relative`: a judge's ranking has a part in it. It then compares trajectories of one group only, and no versions.
    """

    alias: str
    version: str
    trajectories: int
    groups: int
    mean: float
    interval: Interval | None  # None: one group says nothing about others
    relative: bool


async def load_rewards(conn: AsyncConnection, version_ids: Sequence[str]) -> dict[str, VersionReward]:
    """Return the reward of each of these versions by its id, without those that have none."""
    found = {}
    for start in range(0, len(version_ids), AT_ONCE):
        rows = (await conn.execute(_by_group(version_ids[start : start + AT_ONCE]))).all()
        for version_id, of_version in groupby(rows, key=lambda row: row.id):
            by_group = list(of_version)
            one = by_group[0]
            found[str(version_id)] = _reward(str(one.alias), f"{one.alias}@{one.version}", by_group)
    return found


def _reward(alias: str, version: str, by_group: Sequence[Any]) -> VersionReward:
    clusters = [Cluster(int(row.number), float(row.total)) for row in by_group]
    number = sum(one.number for one in clusters)
    return VersionReward(
        alias=alias,
        version=version,
        trajectories=number,
        groups=len(clusters),
        mean=sum(one.total for one in clusters) / number,
        interval=clustered_interval(
            clusters, min(float(row.least) for row in by_group), max(float(row.most) for row in by_group)
        ),
        relative=any(row.ranked for row in by_group),
    )


def _by_group(version_ids: Sequence[str]) -> Select[Any]:
    """Select number, sum, smallest and largest of the rewards that count for each version, by version and group."""
    newest = union_all(*(select(_newest(version_id)) for version_id in version_ids)).subquery()
    value: Any = newest.c.value
    of: list[ColumnElement[Any]] = [versions.c.id, aliases.c.name.label("alias"), versions.c.number.label("version")]
    columns: list[ColumnElement[Any]] = [
        func.count().label("number"),
        func.sum(value).label("total"),
        func.min(value).label("least"),
        func.max(value).label("most"),
        func.max(newest.c.ranked).label("ranked"),
    ]
    named = newest.join(versions, versions.c.id == newest.c.version_id)
    named = named.join(aliases, aliases.c.id == versions.c.alias_id)
    query = select(*of, *columns).select_from(named).group_by(*of, newest.c.group_id)
    return query.order_by(aliases.c.name, versions.c.number, versions.c.id)


def _newest(version_id: str) -> Subquery:
    """Select the newest rewards that count for a version."""
    t, p = trajectories.c, score_parts.c
    return (
        select(t.version_id, t.group_id, p.value, cast(is_ranked(), Integer).label("ranked"))
        .select_from(trajectories)
        .join(groups, groups.c.id == t.group_id)
        .join(scores, scores.c.id == groups.c.current_score_id)
        .join(score_parts, and_(p.score_id == scores.c.id, p.trajectory_id == t.id, p.part == REWARD))
        .where(t.version_id == version_id, t.purpose == Purpose.TRAIN, t.origin.in_(ORIGINS))
        .where(t.state == TrajectoryState.COMPLETED, p.value.is_not(None), ~p.unasked)
        .where(_all_sampled_by(version_id))
        .order_by(t.id.desc())
        .limit(NEWEST)
        .subquery()
    )


def _all_sampled_by(version_id: str) -> ColumnElement[bool]:
    """Whether a trajectory has sampled calls on its main path, all by this version. One look at each call.

    A sibling (`recorder.queue.groups.same_request`) has no call of its own: its leaf is its main path.
    """
    by = case((calls.c.version_id == version_id, 1), else_=0)
    main_path = (
        calls.c.trajectory_id == trajectories.c.id,
        calls.c.turn_kind == CallKind.MAIN,
        calls.c.superseded_by.is_(None),
        exists().where(choices.c.call_id == calls.c.id),
    )
    own = select(func.min(by)).where(*main_path).correlate(trajectories).scalar_subquery()
    leaf = select(by).where(calls.c.id == trajectories.c.leaf_call_id).correlate(trajectories).scalar_subquery()
    return func.coalesce(own, leaf) == 1

"""When the next open group closes if nothing more happens: what somebody who waits for groups wants to hear.

Owns: that forecast. Refuses: closing anything (`recorder.upkeep.sweep`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Select, exists, func, select

from recorder.groups.idle_trajectories import idle_trajectories
from recorder.groups.lookup import is_counted
from recorder.groups.readiness import GroupFacts, MemberCounts, close_time
from recorder.settings import RecorderSettings
from recorder.states import CallState, GroupState, Origin, TrajectoryState
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import calls, groups, trajectories

MOST: Final = 200  # open groups that are looked at, those that were joined first


async def next_close_in(project: Project, alias_id: str, settings: RecorderSettings) -> float | None:
    """In how many seconds `next_close_at` is; 0 where it is past."""
    closes = await next_close_at(project, settings, alias_id)
    if closes is None:
        return None
    async with project.store.read() as conn:
        return max(0.0, closes - await sql.clock(conn))


async def next_close_at(project: Project, settings: RecorderSettings, alias_id: str | None = None) -> float | None:
    """When the next open group of an alias, or of any, closes, of no campaign (unix seconds); None: nobody can tell.

    A group in which a model answers now, or somebody else ends the runs, is not counted on.
    """
    async with project.store.read() as conn:
        rows: Sequence[Any] = (await conn.execute(_open_groups(project.id, alias_id, settings))).all()
    moments = (
        closes_at(
            GroupFacts(row.declared_size, row.joined_at, row.last_call_at),
            MemberCounts(row.running, row.counted),
            row.members_end,
            settings,
        )
        for row in rows
    )
    return min((moment for moment in moments if moment is not None), default=None)


def closes_at(
    group: GroupFacts, counts: MemberCounts, members_end: float | None, settings: RecorderSettings
) -> float | None:
    """When an open group closes (unix seconds), given when the last of its running members ends (None: none runs).

    It is `readiness.close_time` of now, or of the time when they have ended, whichever comes first.
    """
    as_it_is = close_time(group, counts, settings)
    if members_end is None:
        return as_it_is
    ended = close_time(group, replace(counts, running=0), settings)
    later = None if ended is None else max(members_end, ended)
    return min((moment for moment in (as_it_is, later) if moment is not None), default=None)


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

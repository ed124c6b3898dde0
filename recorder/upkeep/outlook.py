"""When the next open group closes if nothing more happens: what somebody who waits for groups wants to hear.

Owns: that forecast. Refuses: closing anything (`recorder.upkeep.sweep`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Select, exists, func, select

from recorder.groups.readiness import GroupFacts
from recorder.settings import RecorderSettings
from recorder.states import CallState, GroupState, Origin, TrajectoryState
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import calls, groups, trajectories
from recorder.upkeep.sweep import idle_runs

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
    return min(
        (
            closes_at(
                GroupFacts(row.declared_size, row.joined_at, row.last_call_at), row.members, row.runs_end, settings
            )
            for row in rows
        ),
        default=None,
    )


def closes_at(group: GroupFacts, members: int, runs_end: float | None, settings: RecorderSettings) -> float:
    """When an open group closes (unix seconds), given when the last of its open runs ends; None: none is open."""
    ends = max(runs_end or 0.0, group.joined_at)
    if members >= (settings.group_size if group.declared_size is None else group.declared_size):
        return ends
    if group.declared_size is not None:
        return group.last_call_at + settings.group_timeout_s
    return max(ends, group.joined_at + settings.group_window_s)


def _open_groups(project_id: str, alias_id: str | None, settings: RecorderSettings) -> Select[Any]:
    member = trajectories.c.group_id == groups.c.id
    is_open = trajectories.c.state == TrajectoryState.OPEN
    ends = idle_runs(project_id, settings)
    runs_end = select(func.max(ends.at)).where(member, *ends.these).correlate(groups).scalar_subquery()
    counted = (trajectories.c.state != TrajectoryState.ABANDONED, trajectories.c.selection.is_(None))
    members = select(func.count()).where(member, *counted).correlate(groups).scalar_subquery()
    answering = exists().where(member, calls.c.trajectory_id == trajectories.c.id, calls.c.state == CallState.OPEN)
    anothers = exists().where(member, is_open, trajectories.c.origin != Origin.LIVE)
    columns = (groups.c.declared_size, groups.c.joined_at, groups.c.last_call_at)
    return (
        select(*columns, members.label("members"), runs_end.label("runs_end"))
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

"""When the next open group closes if nothing more happens: what somebody who waits for groups wants to hear.

Owns: that forecast. Refuses: closing anything (`recorder.maintenance.sweep`).

What is waited for: how many groups stand in each state, and when time will move the next of them.

Owns: the question, and its sentence. Refuses: when an open group closes (`recorder.views.status.forecast`), moving
anything, and what each stage waits for (`recorder.views.status.stages`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import Select, exists, func, select

from recorder.base.terminal import format_duration
from recorder.queue.groups.idle_trajectories import idle_trajectories
from recorder.queue.groups.lookup import is_counted
from recorder.queue.groups.readiness import GroupFacts, MemberCounts, close_time
from recorder.settings import RecorderSettings
from recorder.states import CallState, GroupState, Origin, TrajectoryState
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import calls, groups, trajectories

MOST: Final = 200  # open groups that are looked at, those that were joined first


async def next_close_in(project: Project, alias_id: str, settings: RecorderSettings) -> float | None:
    """In how many seconds `next_close_at` is; 0 where it is past."""
    closes = await next_close_at(project, settings, alias_id)
    if closes is None:
        return None
    async with project.store.read() as conn:
        return max(0.0, closes - await sql.format_wait(conn))


async def next_close_at(project: Project, settings: RecorderSettings, alias_id: str | None = None) -> float | None:
    """When the next open group of an alias, or of any, closes, of no campaign (unix seconds); None: nobody can tell.

    A group in which a model answers now, or somebody else ends the runs, is not counted on.
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


_AFTER: Final = {GroupState.TRAINED, GroupState.LEFT_OUT}  # nothing is waited for
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
    """Groups on their way. `due`: state → when the next group of it is moved by time alone (unix seconds)."""

    at: float
    groups: Mapping[str, int]
    due: Mapping[str, float]
    open_trajectories: int

    def in_s(self, state: str, at: float | None = None) -> float | None:
        """In how many seconds that is, at a time (default: when it was asked)."""
        return max(0.0, self.due[state] - (self.at if at is None else at)) if state in self.due else None

    def sentence(self, at: float | None = None, *, times: bool = True) -> str:
        """`5 groups open, the next closes in 07:38; 2 scored`. Without `times` it changes only when the numbers do."""
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
    """Groups by state and their next times. A few short queries; fit for every change."""
    running = (trajectories.c.project_id == project.id, trajectories.c.state == TrajectoryState.OPEN)
    async with project.store.read() as conn:
        at = await sql.format_wait(conn)
        counted = select(groups.c.state, func.count(), func.min(groups.c.try_after))
        rows = list(await conn.execute(counted.where(groups.c.project_id == project.id).group_by(groups.c.state)))
        runs_open = int((await conn.execute(select(func.count()).where(*running))).scalar_one())
    counts = {str(state): int(number) for state, number, _ in rows}
    due = {str(state): float(again) for state, _, again in rows if state == GroupState.UNSCORED and again is not None}
    if counts.get(GroupState.OPEN) and (closes := await next_close_at(project, settings)) is not None:
        due[GroupState.OPEN] = closes
    return GroupForecast(at, counts, due, runs_open)


def groups_in_progress(counts: Mapping[str, int]) -> dict[str, int]:
    """Only the groups that somebody still works on or waits for."""
    return {state: count for state, count in counts.items() if state not in _AFTER}

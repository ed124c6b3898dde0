"""Count groups by state and predict when the next one changes state, if nothing else happens.

Owns: the counts with their sentence, and the forecast. Refuses: closing groups (`recorder.maintenance.sweep`), the
rules for closing (`recorder.queue.groups.readiness`), and what each stage waits for (`recorder.views.status.stages`).
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

MOST: Final = 200  # open groups that are read, those joined longest ago first


async def next_close_in(project: Project, alias_id: str, settings: RecorderSettings) -> float | None:
    """Return the seconds until `next_close_at`, 0 if it is past, or None if it is unknown."""
    closes = await next_close_at(project, settings, alias_id)
    if closes is None:
        return None
    async with project.store.read() as conn:
        return max(0.0, closes - await sql.format_wait(conn))


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


_FINAL_STATES: Final = {GroupState.TRAINED, GroupState.LEFT_OUT}
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
    """Return the counts without the final states."""
    return {state: count for state, count in counts.items() if state not in _FINAL_STATES}

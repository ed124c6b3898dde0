"""The trajectories that two versions served since a time, with the figures by which the canary test compares them.

Owns: which trajectories count (those whose group is judged, and those that ended without a group), and their order:
by the time their group became ready. Refuses: comparing them (`proxy.gate.canary`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, case, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.judging.scores import REWARD, is_ranked
from recorder.states import GroupState, Purpose, ToolOutcome, TrajectoryState
from recorder.store.database import Project
from recorder.store.schema import calls, choices, groups, score_parts, scores, tool_calls, trajectories

RUNS: Final = 4000  # of both versions together, the oldest: a test on the first N is valid
_ID_BYTES: Final = 4  # the size of a packed token id
_PAGE: Final = 200
_UNDECIDED: Final = (GroupState.OPEN, GroupState.READY, GroupState.JUDGING)


@dataclass(frozen=True, slots=True)
class ServedTrajectory:
    """One trajectory. A figure is None if the trajectory has no such figure.

    `ranked`: a judge model ranked it within its group. `tool_failures`: the share of tool calls that failed.
    `answer_tokens`: mean tokens of an answer. `call_s`: mean seconds of a call.
    """

    group_id: str
    version_id: str
    errored: bool
    reward: float | None
    ranked: bool
    tool_failures: float | None
    answer_tokens: float | None
    call_s: float | None


async def list_served_trajectories(
    project: Project, version_ids: Collection[str], since: float
) -> list[ServedTrajectory]:
    """Return the judged trajectories that are pinned to one of these versions and began at `since` (unix seconds) or
    later."""
    async with project.store.read() as conn:
        rows = list(await conn.execute(_runs(project.id, version_ids, since)))
    found: list[ServedTrajectory] = []
    for first in range(0, len(rows), _PAGE):
        page = rows[first : first + _PAGE]
        async with project.store.read() as conn:
            found += await _with_figures(conn, page)
    return found


def _runs(project_id: str, version_ids: Collection[str], since: float) -> Select[Any]:
    t, g = trajectories.c, groups.c
    ended = t.state.in_((TrajectoryState.COMPLETED, TrajectoryState.ERRORED))
    decided = or_(g.id.is_(None), g.state.not_in(_UNDECIDED))
    columns = (t.id, t.group_id, t.version_id, t.state, g.current_score_id)
    query = select(*columns).select_from(trajectories.outerjoin(groups, g.id == t.group_id))
    query = query.where(t.project_id == project_id, ended, t.version_id.in_(sorted(version_ids)), t.started_at >= since)
    query = query.where(t.purpose == Purpose.TRAIN, ~t.mixed, t.selection.is_(None), decided)
    return query.order_by(func.coalesce(g.ready_at, t.ended_at), t.group_id, t.id).limit(RUNS)


async def _with_figures(conn: AsyncConnection, rows: list[Any]) -> list[ServedTrajectory]:
    ids = [row.id for row in rows]
    score_ids = {row.current_score_id for row in rows if row.current_score_id}
    rewards, ranked = await _rewards(conn, score_ids), await _ranked(conn, score_ids)
    failures, lengths, seconds = await _failures(conn, ids), await _lengths(conn, ids), await _seconds(conn, ids)
    return [
        ServedTrajectory(
            group_id=row.group_id or row.id,
            version_id=row.version_id,
            errored=row.state == TrajectoryState.ERRORED,
            reward=rewards.get((row.current_score_id, row.id)),
            ranked=row.current_score_id in ranked,
            tool_failures=failures.get(row.id),
            answer_tokens=lengths.get(row.id),
            call_s=seconds.get(row.id),
        )
        for row in rows
    ]


async def _rewards(conn: AsyncConnection, score_ids: Collection[str]) -> Mapping[tuple[str, str], float]:
    p = score_parts.c
    query = select(p.score_id, p.trajectory_id, p.value)
    query = query.where(p.score_id.in_(sorted(score_ids)), p.part == REWARD, p.value.is_not(None))
    return {(row.score_id, row.trajectory_id): row.value for row in await conn.execute(query)}


async def _ranked(conn: AsyncConnection, score_ids: Collection[str]) -> Collection[str]:
    """Return the scores in which a judge's ranking has a part: they rank a trajectory within its group."""
    query = select(scores.c.id).where(scores.c.id.in_(sorted(score_ids)), is_ranked())
    return {id_ for (id_,) in await conn.execute(query)}


async def _failures(conn: AsyncConnection, ids: Collection[str]) -> Mapping[str, float]:
    failed = func.avg(case((tool_calls.c.outcome == ToolOutcome.COMPLETE, 0.0), else_=1.0))
    query = select(tool_calls.c.trajectory_id, failed).where(tool_calls.c.trajectory_id.in_(ids))
    rows = await conn.execute(query.group_by(tool_calls.c.trajectory_id))
    return {str(id_): float(value) for id_, value in rows}


async def _lengths(conn: AsyncConnection, ids: Collection[str]) -> Mapping[str, float]:
    query = select(calls.c.trajectory_id, func.avg(func.length(choices.c.token_ids)))
    query = query.join(choices, choices.c.call_id == calls.c.id).where(calls.c.trajectory_id.in_(ids))
    rows = await conn.execute(query.group_by(calls.c.trajectory_id))
    return {str(id_): float(value) / _ID_BYTES for id_, value in rows if value is not None}


async def _seconds(conn: AsyncConnection, ids: Collection[str]) -> Mapping[str, float]:
    query = select(calls.c.trajectory_id, func.avg(calls.c.finished_at - calls.c.started_at))
    rows = await conn.execute(query.where(calls.c.trajectory_id.in_(ids)).group_by(calls.c.trajectory_id))
    return {str(id_): float(value) for id_, value in rows if value is not None}

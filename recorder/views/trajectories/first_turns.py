"""First turns: the recorded beginnings of an alias's newest trajectories, each conversation once.

Owns: which trajectories are read, and which call begins one. Refuses: asking a model again (`proxy.gate.sanity`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Select, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.states import CallKind, CallState, Purpose, TrajectoryState
from recorder.store.database import Project
from recorder.store.schema import calls, trajectories
from recorder.views.trajectories.shapes import CallView
from recorder.views.trajectories.transcripts import load_call

RUNS: Final = 400  # newest trajectories that are read: a short query, however large the store


async def list_first_turns(project: Project, alias_id: str, limit: int) -> list[CallView]:
    """Return at most `limit` answered calls that begin a trajectory, newest first, with distinct prompts and tools."""
    async with project.store.read() as conn:
        found = await _first_calls(conn, project.id, alias_id)
    newest: dict[object, str] = {}
    for row in found:
        newest.setdefault((row.prompt_node_id, row.tools_blob_id), row.id)
    views = [await load_call(project.store, call_id) for call_id in list(newest.values())[:limit]]
    return [view for view in views if view is not None]


async def _first_calls(conn: AsyncConnection, project_id: str, alias_id: str) -> Sequence[Any]:
    ids = [id_ for (id_,) in await conn.execute(_runs(project_id, alias_id))]
    opening = (
        select(calls.c.id, calls.c.prompt_node_id, calls.c.tools_blob_id)
        .where(
            calls.c.trajectory_id.in_(ids),
            calls.c.parent_call_id.is_(None),
            calls.c.state == CallState.COMPLETE,
            calls.c.turn_kind == CallKind.MAIN,
            calls.c.prompt_node_id.is_not(None),
            calls.c.alias_id == alias_id,
        )
        .order_by(calls.c.started_at.desc(), calls.c.id)
    )
    return (await conn.execute(opening)).all()


def _runs(project_id: str, alias_id: str) -> Select[Any]:
    return (
        select(trajectories.c.id)
        .where(
            trajectories.c.project_id == project_id,
            trajectories.c.state == TrajectoryState.COMPLETED,
            trajectories.c.alias_id == alias_id,
            trajectories.c.purpose == Purpose.TRAIN,
            trajectories.c.continues.is_(None),
        )
        .order_by(trajectories.c.last_call_at.desc())
        .limit(RUNS)
    )

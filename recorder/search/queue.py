"""Which calls wait to be indexed: one tiny row each, written with the call.

Owns: putting calls in, and how many wait. Refuses: taking them out (`recorder.search.filling`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import func, insert, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.search.documents import is_sibling
from recorder.states import CallState
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import calls, trajectories, unindexed

MOST_COUNTED: Final = 10_000


async def put(conn: AsyncConnection, project_id: str, call_ids: Sequence[str]) -> None:
    """Have some calls indexed, or indexed anew; a sibling, which has no call of its own, by its run's id."""
    if call_ids:
        rows = [{"project_id": project_id, "call_id": id_} for id_ in call_ids]
        await conn.execute(sql.insert_ignore(conn, unindexed), rows)


async def put_all(conn: AsyncConnection) -> None:
    """Have every call of a store indexed that has ended: one that was copied here without its index."""
    ended = select(calls.c.project_id, calls.c.id).where(calls.c.state != CallState.OPEN)
    siblings = select(trajectories.c.project_id, trajectories.c.id).where(is_sibling())
    await conn.execute(insert(unindexed).from_select(["project_id", "call_id"], ended.union_all(siblings)))


async def waiting(project: Project, *, most: int = MOST_COUNTED) -> int:
    """How many calls of a project wait to be indexed; counted up to `most`."""
    some = select(literal(1)).where(unindexed.c.project_id == project.id).limit(most).subquery("some")
    async with project.store.read() as conn:
        return int((await conn.execute(select(func.count()).select_from(some))).scalar_one())

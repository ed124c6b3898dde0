"""Requests to review a trajectory: people put it into the review queue.

Owns: the rows. Refuses: beside which trajectory it is shown, and who has answered (`recorder.views.review`).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import NotFound
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import review_requests, trajectories
from recorder.store.sql import now

MOST: Final = 500  # the newest requests that a queue reads
_r = review_requests.c


async def request_review(project: Project, trajectory_id: str, by: str) -> bool:
    """Put a trajectory into the review queue. Returns False if it was requested before. Raises NotFound."""
    t = trajectories.c
    known = select(t.id).where(t.id == trajectory_id, t.project_id == project.id)
    row = {"trajectory_id": trajectory_id, "project_id": project.id, "at": now(), "made_by": by}
    async with project.store.write() as conn:
        if (await conn.execute(known.with_for_update(read=True, key_share=True))).first() is None:
            raise NotFound(f"no trajectory {trajectory_id[:200]!r} in project {project.id!r}")
        made = sql.insert_ignore(conn, review_requests).values(**row).returning(_r.trajectory_id)
        return (await conn.execute(made)).first() is not None


async def requested_reviews(project: Project) -> list[tuple[str, str]]:
    """Return the newest requested trajectories, newest first, each with its group; those without a group have none."""
    t = trajectories.c
    query = select(_r.trajectory_id, t.group_id).join(trajectories, t.id == _r.trajectory_id)
    query = query.where(_r.project_id == project.id, t.group_id.is_not(None))
    async with project.store.read() as conn:
        rows = await conn.execute(query.order_by(_r.at.desc(), _r.trajectory_id).limit(MOST))
        return [(row.trajectory_id, row.group_id) for row in rows]


async def forget_request(conn: AsyncConnection, trajectory_id: str) -> None:
    """Delete the request for a trajectory that is being deleted."""
    await conn.execute(delete(review_requests).where(_r.trajectory_id == trajectory_id))

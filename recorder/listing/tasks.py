"""What runs were given to do, in a few words: how a person recognises one in a list.

Owns: the first user message of each run, shortened. Refuses: whole conversations (`recorder.reading.transcripts`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.content.said import message_text
from recorder.store.schema import calls, nodes

MOST_CHARS: Final = 48


async def first_words(conn: AsyncConnection, trajectory_ids: Collection[str]) -> dict[str, str]:
    """By run, how the first thing that its user said begins; without runs that nobody said anything in."""
    first = (
        select(func.min(calls.c.id)).where(calls.c.trajectory_id.in_(trajectory_ids)).group_by(calls.c.trajectory_id)
    )
    columns = (nodes.c.parent_id, nodes.c.depth, nodes.c.role, nodes.c.message)
    up = (
        select(calls.c.trajectory_id, *columns)
        .join(nodes, nodes.c.id == calls.c.prompt_node_id)
        .where(calls.c.id.in_(first))
        .cte("up", recursive=True)
    )
    above = select(up.c.trajectory_id, *columns).select_from(nodes.join(up, nodes.c.id == up.c.parent_id))
    whole = up.union_all(above)
    said = select(whole.c.trajectory_id, whole.c.message).where(whole.c.role == "user").order_by(whole.c.depth.desc())
    return {row.trajectory_id: _short(message_text(row.message)) for row in await conn.execute(said)}


def _short(text: str) -> str:
    words = " ".join(text[: 8 * MOST_CHARS].split())
    return words if len(words) <= MOST_CHARS else words[: MOST_CHARS - 1] + "…"

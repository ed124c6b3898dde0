"""Before a trajectory is deleted: nothing leans on it any more.

Owns: giving those calls of others that store their prompt as a difference to one of its calls token ids of their own,
each in a short transaction. Refuses: deleting anything (`recorder.upkeep.deletion`).

That changes nothing that is read, so it may be killed at any moment and started again.
"""

from __future__ import annotations

from array import array
from typing import Any

from sqlalchemy import Select, literal, select, union, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.content import tokens
from recorder.states import Origin
from recorder.store.database import Store
from recorder.store.schema import calls, choices, projects


async def detach(store: Store, row: Any) -> None:
    """Let no call of another trajectory need this one's (a row of `trajectories`) for its prompt."""
    async with store.read() as conn:
        leaning = list((await conn.execute(_leaning(row))).scalars())
        key = (await conn.execute(select(projects.c.node_key).where(projects.c.id == row.project_id))).scalar_one()
    for call_id in leaning:
        async with store.read() as conn:
            packed = tokens.pack_ids(await _whole_prompt(conn, call_id))
        hashes = tokens.block_hashes(packed, tokens.chain_seed(key))
        own = {"prompt_shared": 0, "prompt_delta": packed, "prompt_hashes": hashes}
        async with store.write() as conn:
            await conn.execute(update(calls).where(calls.c.id == call_id).values(**own))


async def is_leant_on(conn: AsyncConnection, row: Any) -> bool:
    """Whether a call of another trajectory needs this one's (a row of `trajectories`) for its prompt."""
    return (await conn.execute(_leaning(row).limit(1))).first() is not None


def _leaning(row: Any) -> Select[Any]:
    """The calls of other trajectories whose prompts are stored as differences to one of this trajectory."""
    # a sibling's leaf is a call of another; so is a fork's for a shadow group, which has no part in it
    leaf = (row.leaf_call_id or "") if row.origin != Origin.SHADOW else ""
    own = union(select(calls.c.id).where(calls.c.trajectory_id == row.id), select(literal(leaf)))
    on_own = calls.c.parent_call_id.in_(own)
    return select(calls.c.id).where(on_own, calls.c.trajectory_id != row.id, calls.c.prompt_shared > 0)


async def _whole_prompt(conn: AsyncConnection, call_id: str) -> array[int]:
    rows: list[Any] = []
    above: str | None = call_id
    while above is not None:
        rows.append((await conn.execute(select(calls).where(calls.c.id == above))).one())
        above = rows[-1].parent_call_id if rows[-1].prompt_shared else None
    ids = array("i")
    for row in reversed(rows):
        parent = ids + await _sampled(conn, row.parent_call_id, row.parent_choice) if row.prompt_shared else None
        ids = tokens.join(parent, row.prompt_shared, row.prompt_delta, row.prompt_len)
    return ids


async def _sampled(conn: AsyncConnection, call_id: str, index: int) -> array[int]:
    query = select(choices.c.token_ids).where(choices.c.call_id == call_id, choices.c.index == index)
    return tokens.unpack_ids((await conn.execute(query)).scalar_one_or_none() or b"")

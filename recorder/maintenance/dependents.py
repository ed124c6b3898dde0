"""Detach other rows from a trajectory before its deletion, and remove nodes and blobs that nothing uses.

Owns: giving dependent calls (whose prompts are stored as differences to its calls) their own token ids, each in a short
transaction; and the rule for when a node or blob is still used. Refuses: deleting trajectories
(`recorder.maintenance.deletion`).

Detaching changes nothing that readers see, so it may be killed at any time and started again. Nodes and blobs are
removed inside the deletion's transaction.

A node is used by a choice that ends in it, a call whose prompt ends in it, or a used node below it. So all ancestors of
a node exist; the writer relies on this. A system message or a set of tools may be used a million times, so queries only
check whether a use exists.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from sqlalchemy import Column, Select, Table, delete, exists, func, literal, select, union, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.messages import tokens
from recorder.states import Origin
from recorder.store.database import Store
from recorder.store.schema import blobs, calls, choices, node_blobs, nodes, projects


async def detach_dependents(store: Store, row: Any) -> None:
    """Give prompts of other trajectories that depend on this one (a row of `trajectories`) their own token ids."""
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


async def has_dependents(conn: AsyncConnection, row: Any) -> bool:
    """Whether a prompt of another trajectory depends on a call of this one (a row of `trajectories`)."""
    return (await conn.execute(_leaning(row).limit(1))).first() is not None


def _leaning(row: Any) -> Select[Any]:
    """The query for calls of other trajectories whose prompts are stored as differences to a call of this one."""
    # the leaf of a sibling is a call of another trajectory; a fork for a shadow group does not own its leaf either
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
        ids = tokens.join_ids(parent, row.prompt_shared, row.prompt_delta, row.prompt_len)
    return ids


async def _sampled(conn: AsyncConnection, call_id: str, index: int) -> array[int]:
    query = select(choices.c.token_ids).where(choices.c.call_id == call_id, choices.c.index == index)
    return tokens.unpack_ids((await conn.execute(query)).scalar_one_or_none() or b"")


PAGE: Final = 500  # keys per statement
_NEEDS_BLOB: Final = (calls.c.tools_blob_id, calls.c.format_blob_id, calls.c.request_blob_id, node_blobs.c.blob_id)

K = TypeVar("K")


async def ancestor_nodes(conn: AsyncConnection, ends: Collection[bytes]) -> dict[bytes, bytes | None]:
    """Return the nodes from some ends up to their roots: id → parent."""
    found: dict[bytes, bytes | None] = {}
    for page in chunk_keys(ends):
        start = select(nodes.c.id, nodes.c.parent_id).where(nodes.c.id.in_(page)).cte("up", recursive=True)
        up = start.union(select(nodes.c.id, nodes.c.parent_id).join(start, nodes.c.id == start.c.parent_id))
        found |= {row.id: row.parent_id for row in await conn.execute(select(up.c.id, up.c.parent_id))}
    return found


async def collect_nodes(conn: AsyncConnection, ends: Collection[bytes]) -> tuple[int, set[bytes]]:
    """Remove unused nodes at and above `ends`. Return how many, and the media ids in them."""
    above = await ancestor_nodes(conn, ends)
    needed = await _have_others_under(conn, above)
    for column in (choices.c.node_id, calls.c.prompt_node_id):
        needed |= await _in_use(conn, nodes, column, above)
    for end in list(needed):
        node = above[end]
        while node is not None and node not in needed:
            needed.add(node)
            node = above[node]
    gone = above.keys() - needed
    shown: set[bytes] = set()
    for page in chunk_keys(gone):
        of_page = node_blobs.c.node_id.in_(page)
        shown |= set((await conn.execute(select(node_blobs.c.blob_id).where(of_page))).scalars())
        await conn.execute(delete(node_blobs).where(of_page))
        await conn.execute(delete(nodes).where(nodes.c.id.in_(page)))
    return len(gone), shown


async def collect_blobs(conn: AsyncConnection, candidates: Collection[bytes]) -> int:
    """Remove the unused blobs among `candidates`. Return how many."""
    needed: set[bytes] = set()
    for column in _NEEDS_BLOB:
        needed |= await _in_use(conn, blobs, column, candidates)
    gone = set(candidates) - needed
    for page in chunk_keys(gone):
        await conn.execute(delete(blobs).where(blobs.c.id.in_(page)))
    return len(gone)


async def _in_use(conn: AsyncConnection, table: Table, column: Column[bytes], keys: Collection[bytes]) -> set[bytes]:
    """Return the keys that occur in a column, each looked up once by the column's index."""
    found: set[bytes] = set()
    for page in chunk_keys(keys):
        query = select(table.c.id).where(table.c.id.in_(page), exists().where(column == table.c.id))
        found |= set((await conn.execute(query)).scalars())
    return found


async def _have_others_under(conn: AsyncConnection, above: Mapping[bytes, bytes | None]) -> set[bytes]:
    """Return those of some nodes that have a child outside them."""
    own = Counter(above.values())
    under = nodes.alias("under")
    found: set[bytes] = set()
    for page in chunk_keys(above):
        enough = max(own[node] for node in page) + 1  # one more than our own children
        some = select(literal(1)).where(under.c.parent_id == nodes.c.id).limit(enough).correlate(nodes).subquery("some")
        counted = select(func.count()).select_from(some).scalar_subquery()
        rows = await conn.execute(select(nodes.c.id, counted).where(nodes.c.id.in_(page)))
        found |= {id_ for id_, count in rows if count > own[id_]}
    return found


def chunk_keys(keys: Collection[K]) -> Iterator[Sequence[K]]:
    """Yield the keys in pages for one statement each."""
    ordered = list(keys)
    for at in range(0, len(ordered), PAGE):
        yield ordered[at : at + PAGE]

"""Nodes and blobs that nothing needs any more: found and removed, inside a deletion's transaction.

Owns: what still needs a node or a blob. Refuses: deciding what is deleted (`recorder.upkeep.deletion`).

A node is needed by a choice that ends in it, a call whose prompt ends in it, or a node under it that is needed. So a
node that is there has all above it, which is what the writer relies on.

A system message or a set of tools may have a million users: whether there is one is asked, never who they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from sqlalchemy import Column, Table, delete, exists, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store.schema import blobs, calls, choices, node_blobs, nodes

PAGE: Final = 500  # keys a statement
_NEEDS_BLOB: Final = (calls.c.tools_blob_id, calls.c.format_blob_id, calls.c.request_blob_id, node_blobs.c.blob_id)

K = TypeVar("K")


async def nodes_up(conn: AsyncConnection, ends: Collection[bytes]) -> dict[bytes, bytes | None]:
    """The nodes from some ends up to their roots: id → parent."""
    found: dict[bytes, bytes | None] = {}
    for page in pages(ends):
        start = select(nodes.c.id, nodes.c.parent_id).where(nodes.c.id.in_(page)).cte("up", recursive=True)
        up = start.union(select(nodes.c.id, nodes.c.parent_id).join(start, nodes.c.id == start.c.parent_id))
        found |= {row.id: row.parent_id for row in await conn.execute(select(up.c.id, up.c.parent_id))}
    return found


async def collect_nodes(conn: AsyncConnection, ends: Collection[bytes]) -> tuple[int, set[bytes]]:
    """Remove what is not needed of the nodes above and at `ends`. Returns how many, and the media they showed."""
    above = await nodes_up(conn, ends)
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
    for page in pages(gone):
        of_page = node_blobs.c.node_id.in_(page)
        shown |= set((await conn.execute(select(node_blobs.c.blob_id).where(of_page))).scalars())
        await conn.execute(delete(node_blobs).where(of_page))
        await conn.execute(delete(nodes).where(nodes.c.id.in_(page)))
    return len(gone), shown


async def collect_blobs(conn: AsyncConnection, candidates: Collection[bytes]) -> int:
    """Remove what is not needed of some blobs. Returns how many."""
    needed: set[bytes] = set()
    for column in _NEEDS_BLOB:
        needed |= await _in_use(conn, blobs, column, candidates)
    gone = set(candidates) - needed
    for page in pages(gone):
        await conn.execute(delete(blobs).where(blobs.c.id.in_(page)))
    return len(gone)


async def _in_use(conn: AsyncConnection, table: Table, column: Column[bytes], keys: Collection[bytes]) -> set[bytes]:
    """Those of a table's keys that a column holds somewhere, each looked up once by its index."""
    found: set[bytes] = set()
    for page in pages(keys):
        query = select(table.c.id).where(table.c.id.in_(page), exists().where(column == table.c.id))
        found |= set((await conn.execute(query)).scalars())
    return found


async def _have_others_under(conn: AsyncConnection, above: Mapping[bytes, bytes | None]) -> set[bytes]:
    """Those of some nodes under which there is one that is not among them."""
    own = Counter(above.values())
    under = nodes.alias("under")
    found: set[bytes] = set()
    for page in pages(above):
        enough = max(own[node] for node in page) + 1  # one more than are our own
        some = select(literal(1)).where(under.c.parent_id == nodes.c.id).limit(enough).correlate(nodes).subquery("some")
        counted = select(func.count()).select_from(some).scalar_subquery()
        rows = await conn.execute(select(nodes.c.id, counted).where(nodes.c.id.in_(page)))
        found |= {id_ for id_, count in rows if count > own[id_]}
    return found


def pages(keys: Collection[K]) -> Iterator[Sequence[K]]:
    """Keys, as many as one statement takes at a time."""
    ordered = list(keys)
    for at in range(0, len(ordered), PAGE):
        yield ordered[at : at + PAGE]

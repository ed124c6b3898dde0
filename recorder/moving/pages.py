"""A table's rows, page by page in the order of its primary key, as both databases can be given them again.

Owns: the order of tables (by their foreign keys), the bounds of a page, and what a row is on its way: plain values,
with JSON as the text that is stored. Refuses: writing.

The order of keys is the database's own, since its index has that: two databases may sort text differently.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from sqlalchemy import JSON, ColumnElement, Select, Table, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store.database import Store
from recorder.store.schema import metadata, said, unindexed, unmerged
from recorder.store.statement import as_text

Row = tuple[Any, ...]
Key = tuple[Any, ...]

# The index over what was said is made anew where a copy goes to: each database keeps it in its own way.
MADE_ANEW: Final = (said, unindexed, unmerged)
# None before a table that it refers to.
TABLES: Final[Sequence[Table]] = tuple(table for table in metadata.sorted_tables if table not in MADE_ANEW)
PAGE_ROWS: Final = 1000
PAGE_BYTES: Final = 8 * 1024 * 1024  # media and tools are kept whole in rows
_AT_ONCE: Final = 500  # rows a statement
_BIG: Final = {"blobs": 20}  # of a table whose single rows may have megabytes


def key_in(table: Table, row: Row) -> Key:
    """A row's primary key."""
    at = {column.name: place for place, column in enumerate(table.c)}
    return tuple(row[at[column.name]] for column in table.primary_key)


async def pages(store: Store, table: Table, after: Key | None = None) -> AsyncIterator[list[Row]]:
    """All rows behind a key, each page a short read of its own."""
    while True:
        async with store.read() as conn:
            page = await _page(conn, table, after)
        if not page:
            return
        yield page
        after = key_in(table, page[-1])


async def _page(conn: AsyncConnection, table: Table, after: Key | None) -> list[Row]:
    """Rows behind a key, as many as a page holds.

    A few a statement, as every statement has a limit: of a cursor only its opening has one, and a server that hangs
    while the cursor is read on would be waited for without end.
    """
    found: list[Row] = []
    size_bytes = 0
    while len(found) < PAGE_ROWS:
        number = min(_BIG.get(table.name, _AT_ONCE), PAGE_ROWS - len(found))
        rows = (await conn.execute(_query(table, after).limit(number))).all()
        for row in rows:
            found.append(tuple(row))
            size_bytes += sum(len(value) for value in row if isinstance(value, str | bytes))
            if size_bytes > PAGE_BYTES:
                return found
        if len(rows) < number:
            break
        after = key_in(table, found[-1])
    return found


def _query(table: Table, after: Key | None) -> Select[Any]:
    key = tuple(table.primary_key)
    query = select(*map(_as_stored, table.c)).order_by(*key)
    if after is None:
        return query
    values = [literal(value, column.type) for value, column in zip(after, key, strict=True)]
    return query.where(key[0] > values[0] if len(key) == 1 else tuple_(*key) > tuple_(*values))


def _as_stored(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return as_text(column) if isinstance(column.type, JSON) else column

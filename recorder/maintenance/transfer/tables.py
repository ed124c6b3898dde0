"""A table's rows in pages, in the order of its primary key, as values that both databases accept; and a table's digest.

Owns: the order of tables (by foreign keys), the bounds of a page, the form of a row in transit (plain values, JSON as
its stored text), and when two tables are equal. Refuses: writing.

Keys are in the database's own order, since its index has that order; two databases may sort text differently. So a
digest is a count and the sum of the rows' hashes, independent of their order. JSON counts as equal if its values are,
because a database may return it with other spaces, another order of keys, and 1.0 as 1. Text is compared in the form
that both can store (`recorder.store.sql.storable_text`).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import JSON, ColumnElement, Select, Table, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store.database import Store
from recorder.store.schema import metadata, said, unindexed, unmerged
from recorder.store.sql import storable_text
from recorder.store.statement import json_as_text, postgres_json

Row = tuple[Any, ...]
Key = tuple[Any, ...]

# The search index is rebuilt in the target: each database stores it in its own way.
MADE_ANEW: Final = (said, unindexed, unmerged)
# Each table follows the tables that it refers to.
TABLES: Final[Sequence[Table]] = tuple(table for table in metadata.sorted_tables if table not in MADE_ANEW)
PAGE_ROWS: Final = 1000
PAGE_BYTES: Final = 8 * 1024 * 1024  # a row holds media and tools in full
_AT_ONCE: Final = 500  # rows per statement
_BIG: Final = {"blobs": 20}  # for tables whose rows may have megabytes


def primary_key(table: Table, row: Row) -> Key:
    """Return a row's primary key."""
    at = {column.name: place for place, column in enumerate(table.c)}
    return tuple(row[at[column.name]] for column in table.primary_key)


async def iterate_pages(store: Store, table: Table, after: Key | None = None) -> AsyncIterator[list[Row]]:
    """Yield all rows after a key, in pages of one short read each."""
    while True:
        async with store.read() as conn:
            page = await _page(conn, table, after)
        if not page:
            return
        yield page
        after = primary_key(table, page[-1])


async def _page(conn: AsyncConnection, table: Table, after: Key | None) -> list[Row]:
    """Return the rows after a key, at most a page.

    They are read by several statements, because each statement has a time limit. A cursor's limit covers only its
    opening, so a server that hangs later would block the copy forever.
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
        after = primary_key(table, found[-1])
    return found


def _query(table: Table, after: Key | None) -> Select[Any]:
    key = tuple(table.primary_key)
    query = select(*map(_as_stored, table.c)).order_by(*key)
    if after is None:
        return query
    values = [literal(value, column.type) for value, column in zip(after, key, strict=True)]
    return query.where(key[0] > values[0] if len(key) == 1 else tuple_(*key) > tuple_(*values))


def _as_stored(column: ColumnElement[Any]) -> ColumnElement[Any]:
    return json_as_text(column) if isinstance(column.type, JSON) else column


_BYTES: Final = 16
_MODULUS: Final = 1 << 8 * _BYTES
_NUL: Final = "\x00"


@dataclass(frozen=True, slots=True)
class Digest:
    """The number of rows, and the sum of their hashes."""

    rows: int = 0
    total: int = 0

    def hex(self) -> str:
        """Return the sum as text."""
        return f"{self.total:0{2 * _BYTES}x}"


def digest_of(table: Table, rows: list[Row], before: Digest | None = None) -> Digest:
    """Return the digest of some rows, added to `before`."""
    before = before or Digest()
    json_at = json_columns(table)
    total = before.total + sum(_hash(row, json_at) for row in rows)
    return Digest(before.rows + len(rows), total % _MODULUS)


async def digest_table(store: Store, table: Table) -> Digest:
    """Return the digest of a whole table."""
    digest = Digest()
    async for page in iterate_pages(store, table):
        digest = digest_of(table, page, digest)
    return digest


def storable_row(row: Row, json_at: Sequence[int] = ()) -> Row:
    """Return a row that both databases can store: PostgreSQL has no NUL in text and no NaN in JSON (at `json_at`)."""
    if any(isinstance(value, str) and _NUL in value for value in row):
        row = tuple(storable_text(value) if isinstance(value, str) else value for value in row)
    told = {place: postgres_json(row[place]) for place in json_at if row[place] is not None}
    if all(row[place] is text for place, text in told.items()):
        return row
    return tuple(told.get(place, value) for place, value in enumerate(row))


def json_columns(table: Table) -> list[int]:
    """Return the positions of a table's JSON columns in its rows."""
    return [place for place, column in enumerate(table.c) if isinstance(column.type, JSON)]


def _hash(row: Row, json_at: list[int]) -> int:
    values = list(storable_row(row, json_at))
    for place in json_at:
        values[place] = _meaning(values[place])
    return int.from_bytes(blake2b(repr(values).encode("ascii", "backslashreplace"), digest_size=_BYTES).digest())


def _meaning(text: str | None) -> str | None:
    """Return JSON text in a canonical form of its value."""
    if text is None or len(text) <= 2:  # {}, [], a digit
        return text
    return json.dumps(_plain(json.loads(text)), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list) else value

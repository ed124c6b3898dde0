"""What SQLite and PostgreSQL spell differently, and rows as views. The only place that asks which database it is.

Owns: insert-or-ignore, insert-or-update, text that both take, a condition kept from the indexes, the database's clock
as a number, rows → dataclasses.
Refuses: any table's meaning.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store.database import now

V = TypeVar("V")
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
Insert = sqlite.Insert | postgresql.Insert


def insert(conn: AsyncConnection, table: Table) -> Insert:
    """An INSERT of the connection's own dialect: both know `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return sqlite.insert(table) if conn.dialect.name == "sqlite" else postgresql.insert(table)


def insert_ignore(conn: AsyncConnection, table: Table) -> Insert:
    """An INSERT that leaves a row alone that is there already, whichever unique key it meets."""
    return insert(conn, table).on_conflict_do_nothing()


def upsert(
    conn: AsyncConnection, table: Table, keys: Sequence[str], values: Mapping[str, Any], *, keep: Sequence[str] = ()
) -> Insert:
    """An INSERT of `values` that updates the row with the same `keys`; columns in `keep` stay as they were."""
    statement = insert(conn, table).values(**values)
    changed = {name: statement.excluded[name] for name in values if name not in keys and name not in keep}
    return statement.on_conflict_do_update(index_elements=list(keys), set_=changed)


def passed_by(column: ColumnElement[V]) -> ColumnElement[V]:
    """The column, as no index knows it: a condition that nearly every row meets must not choose the index."""
    return func.coalesce(column, column)


def storable(text: str) -> str:
    """`text` as both databases take it: lone surrogates are no UTF-8, and PostgreSQL has no NUL; both are escaped."""
    return _UNSTORABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


async def clock(conn: AsyncConnection) -> float:
    """The database's clock, in unix seconds."""
    return float((await conn.execute(select(now()))).scalar_one())


def view(cls: type[V], row: Row[Any], **others: Any) -> V:
    """A view (a dataclass) of the row's columns that carry the names of its fields; `others` are given by hand."""
    wanted = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # V is a dataclass: typeshed cannot say so
    return cls(**{name: value for name, value in row._mapping.items() if name in wanted} | others)


def views(cls: type[V], rows: Iterable[Row[Any]]) -> list[V]:
    """Views of all rows."""
    return [view(cls, row) for row in rows]

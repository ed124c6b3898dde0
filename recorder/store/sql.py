"""SQL that differs between SQLite and PostgreSQL, and rows as dataclasses.

Owns: insert-or-ignore, upsert, text that both accept, members of stored JSON, conditions without an index, the
database's clock, the outcome of a PostgreSQL transaction, and which table rejected a row. Refuses: the meaning of any
table.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, Double, String, Table, func, literal, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.functions import FunctionElement

from recorder.errors import StoreUnavailable

V = TypeVar("V")
_UNREADABLE = r"\\u(0000|d[89a-f][0-9a-f]{2})"  # JSON escapes that PostgreSQL cannot read
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
UNHURRIED: Final = "hone_unhurried"  # option of a connection without a time limit for statements, for migrations
Insert = sqlite.Insert | postgresql.Insert


class now(FunctionElement[float]):  # noqa: N801 - reads as the SQL function it is
    """The database's clock, in unix seconds, so that leases of several machines are compared by one clock."""

    type = Double()
    inherit_cache = True


@compiles(now, "sqlite")
def _now_sqlite(element: now, compiler: Any, **kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _now_postgresql(element: now, compiler: Any, **kw: Any) -> str:
    # statement_timestamp() is one value for the whole statement; clock_timestamp() differs by row and uses no index
    return "extract(epoch from statement_timestamp())::double precision"


def insert(conn: AsyncConnection, table: Table) -> Insert:
    """Return an INSERT of the connection's dialect: both have `on_conflict_do_nothing` and `on_conflict_do_update`."""
    return sqlite.insert(table) if conn.dialect.name == "sqlite" else postgresql.insert(table)


def insert_ignore(conn: AsyncConnection, table: Table) -> Insert:
    """Return an INSERT that does nothing if a row with any of the same unique keys exists."""
    return insert(conn, table).on_conflict_do_nothing()


def upsert(
    conn: AsyncConnection, table: Table, keys: Sequence[str], values: Mapping[str, Any], *, keep: Sequence[str] = ()
) -> Insert:
    """Return an INSERT of `values` that updates the row with the same `keys`, except the columns in `keep`."""
    statement = insert(conn, table).values(**values)
    changed = {name: statement.excluded[name] for name in values if name not in keys and name not in keep}
    return statement.on_conflict_do_update(index_elements=list(keys), set_=changed)


def without_index(column: ColumnElement[V]) -> ColumnElement[V]:
    """Return the column in a form that uses no index, for a condition that nearly every row meets."""
    return func.coalesce(column, column)


def storable_text(text: str) -> str:
    """Return `text` as both databases accept it: NUL (for PostgreSQL) and lone surrogates (for UTF-8) are escaped."""
    return _UNSTORABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


class json_member(FunctionElement[str]):  # noqa: N801 - reads as the SQL function it is
    """A text member of a JSON column, by name; NULL if there is none.

    PostgreSQL parses the whole JSON for it, and fails if any string has a NUL or a lone surrogate.
    """

    type = String()
    inherit_cache = True
    name = "member"

    def __init__(self, column: ColumnElement[Any], key: str) -> None:
        super().__init__(column, literal(key, String()))


@compiles(json_member, "sqlite")
def _member_sqlite(element: json_member, compiler: Any, **kw: Any) -> str:
    column, key = element.clauses
    path = f"""'$."' || {compiler.process(key, **kw)} || '"'"""
    return f"json_extract({compiler.process(column, **kw)}, {path})"


@compiles(json_member, "postgresql")
def _member_postgresql(element: json_member, compiler: Any, **kw: Any) -> str:
    column, key = element.clauses
    # replaced by blanks, which leave an escaped backslash before them unchanged
    readable = f"regexp_replace(cast({compiler.process(column, **kw)} as text), '{_UNREADABLE}', '\\\\u0020', 'gi')"
    return f"(cast({readable} as json) ->> cast({compiler.process(key, **kw)} as text))"


async def current_time(conn: AsyncConnection) -> float:
    """Return the time of the database's clock, in unix seconds."""
    return float((await conn.execute(select(now()))).scalar_one())


def refused_table(error: IntegrityError) -> str | None:
    """Return the table whose constraint PostgreSQL reports as violated; None on SQLite, whose errors are only text."""
    return getattr(error.driver_exception, "table_name", None)


async def transaction_id(conn: AsyncConnection) -> str:
    """Return the id by which `is_committed` finds this transaction, in case the answer to its COMMIT is lost."""
    return str((await conn.execute(select(func.pg_current_xact_id().op("::")(text("text"))))).scalar_one())


_IN_THE_FUTURE: Final = "22023"  # invalid_parameter_value: the only cause of it in `pg_xact_status`


async def is_committed(conn: AsyncConnection, xid: str) -> bool | None:
    """Return whether a transaction was committed, or None while it is still in progress.

    An id that the server has not assigned was not committed: the server crashed and lost it. PostgreSQL reports such an
    id as an error, so the transaction of `conn` cannot be used afterwards.

    Raises StoreUnavailable if the server no longer knows the outcome.
    """
    query = text("select pg_xact_status(cast(cast(:xid as text) as xid8))")
    try:
        status = (await conn.execute(query, {"xid": xid})).scalar_one()
    except DBAPIError as e:
        if getattr(e.orig, "sqlstate", None) != _IN_THE_FUTURE:
            raise
        return False
    if status is None:
        raise StoreUnavailable(f"the database no longer knows the outcome of transaction {xid}")
    return None if status == "in progress" else bool(status == "committed")


def as_view(cls: type[V], row: Row[Any], **others: Any) -> V:
    """Return a view (a dataclass) from the row's columns with its fields' names; `others` are the other fields."""
    wanted = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # V is a dataclass: typeshed cannot say so
    return cls(**{name: value for name, value in row._mapping.items() if name in wanted} | others)


def as_views(cls: type[V], rows: Iterable[Row[Any]]) -> list[V]:
    """Return the views of all rows."""
    return [as_view(cls, row) for row in rows]

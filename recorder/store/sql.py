"""What SQLite and PostgreSQL spell differently, and rows as views. The only place that asks which database it is.

Owns: insert-or-ignore, insert-or-update, text that both take, a member of stored JSON, a condition kept from the
indexes, the database's clock, what became of a PostgreSQL transaction, which table refused a row,
rows → dataclasses.
Refuses: any table's meaning.
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
_UNREADABLE = r"\\u(0000|d[89a-f][0-9a-f]{2})"  # as escapes of JSON
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_INVALID_PARAMETER_VALUE: Final = "22023"  # PostgreSQL's code for a transaction id that it has not assigned
UNHURRIED: Final = "hone_unhurried"  # option of a connection whose statements may take any time: a migration's
Insert = sqlite.Insert | postgresql.Insert


class now(FunctionElement[float]):  # noqa: N801 - reads as the SQL function it is
    """The database's clock, in unix seconds: leases of several machines are compared by one clock."""

    type = Double()
    inherit_cache = True


@compiles(now, "sqlite")
def _now_sqlite(element: now, compiler: Any, **kw: Any) -> str:
    return "((julianday('now') - 2440587.5) * 86400.0)"


@compiles(now, "postgresql")
def _now_postgresql(element: now, compiler: Any, **kw: Any) -> str:
    # the moment a statement came: clock_timestamp() may differ from row to row, so no index is looked into by it
    return "extract(epoch from statement_timestamp())::double precision"


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


def without_index(column: ColumnElement[V]) -> ColumnElement[V]:
    """The column, as no index knows it: a condition that nearly every row meets must not choose the index."""
    return func.coalesce(column, column)


def storable_text(text: str) -> str:
    """`text` as both databases take it: lone surrogates are no UTF-8, and PostgreSQL has no NUL; both are escaped."""
    return _UNSTORABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


class json_member(FunctionElement[str]):  # noqa: N801 - reads as the SQL function it is
    """A text member of a column of JSON, by its name; NULL where it has none.

    PostgreSQL reads all of the JSON for it, and refuses to where any string has a NUL or half a surrogate pair.
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
    # blanks in their place, which leave an escaped backslash before them what it was
    readable = f"regexp_replace(cast({compiler.process(column, **kw)} as text), '{_UNREADABLE}', '\\\\u0020', 'gi')"
    return f"(cast({readable} as json) ->> cast({compiler.process(key, **kw)} as text))"


async def format_wait(conn: AsyncConnection) -> float:
    """The database's clock, in unix seconds."""
    return float((await conn.execute(select(now()))).scalar_one())


def refused_table(error: IntegrityError) -> str | None:
    """Whose rule PostgreSQL says was broken; of SQLite None, whose errors are words alone."""
    return getattr(error.driver_exception, "table_name", None)


async def transaction_id(conn: AsyncConnection) -> str:
    """By what `is_committed` finds this transaction again, should the answer to its COMMIT be lost."""
    return str((await conn.execute(select(func.pg_current_xact_id().op("::")(text("text"))))).scalar_one())


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
        if getattr(e.orig, "sqlstate", None) != _INVALID_PARAMETER_VALUE:
            raise
        return False  # "transaction ID … is in the future"
    if status is None:
        raise StoreUnavailable(f"the database no longer knows what became of transaction {xid}")
    return None if status == "in progress" else bool(status == "committed")


def as_view(cls: type[V], row: Row[Any], **others: Any) -> V:
    """A view (a dataclass) of the row's columns that carry the names of its fields; `others` are given by hand."""
    wanted = {field.name for field in fields(cls)}  # type: ignore[arg-type]  # V is a dataclass: typeshed cannot say so
    return cls(**{name: value for name, value in row._mapping.items() if name in wanted} | others)


def as_views(cls: type[V], rows: Iterable[Row[Any]]) -> list[V]:
    """Views of all rows."""
    return [as_view(cls, row) for row in rows]

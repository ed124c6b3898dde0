"""The ledger: a reason code and a time for every object that was excluded, refused or moved.

Owns: its rows. They are never updated or deleted, except that a deletion removes their details. Of a trajectory's
`trained` and `untrained` rows only the newest counts, in queries for one of the two and in counts. Refuses: deciding.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, and_, exists, func, insert, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import ledger

TRAINED: Final = "trained"  # of a trajectory: the live version or an ancestor was trained on it
UNTRAINED: Final = "untrained"  # of a trajectory: it was trained on, and the version was rolled back
_REVOKING: Final = (TRAINED, UNTRAINED)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One row to write. `object_kind`: trajectory, group, call, version, step, attempt, alias."""

    project_id: str
    object_kind: str
    object_id: str
    code: str
    detail: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored row; `at` is unix seconds."""

    id: int
    project_id: str
    object_kind: str
    object_id: str
    code: str
    detail: dict[str, Any] | None
    at: float


async def write_rows(conn: AsyncConnection, rows: Iterable[LedgerRow]) -> None:
    """Write rows in the caller's transaction, so that an object's state and its reason appear together."""
    values = [asdict(row) for row in rows]
    if values:
        at = await sql.current_time(conn)
        await conn.execute(insert(ledger), [{**row, "at": at} for row in values])


async def object_entries(store: Store, kind: str, object_id: str) -> list[Entry]:
    """Return the rows about one object, oldest first."""
    query = select(ledger).where(ledger.c.object_kind == kind, ledger.c.object_id == object_id).order_by(ledger.c.id)
    async with store.read() as conn:
        return sql.as_views(Entry, await conn.execute(query))


async def latest_entries(
    project: Project,
    *,
    object_kind: str | None = None,
    object_id: str | None = None,
    code: str | None = None,
    since: float | None = None,
    without: Collection[str] = (),
    limit: int = 100,
) -> list[Entry]:
    """Return the project's rows of one kind, object or code, from `since` (unix seconds) on, newest first.

    Rows with a code in `without` are omitted.
    """
    # by the index of the code, or by the ids
    access = ledger.c.project_id if code is not None else sql.without_index(ledger.c.project_id)
    query = select(ledger).where(access == project.id).order_by(ledger.c.id.desc()).limit(limit)
    asked = {"object_kind": object_kind, "object_id": object_id, "code": code}
    query = query.where(*(ledger.c[name] == value for name, value in asked.items() if value is not None))
    if code in _REVOKING:
        query = query.where(_holds())
    if since is not None:
        query = query.where(ledger.c.at >= since)
    if without:
        query = query.where(ledger.c.code.not_in(without))
    async with project.store.read() as conn:
        return sql.as_views(Entry, await conn.execute(query))


async def count_codes(project: Project, object_kind: str, since: float | None = None) -> dict[str, int]:
    """Count the rows about objects of a kind by code, since a time (unix seconds).

    A trajectory that was trained and then untrained counts only as untrained.
    """
    query = (
        select(ledger.c.code, func.count())
        .where(ledger.c.project_id == project.id, ledger.c.object_kind == object_kind, _holds())
        .group_by(ledger.c.code)
        .order_by(ledger.c.code)
    )
    if since is not None:
        query = query.where(ledger.c.at >= since)
    async with project.store.read() as conn:
        return {code: int(count) for code, count in await conn.execute(query)}


def has_code(kind: str, object_id: ColumnElement[str], code: str) -> ColumnElement[bool]:
    """A column: whether a query's object has a row with this code that still counts."""
    said = (ledger.c.object_kind == kind, ledger.c.object_id == object_id, ledger.c.code == code)
    return exists().where(*said, *([_holds()] if code in _REVOKING else []))


def objects_with(project_id: str, kind: str, code: str) -> Select[tuple[str]]:
    """The query for the objects of a kind with a row of this code that still counts."""
    said = (ledger.c.project_id == project_id, ledger.c.object_kind == kind, ledger.c.code == code)
    return select(ledger.c.object_id).where(*said, *([_holds()] if code in _REVOKING else []))


def _holds() -> ColumnElement[bool]:
    """A column: whether a row still counts, because no newer row replaces it."""
    newer = ledger.alias("newer")
    same = and_(newer.c.object_kind == ledger.c.object_kind, newer.c.object_id == ledger.c.object_id)
    revoked = exists().where(same, newer.c.code.in_(_REVOKING), newer.c.id > ledger.c.id)
    return or_(ledger.c.code.not_in(_REVOKING), ~revoked)

"""Read the rows of the ledger that are told, and how far they are read.

Owns: the queries, and when a row settles. Refuses: which rows become notices, and their words
(`recorder.views.notices.decisions`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.notifications import Notice, NoticeCursor, newest_ledger_row
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import aliases, campaigns, ledger, versions
from recorder.views.notices.decisions import CODES, LedgerEvent, notice_of

OLDEST_S: Final = 7 * 86400.0  # older events are not told: notifications were off, or the store is a backup
SETTLE_S: Final = 60.0  # a transaction that takes longer is not told
_MOST_ROWS: Final = 1000  # of one look


async def read_decisions(
    project: Project, cursor: NoticeCursor, by_hand: Collection[str]
) -> tuple[list[Notice], NoticeCursor]:
    """Return the notices of rows after the cursor, oldest first, and the cursor after them.

    A look repeats the rows that have not settled, so some notices may be written already. `by_hand`: the aliases whose
    versions wait for a person. Raises StoreError.
    """
    async with project.store.read() as conn:
        at = await sql.current_time(conn)
        newest = await newest_ledger_row(conn)
        rows = await _read_rows(conn, project.id, cursor.settled_id, at - OLDEST_S)
        names = await _read_names(conn, rows)
    found = [
        LedgerEvent(row.id, row.object_kind, row.code, row.detail or {}, row.at, names[row.object_id])
        for row in rows
        if row.object_id in names
    ]
    notices = [one for event in found if (one := notice_of(event, by_hand)) is not None]
    if len(rows) == _MOST_ROWS:  # more than one look reads: the rest comes with the next
        last = int(rows[-1].id)
        return notices, NoticeCursor(last, max(last, cursor.mark_id), cursor.marked_at, cursor.present)
    return notices, settle(cursor, newest, at)


def settle(cursor: NoticeCursor, newest: int, at: float) -> NoticeCursor:
    """Return the cursor at a time (unix seconds) at which `newest` is the newest row of the ledger."""
    if at - cursor.marked_at < SETTLE_S:
        return cursor
    # a restored store continues with lower numbers
    settled = min(cursor.mark_id, newest)
    return NoticeCursor(settled, newest, at, cursor.present)


async def _read_rows(conn: AsyncConnection, project_id: str, after: int, since: float) -> list[Any]:
    query = (
        select(ledger)
        .where(
            ledger.c.id > after,
            sql.without_index(ledger.c.project_id) == project_id,
            # by the ids alone: new rows are few, and those of a kind may be many
            sql.without_index(ledger.c.object_kind).in_(("version", "campaign", "alias")),
            sql.without_index(ledger.c.code).in_(CODES),
            ledger.c.at >= since,
        )
        .order_by(ledger.c.id)
        .limit(_MOST_ROWS)
    )
    return list(await conn.execute(query))


async def _read_names(conn: AsyncConnection, rows: Iterable[Any]) -> dict[str, str]:
    """Return the names of the objects of rows, by id."""
    ids = {
        kind: {row.object_id for row in rows if row.object_kind == kind} for kind in ("version", "campaign", "alias")
    }
    names: dict[str, str] = {}
    if ids["version"]:
        of_alias = versions.join(aliases, aliases.c.id == versions.c.alias_id)
        query = select(versions.c.id, aliases.c.name, versions.c.number).select_from(of_alias)
        found = await conn.execute(query.where(versions.c.id.in_(ids["version"])))
        names |= {id_: f"{alias}@{number}" for id_, alias, number in found}
    for table, kind in ((campaigns, "campaign"), (aliases, "alias")):
        if ids[kind]:
            named = await conn.execute(select(table.c.id, table.c.name).where(table.c.id.in_(ids[kind])))
            names.update((row.id, row.name) for row in named)
    return names

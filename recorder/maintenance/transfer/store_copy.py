"""Copy a store: into another database with a comparison of both, or SQLite's file into a backup.

Owns: the order of the work, when a copy is complete, and refusing to copy a store into another database while programs
of Hone have it open. A backup is a new file, readable by its owner only, checked, and complete or absent; it works
while the store is in use and for every version of the schema. Refuses: which database may be the target
(`recorder.maintenance.transfer.target`), other files of the data folder, and stopping programs.

A copy writes each page of rows in one transaction together with its position, so an interrupted copy resumes there. At
the end both sides of every table are read again. If the source changed meanwhile, a resumed copy starts over once.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sqlite3
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import Table, func, insert, select, text
from sqlalchemy.engine import URL
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.base.urls import mask_store_url
from recorder.errors import Conflict, StoreError
from recorder.maintenance.transfer import target as goal
from recorder.maintenance.transfer.tables import (
    TABLES,
    Digest,
    Row,
    digest_of,
    digest_table,
    iterate_pages,
    json_columns,
    primary_key,
    storable_row,
)
from recorder.maintenance.transfer.target import Position
from recorder.queue.leases import is_dead
from recorder.store.changes import mark_quiet
from recorder.store.database import Store
from recorder.store.schema import leases
from recorder.store.sql import now
from recorder.store.sqlite import existing_file_uri
from recorder.store.statement import insert_values


async def list_store_holders(store: Store) -> list[str]:
    """Return the names of the valid leases of all projects, except those of dead processes of this machine."""
    held = (leases.c.lease_owner.is_not(None), leases.c.lease_expires_at > now())
    query = select(leases.c.name, leases.c.lease_owner).where(*held).order_by(leases.c.name)
    async with store.read() as conn:
        return [name for name, owner in await conn.execute(query) if not is_dead(owner)]


async def refuse_in_use(store: Store) -> None:
    """Raise Conflict if a program of Hone uses the store, or did so a moment ago on another machine."""
    held = await list_store_holders(store)
    if held:
        raise Conflict(
            f"programs of Hone use the store {mask_store_url(store.url)} ({', '.join(held)}): "
            "stop `hone up`, `hone serve`, `hone judge`, `hone learn` and `hone train` first. If one died on "
            "another machine, wait a minute."
        )


_STATEMENTS: Final = {table.name: mark_quiet(insert(table).values(insert_values(table))) for table in TABLES}


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Progress of the work: `done` of the `of` rows of one table."""

    doing: Literal["copy", "verify"]
    table: str
    done: int
    of: int


@dataclass(frozen=True, slots=True)
class TableCopyResult:
    """One table, equal on both sides."""

    name: str
    rows: int
    digest: str


@dataclass(frozen=True, slots=True)
class CopyResult:
    """A complete copy. `resumed`: an earlier command began it. `anew`: it started over, because rows had changed."""

    tables: list[TableCopyResult]
    resumed: bool
    anew: bool

    @property
    def rows(self) -> int:
        """The number of rows of all tables."""
        return sum(table.rows for table in self.tables)


async def copy_store(
    source: Store, target: Store, heard: Callable[[CopyProgress], None] = lambda _: None
) -> CopyResult:
    """Copy everything. Raises Conflict if the source is in use or the target is not empty, StoreError if they differ in
    the end."""
    await refuse_in_use(source)
    resumed = await goal.begin_copy(source, target)
    await _copy(source, target, heard)
    verified = await _verified(source, target, heard)
    anew = isinstance(verified, str) and resumed
    if anew:
        await goal.empty_target(target)
        await _copy(source, target, heard)
        verified = await _verified(source, target, heard)
    await refuse_in_use(source)
    if isinstance(verified, str):
        raise StoreError(f"{verified}: the source changed while it was copied. Stop what uses it and start again.")
    await goal.finish_copy(target)
    return CopyResult(verified, resumed, anew)


async def _copy(source: Store, target: Store, heard: Callable[[CopyProgress], None]) -> None:
    positions = await goal.load_positions(target)
    for table in TABLES:
        at = positions[table.name]
        of = await _count(source, table)
        async for page in iterate_pages(source, table, at.after):
            reached = Position(at.rows + len(page), primary_key(table, page[-1]))
            async with target.write() as conn:
                await goal.note_position(conn, table, at, reached)
                await _insert(conn, table, page)
            at = reached
            heard(CopyProgress("copy", table.name, at.rows, of))
        await _count_on(target, table)


async def _insert(conn: AsyncConnection, table: Table, page: list[Row]) -> None:
    if conn.dialect.name == "sqlite":
        names = [column.name for column in table.c]
        await conn.execute(_STATEMENTS[table.name], [dict(zip(names, row, strict=True)) for row in page])
    else:
        from recorder.store import postgres  # asyncpg is an extra

        json_at = json_columns(table)
        await postgres.copy_rows(conn, table, (storable_row(row, json_at) for row in page))


async def _count_on(target: Store, table: Table) -> None:
    """Set PostgreSQL's sequence to the next row number of a table; SQLite reads the rows themselves."""
    column = table.autoincrement_column
    if target.is_sqlite or column is None:
        return
    async with target.write() as conn:
        last = (await conn.execute(select(func.max(column)))).scalar()
        if last is not None:
            named = {"table": table.name, "column": column.name, "last": last}
            await conn.execute(text("select setval(pg_get_serial_sequence(:table, :column), :last)"), named)


async def _verified(source: Store, target: Store, heard: Callable[[CopyProgress], None]) -> list[TableCopyResult] | str:
    """Return all tables if they are equal on both sides, else a text about the first one that differs."""
    same = []
    for table in TABLES:
        here, there = await _both(_digest(source, table, heard), digest_table(target, table))
        if here != there:
            return (
                f"the table {table.name} differs: {here.rows} rows ({here.hex()}) in the source, "
                f"{there.rows} ({there.hex()}) in the copy"
            )
        same.append(TableCopyResult(table.name, here.rows, here.hex()))
    return same


async def _both(one: Coroutine[Any, Any, Digest], other: Coroutine[Any, Any, Digest]) -> tuple[Digest, Digest]:
    """Run both concurrently: while one database reads, the rows of the other are hashed. An error cancels both."""
    beside = asyncio.ensure_future(other)
    try:
        return await one, await beside
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)


async def _digest(source: Store, table: Table, heard: Callable[[CopyProgress], None]) -> Digest:
    of, digest = await _count(source, table), Digest()
    async for page in iterate_pages(source, table):
        digest = digest_of(table, page, digest)
        heard(CopyProgress("verify", table.name, min(digest.rows, of), of))
    return digest


async def _count(store: Store, table: Table) -> int:
    async with store.read() as conn:
        await goal.take_any_time(conn)
        return int((await conn.execute(select(func.count()).select_from(table))).scalar_one())


PAGES: Final = 4096  # pages per step: 16 MiB
_SNAPSHOT: Final = "SELECT count(*) FROM sqlite_master"  # SQLite takes it at the first read


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A complete backup."""

    file: Path
    size_bytes: int


def back_up(source: Path, file: Path, report: Callable[[int, int], None] = lambda *_: None) -> BackupResult:
    """Copy SQLite's file at one moment; call `report` with the number of copied pages and of all pages.

    One snapshot is read from the first page to the last; otherwise steady writes would restart the copy again and
    again. SQLite's WAL grows until the copy is done. Raises StoreError if `file` exists or the copy fails its check.
    """
    if file.exists():
        raise StoreError(f"{file} exists already, and a backup overwrites nothing: name another file")
    try:
        draft = _draft(file)
        try:
            _copy_file(source, draft, report)
            _require_sound(draft)
            os.link(draft, file)  # unlike a rename, it fails if the file was created meanwhile
        finally:
            for left in (draft, *(Path(f"{draft}{end}") for end in ("-wal", "-shm", "-journal"))):
                left.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as e:
        raise StoreError(f"the store {source} cannot be backed up to {file}: {e}") from e
    return BackupResult(file, file.stat().st_size)


def backup_command(url: URL, file: Path) -> str:
    """Return the command that backs up a PostgreSQL database, without its password."""
    # pg_dump accepts a socket's folder as the host. It calls asyncpg's option `ssl` `sslmode`.
    words = {"host": "host", "ssl": "sslmode", "sslmode": "sslmode"}
    query = {words[name]: value for name, value in url.query.items() if name in words}
    plain = URL.create("postgresql", url.username, None, url.host, url.port, url.database, query)
    address = plain.render_as_string().replace("%2F", "/")
    return f"pg_dump --format=custom --file={shlex.quote(str(file))} {shlex.quote(address)}"


def _draft(file: Path) -> Path:
    """Create an empty file in the same folder that only its owner can read, with `mkstemp`."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.absolute().parent)
    os.close(handle)
    return Path(name)


def _copy_file(source: Path, draft: Path, report: Callable[[int, int], None]) -> None:
    with (
        contextlib.closing(sqlite3.connect(existing_file_uri(str(source)), uri=True, isolation_level=None)) as read,
        contextlib.closing(sqlite3.connect(existing_file_uri(str(draft)), uri=True)) as written,
    ):
        read.execute("BEGIN")
        read.execute(_SNAPSHOT).fetchone()
        read.backup(written, pages=PAGES, progress=lambda _, left, pages: report(pages - left, pages), sleep=0)


def _require_sound(draft: Path) -> None:
    with contextlib.closing(sqlite3.connect(existing_file_uri(str(draft)), uri=True)) as copy:
        problems = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(5)")]
    if problems != ["ok"]:
        raise StoreError(
            f"the copy failed its integrity check, so the store is probably damaged: {'; '.join(problems)}"
        )

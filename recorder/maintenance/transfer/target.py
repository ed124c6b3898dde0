"""The target of a copy: an empty database, marked as unfinished until the copy is complete.

Owns: which database may be a target, its mark (in place of the schema's revision, so that no program opens it), and
each table's position, written in the transaction that writes its rows. Refuses: copying
(`recorder.maintenance.transfer.store_copy`).
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Final

from sqlalchemy import Column, Integer, MetaData, Table, Text, delete, exc, inspect, select, text, update
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.base.urls import mask_store_url
from recorder.errors import Conflict, StoreError
from recorder.maintenance.transfer.tables import TABLES, Key
from recorder.processes import file_modes
from recorder.search.documents import queue_all_calls
from recorder.store import bootstrap
from recorder.store.bootstrap import HEAD, UNFINISHED
from recorder.store.changes import mark_quiet
from recorder.store.database import Store
from recorder.store.schema import metadata, projects
from recorder.store.sql import UNHURRIED

DRIVERS: Final = ("postgresql+asyncpg", "sqlite+aiosqlite")
_FORMS: Final = "postgresql+asyncpg://USER@HOST/DATABASE or sqlite+aiosqlite:////FOLDER/hone.db"

_revision = Table("alembic_version", MetaData(), Column("version_num", Text))  # Alembic's table, with one row
# Exists only while a copy is unfinished, so it is not part of the schema.
_progress = Table(
    "hone_copy",
    MetaData(),
    Column("name", Text, primary_key=True),  # a table's
    Column("source", Text, nullable=False),
    Column("rows", Integer, nullable=False),
    Column("after", Text),  # the last key that was written, as JSON
)


@dataclass(frozen=True, slots=True)
class Position:
    """The position of a copy in one table."""

    rows: int
    after: Key | None


async def open_target(url: str) -> Store:
    """Open the database that a copy goes to. Raises StoreError if it cannot be opened, or if Hone cannot use it."""
    read = _read(url)
    if read.get_backend_name() == "sqlite":
        _make_folder_of(read)
    return await bootstrap.open_bare(url)


def _make_folder_of(file: URL) -> None:
    try:
        file_modes.make_folder(Path(str(file.database)).absolute().parent)
    except OSError as e:
        raise StoreError(f"a store cannot be copied to {mask_store_url(file)}: {e}") from e


def _read(url: str) -> URL:
    try:
        read = make_url(url)
    except (exc.ArgumentError, ValueError) as e:  # the URL may contain a password, so it is not repeated
        raise StoreError(f"the URL of --to cannot be read: write {_FORMS}") from e
    if read.drivername not in DRIVERS or read.database in (None, "", ":memory:"):
        raise StoreError(f"a store cannot be copied to {mask_store_url(read)}: write {_FORMS}")
    return read


async def begin_copy(source: Store, target: Store) -> bool:
    """Prepare an empty database, or return True if it has an unfinished copy of this source.

    Raises Conflict if it has other content.
    """
    name = await _identity(source)
    found = await bootstrap.read_revision(target)
    if found == UNFINISHED:
        await _require_same(target, name)
        return True
    await _require_empty(target, found)
    await bootstrap.upgrade_schema(target)
    async with target.write() as conn:
        await conn.run_sync(_progress.create)
        await conn.execute(
            _progress.insert(), [{"name": table.name, "source": name, "rows": 0, "after": None} for table in TABLES]
        )
        await _mark(conn, UNFINISHED)
    return False


async def load_positions(target: Store) -> dict[str, Position]:
    """Return the position in each table."""
    async with target.read() as conn:
        rows = await conn.execute(select(_progress.c.name, _progress.c.rows, _progress.c.after))
        return {name: Position(count, None if after is None else _key(after)) for name, count, after in rows}


async def note_position(conn: AsyncConnection, table: Table, was: Position, now_at: Position) -> None:
    """Note a table's position in the transaction that writes its rows. Raises Conflict if another copy advanced it."""
    here = (_progress.c.name == table.name, _progress.c.rows == was.rows)
    after = None if now_at.after is None else _key_text(now_at.after)
    moved = await conn.execute(update(_progress).where(*here).values(rows=now_at.rows, after=after))
    if moved.rowcount != 1:
        raise Conflict("another `hone db copy` writes into the same database: let only one of them continue")


async def empty_target(target: Store) -> None:
    """Delete all rows that were copied so far."""
    async with target.write() as conn:
        if target.is_sqlite:
            for table in reversed(TABLES):
                await conn.execute(mark_quiet(delete(table)))
        else:  # SQLite checks for each deleted row whether another refers to it
            await conn.execute(text(f"truncate {', '.join(table.name for table in metadata.sorted_tables)}"))
        await conn.execute(update(_progress).values(rows=0, after=None))


async def finish_copy(target: Store) -> None:
    """Remove the mark, so that programs may open the database."""
    async with target.write() as conn:
        await take_any_time(conn)
        await conn.run_sync(_progress.drop)
        await queue_all_calls(conn)
        await _mark(conn, HEAD)
        if not target.is_sqlite:  # PostgreSQL plans by statistics, and has none yet
            await conn.execute(text("analyze"))


async def take_any_time(conn: AsyncConnection) -> None:
    """Remove the time limit for reading a whole table (`recorder.store.postgres` ends statements that hang)."""
    await conn.execution_options(**{UNHURRIED: True})


async def _identity(source: Store) -> str:
    """Return what identifies a store: the random keys of its projects, which never change."""
    async with source.read() as conn:
        rows = await conn.execute(select(projects.c.id, projects.c.node_key))
        known = sorted((id_, bytes(key)) for id_, key in rows)
    return f"{HEAD}:{blake2b(repr(known).encode(), digest_size=16).hexdigest()}"


async def _require_same(target: Store, name: str) -> None:
    async with target.read() as conn:
        if name not in set((await conn.execute(select(_progress.c.source))).scalars()):
            raise Conflict(
                f"{mask_store_url(target.url)} holds an unfinished copy of another store, or one that another version "
                "of Hone began: empty it, or name another database"
            )


async def _require_empty(target: Store, found: str | None) -> None:
    async with target.read() as conn:
        tables = await conn.run_sync(lambda c: inspect(c).get_table_names())
        if found is None and tables:
            raise Conflict(
                f"{mask_store_url(target.url)} is not empty (it has a table {min(tables)!r}): name an empty database"
            )
        if found is not None and found != HEAD:
            raise Conflict(
                f"{mask_store_url(target.url)} is a store already, with schema {found}: name an empty database"
            )
        for table in TABLES if found == HEAD else ():
            if (await conn.execute(select(*table.primary_key).limit(1))).first() is not None:
                raise Conflict(
                    f"{mask_store_url(target.url)} is a store already ({table.name} has rows): name an empty database"
                )


async def _mark(conn: AsyncConnection, revision: str) -> None:
    await conn.execute(update(_revision).values(version_num=revision))


def _key_text(key: Key) -> str:
    return json.dumps([{"bytes": value.hex()} if isinstance(value, bytes) else value for value in key])


def _key(written: str) -> Key:
    return tuple(bytes.fromhex(value["bytes"]) if isinstance(value, dict) else value for value in json.loads(written))

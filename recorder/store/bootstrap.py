"""Open the store: the data folder, the schema's revision, the project.

Owns: who may migrate, the lock for it, and refusing another schema. Refuses: the schema itself
(`recorder.store.schema`) and the migrations (`recorder/store/migrations`).

A new database gets the current schema at once; only a store of an earlier revision is migrated. Tests check that both
ways give the same schema.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Column, MetaData, PrimaryKeyConstraint, String, Table, exc, insert, inspect, select, text
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.schema import CreateIndex, CreateTable

from recorder.base.urls import mask_store_url
from recorder.errors import SchemaMismatch, StoreError, StoreUnavailable
from recorder.processes import file_modes
from recorder.settings import RecorderSettings
from recorder.store import sql
from recorder.store.data_folder import make_data_folder
from recorder.store.database import Project, Store, sqlite_url
from recorder.store.schema import BESIDE, PLACE, metadata, projects
from recorder.store.sql import now

DEFAULT_PROJECT: Final = "default"
# Oldest first; a test compares them with the files in recorder/store/migrations/versions.
REVISIONS: Final = (
    "0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009", "0010", "0011",
    "0012", "0013", "0014", "0015", "0016", "0017", "0018", "0019", "0020", "0021", "0022",
    "0023", "0024", "0025", "0026", "0027", "0028", "0029", "0030", "0031", "0032", "0033",
    "0034", "0035", "0036", "0037", "0038", "0039",
)  # fmt: skip
HEAD: Final = REVISIONS[-1]
UNFINISHED: Final = "unfinished copy"  # in place of a revision, while a copy into this database is unfinished
LOCK_TIMEOUT_S: Final = 120.0
_LOCK_POLL_S: Final = 0.05
_ADVISORY_LOCK: Final = 0x686F6E65  # "hone"
# As Alembic creates and names it; not part of the schema.
_VERSION: Final = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


async def open_store(data: Path, settings: RecorderSettings, *, migrate: bool, project: str = DEFAULT_PROJECT) -> Store:
    """Open the store of a data folder; migrate its schema to this program's (`migrate`), or require that it is equal.

    Raises SchemaMismatch if it differs and `migrate` is False, StoreError if it cannot be opened.
    """
    _refuse_absent(data, settings, migrate)
    folder = make_data_folder(data)
    store = Store(settings.url or sqlite_url(folder), durability=settings.durability)
    async with _closed_on_error(store):
        await (upgrade_schema(store) if migrate else check_schema(store))
        await ensure_project(Project(store, project))
    return store


async def open_to_look(data: Path, settings: RecorderSettings) -> Store:
    """Open the store for read-only programs: nothing is created, migrated or repaired. Raises as `open_store`."""
    _refuse_absent(data, settings, migrate=False)
    store = Store(settings.url or sqlite_url(data), durability=settings.durability)
    async with _closed_on_error(store):
        await check_schema(store)
    return store


async def open_bare(url: str) -> Store:
    """Open a database by its URL with any schema; create its file if it does not exist. Raises StoreError."""
    store = Store(url)
    async with _closed_on_error(store):
        _make_file(store)
        await read_revision(store)
    return store


@asynccontextmanager
async def _closed_on_error(store: Store) -> AsyncIterator[None]:
    """Close a store that cannot be opened, with the reason in one line."""
    try:
        yield
    except BaseException as e:
        await store.close()
        if (why := _fault(e, store)) is not None:
            raise StoreError(f"the store {mask_store_url(store.url)} cannot be opened: {why}") from e
        raise


def _fault(error: BaseException, store: Store) -> str | None:
    """Return the fault of the disk, the file or the server as one line; None for Hone's own errors, and for bugs."""
    if isinstance(error, exc.DBAPIError):
        said = str(error.orig)
        damaged = "not a database" in said or "malformed" in said
        return f"{said}. Restore it from a backup, or choose another folder with --data." if damaged else said
    if isinstance(error, StoreUnavailable):
        return _fault(error.__cause__, store) if error.__cause__ is not None else None
    if isinstance(error, OSError) and not store.is_sqlite and not error.filename:
        return f"{error}. Start PostgreSQL, or correct the URL."
    if isinstance(error, OSError):
        return f"{error}. Repair the folder or its disk, or choose another with --data."
    return None


def has_store(folder: Path, settings: RecorderSettings) -> bool:
    """Return whether a data folder has a store. A store with a URL is assumed to exist."""
    return settings.url is not None or (folder / "hone.db").exists()


def _refuse_absent(folder: Path, settings: RecorderSettings, migrate: bool) -> None:
    if not migrate and not has_store(folder, settings):
        raise StoreError(
            f"there is no store in {folder}. Start `hone up` or `hone serve` with this data folder first, "
            f"make an empty store with `hone db upgrade --data {folder}`, or choose another folder with --data."
        )


async def ensure_project(project: Project) -> None:
    """Create the project if it does not exist, with a key of its own for its content hashes."""
    async with project.store.read() as conn:
        if (await conn.execute(select(projects.c.id).where(projects.c.id == project.id))).first():
            return
    async with project.store.write() as conn:
        row = {"id": project.id, "node_key": secrets.token_bytes(32), "created_at": now()}
        await conn.execute(sql.insert_ignore(conn, projects).values(row))


async def upgrade_schema(store: Store) -> None:
    """Bring the schema to this program's revision, one process at a time."""
    _make_file(store)
    async with _exclusively(store):
        found = await read_revision(store)
        if found == HEAD:
            return
        _refuse_unknown(store, found)
        async with store.write() as conn:
            await conn.execution_options(**{sql.UNHURRIED: True})
            if not store.is_sqlite:
                await conn.execute(text(f"set local lock_timeout = '{LOCK_TIMEOUT_S:.0f}s'"))
                await conn.execute(text("select pg_advisory_xact_lock(:key)"), {"key": _ADVISORY_LOCK})
            # read again under the lock: another process may have created it meanwhile
            is_new = await _revision(conn) is None
            if is_new and not store.is_sqlite:
                await _require_utf8(conn, store)
            await conn.run_sync(_make_schema if is_new else _run_alembic)


async def check_schema(store: Store) -> None:
    """Raise SchemaMismatch unless the store's schema is this program's."""
    found = await read_revision(store)
    if found == HEAD:
        return
    _refuse_unknown(store, found)
    raise SchemaMismatch(
        f"the store {mask_store_url(store.url)} has schema {found or 'none'}, this program needs {HEAD}. Stop what "
        "uses the store, then run `hone db upgrade` (`hone up` and `hone serve` do it by themselves when they start)."
    )


async def read_revision(store: Store) -> str | None:
    """The store's revision, or None for an empty database."""
    async with store.read() as conn:
        return await _revision(conn)


async def _revision(conn: AsyncConnection) -> str | None:
    if not await conn.run_sync(lambda c: inspect(c).has_table(_VERSION.name)):
        return None
    return (await conn.execute(select(_VERSION.c.version_num))).scalar_one_or_none()


def _refuse_unknown(store: Store, found: str | None) -> None:
    if found == UNFINISHED:
        raise SchemaMismatch(
            f"the store {mask_store_url(store.url)} is an unfinished copy: finish it with the `hone db copy` that "
            "began it, before any program uses it."
        )
    if found is not None and found not in REVISIONS:
        raise SchemaMismatch(
            f"the store {mask_store_url(store.url)} has schema {found}, which this program does not know (it knows up "
            f"to {HEAD}): a newer Hone wrote it. Update this Hone, or choose another data folder with --data."
        )


async def _require_utf8(conn: AsyncConnection, store: Store) -> None:
    encoding = (await conn.execute(text("show server_encoding"))).scalar_one()
    if encoding != "UTF8":
        raise StoreError(
            f"the database {mask_store_url(store.url)} keeps text as {encoding}, which cannot store all characters: "
            "create it again with ENCODING 'UTF8' TEMPLATE template0."
        )


def _make_schema(connection: Connection) -> None:
    """Give an empty database the current schema. Existing tables belong to another program: an error."""
    for table in metadata.sorted_tables:
        connection.execute(CreateTable(table))
        for index in sorted(table.indexes, key=lambda each: int(each.info[PLACE])):
            connection.execute(CreateIndex(index))
    for statement in BESIDE[connection.dialect.name]:
        connection.exec_driver_sql(statement)
    _VERSION.create(connection, checkfirst=True)
    connection.execute(insert(_VERSION).values(version_num=HEAD))


def _run_alembic(connection: Connection) -> None:
    # alembic costs 0.2 s to import, and only a migration needs it
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _make_file(store: Store) -> None:
    """Create SQLite's file for its owner only, before SQLite does: the WAL and its index copy the file's mode."""
    if store.is_sqlite and store.url.database:
        file_modes.open_log(Path(store.url.database)).close()


@asynccontextmanager
async def _exclusively(store: Store) -> AsyncIterator[None]:
    """Hold the migration lock. SQLite: a file next to the database; PostgreSQL: taken inside the transaction."""
    if not store.is_sqlite:
        yield
        return
    path = Path(f"{store.url.database}.migrate-lock")
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        await asyncio.to_thread(_lock, handle, path)
        yield
    finally:
        os.close(handle)  # releases the lock


def _lock(handle: int, path: Path) -> None:
    deadline = time.monotonic() + LOCK_TIMEOUT_S
    while not _try_lock(handle):
        if time.monotonic() > deadline:
            raise StoreError(
                f"another process has been migrating the store for {LOCK_TIMEOUT_S:.0f} s ({path} is locked). "
                "Wait for it, or stop it, then start again."
            )
        time.sleep(_LOCK_POLL_S)


def _try_lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

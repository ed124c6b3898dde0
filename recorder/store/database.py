"""The store: one database, opened once per process, with short writing and reading transactions.

Owns: engines, pragmas, BEGIN IMMEDIATE; counting changes at every commit (`recorder.store.changes`) and waiting for
them; reads with a time limit. Refuses: the meaning of any table.

Inside `Store.write()` nothing may be awaited but SQL: the transaction holds SQLite's only write lock.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sqlalchemy import event, exc
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from recorder.base.urls import mask_store_url
from recorder.errors import RolledBack, StoreError, StoreUnavailable, TooSlow
from recorder.store import changes, sqlite
from recorder.store.changes import ChangeWatcher, Counts, SqliteChangePoller
from recorder.store.sqlite import existing_file_uri, file_identity
from recorder.store.statement import column_json

BUSY_TIMEOUT_S = 30.0
_LOOK_EVERY: Final = 10_000  # steps of SQLite's virtual machine between two checks of a limit: less than 1 ms
_DEADLINE: Final = "deadline"  # a key in a pooled connection's info


def sqlite_url(data: Path) -> str:
    """Return the URL of the SQLite store in a data folder."""
    return f"sqlite+aiosqlite:///{data / 'hone.db'}"


def _postgres_faults() -> tuple[type[Exception], ...]:
    try:
        from recorder.store import postgres
    except ModuleNotFoundError as e:
        raise StoreError(
            f"a store on PostgreSQL needs {e.name}, which is not installed: pip install 'hone-proxy[postgres]'"
        ) from e
    return postgres.FAULTS


class _Deadline:
    """The time at which a connection's transaction must have ended; SQLite checks it while it works."""

    def __init__(self) -> None:
        self.at = float("inf")

    def __call__(self) -> bool:
        return time.monotonic() > self.at


class Store:
    """One open database. Use `write()` and `read()`; close with `close()`.

    `read_limit_s`: the time limit of a transaction (PostgreSQL: a statement) of a store that only reads.
    """

    def __init__(
        self,
        url: str | URL,
        *,
        durability: Literal["process", "power"] = "process",
        read_limit_s: float | None = None,
    ) -> None:
        self.url = make_url(url)
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self._durability = durability
        self._limit_s = read_limit_s
        self._file: tuple[int, int] | None = None  # the file that was opened first
        self._faults: tuple[type[Exception], ...] = (
            (exc.OperationalError, exc.TimeoutError) if self.is_sqlite else _postgres_faults()
        )
        # One writer: SQLite has one write lock, and two connections of a process would only wait for each other.
        self._writer = self._engine(begin="BEGIN IMMEDIATE", pool_size=1 if self.is_sqlite else 4)
        self._reader = self._engine(begin="BEGIN", pool_size=4)
        changes.note_topics_on(self._writer.sync_engine)
        self.watch = self._watching()

    def limited(self, read_limit_s: float) -> Store:
        """Return the same database over separate read-only connections with a time limit for each read.

        Readers that use them (pages) take no connection from the writer. A cancelled read raises TooSlow. Close it
        too.
        """
        made = Store(self.url, durability=self._durability, read_limit_s=read_limit_s)
        made._file = self._file
        return made

    @property
    def file(self) -> str | None:
        """SQLite's file; None for PostgreSQL or a database in memory."""
        return None if not self.is_sqlite or self.url.database in ("", ":memory:") else self.url.database

    def _watching(self) -> ChangeWatcher:
        if self.is_sqlite:
            look = SqliteChangePoller(self.file) if self.file is not None else None
            return ChangeWatcher(self._counts) if look is None else ChangeWatcher(look, look.close)
        from recorder.store import postgres  # here and below: asyncpg is an extra

        heard = postgres.PostgresChangeListener(self._reader)
        return ChangeWatcher(heard, heard.close, heard.rest)

    def _engine(self, *, begin: str, pool_size: int) -> AsyncEngine:
        if not self.is_sqlite:
            from recorder.store import postgres

            isolation: Literal["READ COMMITTED", "REPEATABLE READ"] = (
                "REPEATABLE READ" if begin == "BEGIN" else "READ COMMITTED"
            )
            return postgres.create_engine(self.url, pool_size, isolation, self._limit_s)
        engine = create_async_engine(
            self.url,
            pool_size=pool_size,
            max_overflow=0,
            pool_timeout=self._limit_s or BUSY_TIMEOUT_S,
            hide_parameters=True,  # errors are logged and shown, and parameters contain users' text
            # the driver must not begin transactions of its own
            connect_args={"timeout": BUSY_TIMEOUT_S, "isolation_level": None, "async_creator_fn": sqlite.connect},
            json_serializer=column_json,
        )
        synchronous = "FULL" if self._durability == "power" else "NORMAL"

        @event.listens_for(engine.sync_engine, "do_connect")
        def _open(dialect: Any, record: Any, args: list[Any], kwargs: dict[str, Any]) -> None:
            if self.url.database not in (None, "", ":memory:"):
                self._require_same(args[0])
                args[0], kwargs["uri"] = existing_file_uri(args[0]), True

        @event.listens_for(engine.sync_engine, "connect")
        def _connect(connection: Any, record: Any) -> None:
            pragmas = ["journal_mode=WAL", f"synchronous={synchronous}", "foreign_keys=ON", "secure_delete=ON"]
            if self._limit_s is not None:
                pragmas.append("query_only=ON")
                deadline = record.info[_DEADLINE] = _Deadline()
                connection.run_async(lambda driver: driver.set_progress_handler(deadline, _LOOK_EVERY))
            connection.run_async(lambda driver: driver.set_pragmas(pragmas))

        @event.listens_for(engine.sync_engine, "begin")
        def _begin(connection: Any) -> None:
            if self._limit_s is not None:
                connection.info[_DEADLINE].at = time.monotonic() + self._limit_s
            connection.exec_driver_sql(begin)

        return engine

    @asynccontextmanager
    async def write(self) -> AsyncIterator[AsyncConnection]:
        """A writing transaction: committed at the end, rolled back on an exception. Await only SQL inside.

        Raises StoreUnavailable: RolledBack if it may be run again, else it is unknown whether it was committed.
        """
        committing = False
        try:
            async with self._writer.begin() as connection:
                changes.forget_topics(connection)
                yield connection
                counts = await changes.count_changes(connection)
                committing = True
        except self._faults as e:
            refused = self._refusal("write", e, committing=committing)
            if refused is None:
                raise
            raise refused from e
        if counts:
            self.watch.told(counts)

    @asynccontextmanager
    async def read(self) -> AsyncIterator[AsyncConnection]:
        """A reading transaction: one snapshot. Keep it short and page long answers, or the WAL grows."""
        try:
            async with self._reader.begin() as connection:
                yield connection
        except self._faults as e:
            refused = self._refusal("read", e)
            if refused is None:
                raise
            raise refused from e

    async def close(self) -> None:
        """Close every connection."""
        await self.watch.close()
        await self._writer.dispose()
        await self._reader.dispose()

    async def _counts(self) -> Counts:
        async with self.read() as conn:
            return await changes.read_counts(conn)

    def _require_same(self, path: str) -> None:
        """Require that all connections of a store have the same file open, even if another file replaced it.

        A path that cannot be a database is rejected before the driver starts a thread for it, which would stay.
        """
        if Path(path).is_dir():
            raise sqlite3.OperationalError("unable to open database file: it is a folder")
        found = file_identity(path)
        self._file = self._file or found
        if found != self._file:
            raise sqlite3.OperationalError("the file was deleted or replaced while this program had it open")

    def _refusal(self, what: str, error: Exception, *, committing: bool = False) -> StoreUnavailable | None:
        """Return the error for the caller; None if the statement is at fault."""
        if self._limit_s is not None and self._took_too_long(error):
            return TooSlow(f"a {what} of the store was cancelled after {self._limit_s:g} s")
        if self.is_sqlite:
            said = error.orig if isinstance(error, exc.OperationalError) else error
            refused = RolledBack if sqlite.is_passing(said) else StoreUnavailable
            return refused(f"the store {mask_store_url(self.url)} refused a {what}: {said}")
        from recorder.store import postgres

        why = postgres.unavailability(error)
        if why is None:
            return None
        kind = RolledBack if not committing or postgres.was_rolled_back(error) else StoreUnavailable
        return kind(f"the store {mask_store_url(self.url)} refused a {what}: {why}")

    def _took_too_long(self, error: Exception) -> bool:
        """Whether the limit ended it, or no connection was free for that long."""
        if isinstance(error, exc.TimeoutError):
            return True
        said = getattr(error, "orig", None)
        if self.is_sqlite:
            return getattr(said, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT
        return getattr(said, "sqlstate", None) == "57014"  # query_canceled, by statement_timeout


@dataclass(frozen=True, slots=True)
class Project:
    """A project in an open store, which most reads and writes take. Names are unique within a project."""

    store: Store
    id: str

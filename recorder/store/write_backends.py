"""Write backends: how the writer's statements reach the database, one function per writing transaction.

Owns: the direct backend for SQLite, the backend through SQLAlchemy for any database, and checkpoints off the commit
path. Refuses: what is written (`recorder.capture.batch`), and the text of statements (`recorder.store.statement`).

Why a direct backend: SQLAlchemy's async layer passes every statement to a thread. On 2 cores, with three such
hand-overs per statement (now one), a batch of 32 calls took 83 µs per call through it and 39 µs directly; a single call
took 1,280 µs and 90 µs. The direct backend works in the event loop's thread, because SQLite in WAL mode commits to the
page cache, and a hand-over costs more than the commit. It does not block the loop: a locked store is retried from a
timer. While commits are slow (`SLOW_S`), or must survive a power cut, they run in a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, Protocol, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import RolledBack, StoreError, StoreUnavailable
from recorder.store.database import BUSY_TIMEOUT_S, Store
from recorder.store.sql import is_committed, transaction_id
from recorder.store.sqlite import existing_file_uri, file_identity, finish, is_passing
from recorder.store.statement import Statement

R = TypeVar("R")
Row = Sequence[Any]

SLOW_S = 0.05  # after a commit slower than this, the next ones run in a thread, so that the event loop does not block
SLOW_FOR_S = 10.0
_RETRY_S = 0.001
PATIENCE_S = 60.0  # a restart or a failover to a standby takes less
READ_PATIENCE_S = 5.0  # an agent waits for the attribution of its call
_FIRST_PAUSE_S = 0.01
_LONGEST_PAUSE_S = 0.5
FULL_BYTES = 1024 * 1024  # with less free space than this, a disk counts as full


class Executor(Protocol):
    """A connection inside a transaction."""

    def many(self, statement: Statement, rows: Sequence[Row]) -> int:
        """Execute the statement once for each row; return the number of changed rows, or -1 if it is unknown."""

    def all(self, statement: Statement, **values: Any) -> Sequence[Row]:
        """Return every row of a SELECT. A parameter of `IN` takes a list."""


class WriteBackend(Protocol):
    """Executes the writer's transactions and the recorder's lookups."""

    async def start(self) -> None:
        """Open the connections."""

    async def stop(self) -> None:
        """Close the connections."""

    async def write(
        self,
        work: Callable[[Executor], R],
        then: Callable[[AsyncConnection, R], Awaitable[None]] | None = None,
        *,
        large: bool = False,
    ) -> R:
        """Call `work`, and `then`, in one writing transaction; return the result of `work`. Raises StoreUnavailable.

        `large`: it writes so much that other tasks must run meanwhile.
        """

    async def read(self, work: Callable[[Executor], R], *, large: bool = False) -> R:
        """Call `work` on committed data and return its result. Raises StoreUnavailable.

        `large`: it reads so much that other tasks must run meanwhile.
        """

    def trouble(self) -> str | None:
        """Return why a write would fail, as far as that is known without trying; else None."""


class _DirectExecutor:
    __slots__ = ("_connection",)

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def many(self, statement: Statement, rows: Sequence[Row]) -> int:
        return self._connection.executemany(statement.text, rows).rowcount if rows else 0

    def all(self, statement: Statement, **values: Any) -> Sequence[Row]:
        text, flat = statement.spelled(values)
        return self._connection.execute(text, flat).fetchall()


class _CoreExecutor:
    __slots__ = ("_connection",)

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def many(self, statement: Statement, rows: Sequence[Row]) -> int:
        if not rows:
            return 0
        named = [dict(zip(statement.names, row, strict=True)) for row in rows]
        return self._connection.execute(statement.core(self._connection.dialect.name), named).rowcount

    def all(self, statement: Statement, **values: Any) -> Sequence[Row]:
        return self._connection.execute(statement.core(self._connection.dialect.name), values).all()


class StoreBackend:
    """Any database, through the store's own transactions.

    A transaction that was certainly rolled back (the database was unreachable or ended a deadlock) is repeated for
    `patience_s`; its jobs stay in the writer's queue. After a COMMIT without an answer, PostgreSQL is asked whether
    the transaction was committed, so that nothing is written twice.
    """

    def __init__(self, store: Store, patience_s: float = PATIENCE_S) -> None:
        self._store = store
        self._patience_s = patience_s

    async def start(self) -> None:
        """Turn off automatic checkpoints on the store's writing connection."""
        if self._store.is_sqlite:
            async with self._store.write() as conn:
                await conn.exec_driver_sql("PRAGMA wal_autocheckpoint=0")

    async def stop(self) -> None:
        """Do nothing: the store's owner closes it."""

    async def write(
        self,
        work: Callable[[Executor], R],
        then: Callable[[AsyncConnection, R], Awaitable[None]] | None = None,
        *,
        large: bool = False,
    ) -> R:
        """Call `work`, and `then`, in one writing transaction; both may be called again from the beginning."""
        return await _again(lambda: self._transact(work, then), self._patience_s)

    async def read(self, work: Callable[[Executor], R], *, large: bool = False) -> R:
        """Call `work` in one reading transaction."""

        async def reading() -> R:
            async with self._store.read() as conn:
                return await conn.run_sync(lambda c: work(_CoreExecutor(c)))

        return await _again(reading, min(self._patience_s, READ_PATIENCE_S))

    async def _transact(
        self, work: Callable[[Executor], R], then: Callable[[AsyncConnection, R], Awaitable[None]] | None
    ) -> R:
        xid: str | None = None
        try:
            async with self._store.write() as conn:
                result = await conn.run_sync(lambda c: work(_CoreExecutor(c)))
                if then is not None:
                    await then(conn, result)
                xid = None if self._store.is_sqlite else await transaction_id(conn)
        except RolledBack:
            raise
        except StoreUnavailable as e:
            if xid is None:
                raise
            if not await self._was_committed(xid):
                raise RolledBack(f"{e}: it was rolled back") from e
        return result

    async def _was_committed(self, xid: str) -> bool:
        """Return whether a transaction without an answer to its COMMIT was committed. Raises StoreUnavailable."""

        async def ask() -> bool:
            async with self._store.read() as conn:
                committed = await is_committed(conn, xid)
            if committed is None:
                raise RolledBack(f"the database has not finished transaction {xid}")
            return committed

        try:
            return await _again(ask, self._patience_s)
        except RolledBack as e:
            raise StoreUnavailable(f"{e}: it is unknown whether transaction {xid} was committed") from e

    def trouble(self) -> str | None:
        """Return None: only the database knows."""
        return None


async def _again(work: Callable[[], Awaitable[R]], patience_s: float) -> R:
    """Repeat `work` until it is not rolled back, for at most `patience_s` seconds."""
    deadline = time.monotonic() + patience_s
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return await work()
        except RolledBack:
            if time.monotonic() + pause_s > deadline:
                raise
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)


class SqliteBackend:
    """A SQLite file, with separate connections: one that writes, one that reads, and one that reads much, in threads.

    A write that a full disk or another program's lock refused is repeated for `patience_s`.
    """

    def __init__(self, store: Store, durability: Literal["process", "power"], patience_s: float = PATIENCE_S) -> None:
        assert store.url.database is not None
        self._through_store = StoreBackend(store, patience_s=0.0)
        self._patience_s = patience_s
        self._refused: str | None = None  # why the latest write was refused, if it is repeated
        self._path = store.url.database
        self._durability = durability
        self._writer: sqlite3.Connection | None = None
        self._reader: sqlite3.Connection | None = None
        self._large_reader: sqlite3.Connection | None = None
        self._large_reads = asyncio.Lock()  # one thread at a time has that connection
        self._slow_until = 0.0
        self._file: tuple[int, int] | None = None

    async def start(self) -> None:
        """Open the connections."""
        await self._through_store.start()
        synchronous = "FULL" if self._durability == "power" else "NORMAL"
        try:
            self._writer = self._connect(
                f"synchronous={synchronous}", "foreign_keys=ON", "secure_delete=ON", "wal_autocheckpoint=0"
            )
            self._reader = self._connect("query_only=ON")
            self._large_reader = self._connect("query_only=ON")
            self._file = file_identity(self._path)
        except sqlite3.Error as e:
            raise StoreError(f"cannot open the store {self._path}: {e}") from e

    async def stop(self) -> None:
        """Close the connections."""
        async with self._large_reads:
            for connection in (self._writer, self._reader, self._large_reader):
                if connection is not None:
                    connection.close()
        self._writer = self._reader = self._large_reader = None

    async def write(
        self,
        work: Callable[[Executor], R],
        then: Callable[[AsyncConnection, R], Awaitable[None]] | None = None,
        *,
        large: bool = False,
    ) -> R:
        """Call `work` in one transaction; if there is a `then`, which needs SQLAlchemy, through the store."""

        async def writing() -> R:
            try:
                result = await self._write(work, then, large=large)
            except RolledBack as e:
                self._refused = str(e)
                raise
            self._refused = None
            return result

        return await _again(writing, self._patience_s)

    async def _write(
        self,
        work: Callable[[Executor], R],
        then: Callable[[AsyncConnection, R], Awaitable[None]] | None,
        *,
        large: bool,
    ) -> R:
        if then is not None:
            self._require_there()
            return await self._through_store.write(work, then)
        assert self._writer is not None
        await self._begin(self._writer)
        try:
            self._require_there()
        except StoreUnavailable:
            self._roll_back(self._writer)
            raise
        if large or self._durability == "power" or time.monotonic() < self._slow_until:
            # Shielded: a cancelled wait must not leave the connection to two threads.
            return await finish(asyncio.to_thread(self._transact, self._writer, work))
        return self._transact(self._writer, work)

    async def read(self, work: Callable[[Executor], R], *, large: bool = False) -> R:
        """Call `work` on committed data; each statement sees its own snapshot."""
        if large:
            async with self._large_reads:
                return await finish(asyncio.to_thread(self._read, self._large_reader, work))
        return self._read(self._reader, work)

    def _read(self, reader: sqlite3.Connection | None, work: Callable[[Executor], R]) -> R:
        assert reader is not None
        try:
            return work(_DirectExecutor(reader))
        except sqlite3.OperationalError as e:
            raise self._refusal(e, "read") from e

    def trouble(self) -> str | None:
        """Return the problem if the file is no longer the one that was opened, its disk is full, or a refused write is
        repeated; else None.
        """
        if self._gone():
            return self._lost()
        disk = os.statvfs(self._path)
        if disk.f_bavail * disk.f_frsize < FULL_BYTES:
            return f"the disk of {self._path} is full"
        return self._refused

    def _require_there(self) -> None:
        if self._gone():
            raise StoreUnavailable(self._lost())

    def _gone(self) -> bool:
        return self._file is not None and file_identity(self._path) != self._file

    def _lost(self) -> str:
        return (
            f"the store {self._path} was deleted or replaced while this program had it open: restore it, or restart "
            "this program"
        )

    def _connect(self, *pragmas: str) -> sqlite3.Connection:
        connection = sqlite3.connect(
            existing_file_uri(self._path),
            uri=True,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=512,
        )
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        return connection

    async def _begin(self, connection: sqlite3.Connection) -> None:
        deadline = time.monotonic() + BUSY_TIMEOUT_S
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError as e:
                if e.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise self._refusal(e) from e
                await asyncio.sleep(_RETRY_S)
            else:
                return

    def _transact(self, connection: sqlite3.Connection, work: Callable[[Executor], R]) -> R:
        began = time.monotonic()
        try:
            result = work(_DirectExecutor(connection))
            connection.execute("COMMIT")
        except sqlite3.OperationalError as e:
            self._roll_back(connection)
            raise self._refusal(e) from e
        except BaseException:
            self._roll_back(connection)
            raise
        ended = time.monotonic()
        if ended - began > SLOW_S:
            self._slow_until = ended + SLOW_FOR_S
        return result

    def _refusal(self, error: sqlite3.OperationalError, what: str = "write") -> StoreUnavailable:
        kind = RolledBack if is_passing(error) else StoreUnavailable
        return kind(f"the store {self._path} refused a {what}: {error}")

    @staticmethod
    def _roll_back(connection: sqlite3.Connection) -> None:
        with contextlib.suppress(sqlite3.OperationalError):  # SQLite has rolled back by itself if the disk is full
            connection.execute("ROLLBACK")


def choose_backend(store: Store, durability: Literal["process", "power"]) -> WriteBackend:
    """Return the fastest write backend for the store's database."""
    if store.file is not None:
        return SqliteBackend(store, durability)
    return StoreBackend(store)

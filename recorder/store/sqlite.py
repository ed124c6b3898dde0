"""SQLite's driver, made safe for cancellation, and the identity of a database file.

Owns: finishing begun work before a cancellation continues, connections that a cancelled task leaves without a lock, and
telling whether a path still holds the same file. Refuses: transactions (`recorder.store.database`).

Why: a cancelled task leaves its statement to the connection's thread (aiosqlite), and SQLAlchemy closes the connection
meanwhile. Without this module the transaction can stay open, and with it SQLite's only write lock, until Python
collects the connection as garbage. With tasks cancelled at random moments, this happens within a second.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import aiosqlite

R = TypeVar("R")


async def finish(awaitable: Awaitable[R]) -> R:
    """Wait for the end, however often this is cancelled meanwhile; then let the cancellation through.

    An exception of the awaitable is dropped then.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        if not task.cancelled():
            task.exception()
        raise


_CHUNK: Final = 64  # rows, as in `aiosqlite.connect`: no code here reads a cursor row by row


class RollbackPending(sqlite3.Connection):
    """A connection whose end is its transaction's too.

    SQLite keeps a connection open that is closed while a statement is half read, with all its locks.
    """

    def close(self) -> None:
        """Roll back and close."""
        if self.in_transaction:
            with suppress(sqlite3.Error):  # a full disk has rolled back by itself
                self.rollback()
        super().close()


@dataclass(frozen=True, slots=True)
class FinishedStatement:
    """The result of a statement; `description`, `rowcount` and `lastrowid` are those of `sqlite3.Cursor`."""

    rows: Sequence[Any]
    description: Any
    rowcount: int
    lastrowid: int | None


def _run(connection: sqlite3.Connection, many: bool, statement: str, *parameters: Any) -> FinishedStatement:
    cursor = connection.cursor()
    try:
        (cursor.executemany if many else cursor.execute)(statement, *parameters)
        rows = cursor.fetchall() if cursor.description else ()
        return FinishedStatement(rows, cursor.description, cursor.rowcount, cursor.lastrowid)
    finally:
        cursor.close()


def _set_pragmas(connection: sqlite3.Connection, pragmas: Sequence[str]) -> None:
    for pragma in pragmas:
        connection.execute(f"PRAGMA {pragma}").close()


class BufferedCursor:
    """The cursor for SQLAlchemy: the thread gets one job per statement, which opens, runs, reads and closes a cursor.

    aiosqlite's own cursor needs four jobs, and a job costs more than most statements. All rows are read at once, as
    SQLAlchemy does unless it streams; nothing here streams.
    """

    def __init__(self, connection: CancelSafeConnection) -> None:
        self.arraysize = 1
        self._connection = connection
        self._done = FinishedStatement((), None, -1, None)

    async def __aenter__(self) -> Self:
        return self

    @property
    def description(self) -> Any:
        """The columns of its rows; None where the statement has none."""
        return self._done.description

    @property
    def rowcount(self) -> int:
        """How many rows were changed; -1 where the statement changes none."""
        return self._done.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The id of the row that was inserted last."""
        return self._done.lastrowid

    async def execute(self, statement: str, parameters: Iterable[Any] = ()) -> None:
        """Run a statement."""
        self._done = await self._connection.run(False, statement, parameters)

    async def executemany(self, statement: str, parameters: Iterable[Iterable[Any]]) -> None:
        """Run a statement once for each row of parameters."""
        self._done = await self._connection.run(True, statement, parameters)

    async def fetchall(self) -> Sequence[Any]:
        """Every row."""
        return self._done.rows

    async def close(self) -> None:
        """Nothing: SQLite's cursor is closed already."""


class CancelSafeConnection(aiosqlite.Connection):
    """A connection whose thread is never left in the middle of a statement."""

    _stopped: asyncio.Future[Any] | None = None

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # Every statement goes through here. It is not interrupted: SQLite would interrupt the rollback behind it too.
        if not self._running or not self._connection:
            raise ValueError("Connection closed")
        done = asyncio.get_running_loop().create_future()
        self._tx.put_nowait((done, partial(fn, *args, **kwargs)))
        return await finish(done)

    def cursor(self) -> Any:
        """A cursor that needs one job of the thread per statement."""
        return BufferedCursor(self)

    async def run(self, many: bool, statement: str, *parameters: Any) -> FinishedStatement:
        """Run a statement once, or once for each row of parameters, and read all its rows."""
        done: FinishedStatement = await self._execute(_run, self._conn, many, statement, *parameters)
        return done

    async def set_pragmas(self, pragmas: Sequence[str]) -> None:
        """Set pragmas of this connection, such as `foreign_keys=ON`."""
        await self._execute(_set_pragmas, self._conn, pragmas)

    async def rollback(self) -> None:
        """Roll back an open transaction, if any. The pool calls this for every connection that is returned to it."""
        if self._conn.in_transaction:
            await super().rollback()

    async def close(self) -> None:
        """Close after the running statement."""
        if (stopped := self.stop()) is not None:
            await asyncio.wait([stopped])  # which a cancelled wait does not cancel

    def stop(self) -> asyncio.Future[Any] | None:
        """Close after the running statement, and end the thread: once, because an ended thread answers nothing."""
        if self._stopped is None:
            self._stopped = super().stop()
        return self._stopped


def connect(database: str, **given: Any) -> CancelSafeConnection:
    """What `aiosqlite.connect` makes of the same, to be awaited."""
    made = CancelSafeConnection(partial(sqlite3.connect, database, factory=RollbackPending, **given), _CHUNK)
    made._thread.daemon = True  # as SQLAlchemy has it: a store that was not closed holds no program
    return made


def existing_file_uri(path: str) -> str:
    """SQLite's URI of a file that must exist: a file deleted meanwhile must not be created again, empty."""
    return f"file:{quote(path)}?mode=rw"


def file_identity(path: str) -> tuple[int, int] | None:
    """Which file lies at a path: another one may lie there later."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

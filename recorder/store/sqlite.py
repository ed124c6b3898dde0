"""SQLite's driver, made safe for cancellation, and the identity of a database file.

Owns: finishing started work before a cancellation continues, connections that keep no lock after a cancelled task, and
telling whether a path still has the same file. Refuses: transactions (`recorder.store.database`).

Why: a cancelled task leaves its statement to the connection's thread (aiosqlite), and SQLAlchemy closes the connection
meanwhile. Without this module the transaction can stay open, and with it SQLite's only write lock, until Python
collects the connection as garbage. With tasks cancelled at random moments, this happens within a second.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self, TypeVar
from urllib.parse import quote

import aiosqlite
from aiosqlite.core import _STOP_RUNNING_SENTINEL, set_result

R = TypeVar("R")


async def finish(awaitable: Awaitable[R]) -> R:
    """Wait for the end even if this task is cancelled meanwhile, and raise CancelledError only then.

    In that case an exception of the awaitable is dropped.
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


_PASSING: Final = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR})


def is_passing(error: object) -> bool:
    """Whether an error rolled the transaction back and may pass: a lock, or a disk that is full or fails."""
    return getattr(error, "sqlite_errorcode", -1) & 0xFF in _PASSING


_CHUNK: Final = 64  # rows, as in `aiosqlite.connect`: no code here reads a cursor row by row


class RollbackPending(sqlite3.Connection):
    """A connection that rolls back when it is closed.

    SQLite keeps a connection, with all its locks, if it is closed while a statement is not completely read.
    """

    def close(self) -> None:
        """Roll back and close."""
        if self.in_transaction:
            with suppress(sqlite3.Error):  # SQLite has rolled back by itself if the disk is full
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
        """The columns of its rows; None if the statement has none."""
        return self._done.description

    @property
    def rowcount(self) -> int:
        """The number of changed rows; -1 for a statement that changes none."""
        return self._done.rowcount

    @property
    def lastrowid(self) -> int | None:
        """The id of the last inserted row."""
        return self._done.lastrowid

    async def execute(self, statement: str, parameters: Iterable[Any] = ()) -> None:
        """Run a statement."""
        self._done = await self._connection.run(False, statement, parameters)

    async def executemany(self, statement: str, parameters: Iterable[Iterable[Any]]) -> None:
        """Run a statement once for each row of parameters."""
        self._done = await self._connection.run(True, statement, parameters)

    async def fetchall(self) -> Sequence[Any]:
        """Return every row."""
        return self._done.rows

    async def close(self) -> None:
        """Do nothing: SQLite's cursor is closed already."""


class CancelSafeConnection(aiosqlite.Connection):
    """A connection whose thread is never left in the middle of a statement."""

    _stopped: asyncio.Future[Any] | None = None

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # Every statement runs here. It is not interrupted, because SQLite would also interrupt the following rollback.
        if not self._running or not self._connection:
            raise ValueError("Connection closed")
        done = asyncio.get_running_loop().create_future()
        self._tx.put_nowait((done, partial(fn, *args, **kwargs)))
        return await finish(done)

    def cursor(self) -> Any:
        """Return a cursor that needs one job of the thread per statement."""
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
            await asyncio.wait([stopped])  # cancelling this wait does not cancel `stopped`

    def stop(self) -> asyncio.Future[Any] | None:
        """Close after the running statement, and end the thread; only once, because an ended thread does not answer."""
        if self._running:
            self._running = False
            with suppress(RuntimeError):  # collected as garbage where no loop runs: nobody waits
                self._stopped = asyncio.get_running_loop().create_future()
            self._tx.put_nowait((None, partial(self._close_and_end, self._stopped)))
        return self._stopped

    def _close_and_end(self, stopped: asyncio.Future[Any] | None) -> object:
        """Run in the thread."""
        if self._connection is not None:
            with suppress(sqlite3.Error):  # it is gone with its thread
                self._connection.close()
            self._connection = None
        if stopped is not None:
            with suppress(RuntimeError):  # the loop is closed: who was cancelled in `close` does not wait for this
                stopped.get_loop().call_soon_threadsafe(set_result, stopped, None)
        return _STOP_RUNNING_SENTINEL

    async def _connect(self) -> Self:
        # The file is opened completely even if this task is cancelled, so that its thread never answers a closed loop.
        if self._connection is None:
            opened = asyncio.get_running_loop().create_future()
            self._tx.put_nowait((opened, self._connector))
            try:
                await finish(opened)
                self._connection = opened.result()
            except BaseException:
                if opened.done() and not opened.cancelled() and opened.exception() is None:
                    self._connection = opened.result()
                self.stop()
                raise
        return self


def connect(database: str, **given: Any) -> CancelSafeConnection:
    """Return an awaitable connection, as `aiosqlite.connect` does."""
    made = CancelSafeConnection(partial(sqlite3.connect, database, factory=RollbackPending, **given), _CHUNK)
    made._thread.daemon = True  # as in SQLAlchemy: an unclosed store does not keep the program alive
    return made


def existing_file_uri(path: str) -> str:
    """Return SQLite's URI of a file that must exist, so that a deleted file is not created again."""
    return f"file:{quote(path)}?mode=rw"


def file_identity(path: str) -> tuple[int, int] | None:
    """Return what identifies the file at a path, because the file may be replaced; None if there is none."""
    try:
        found = os.stat(path)  # noqa: PTH116 - at each commit: a Path costs 25 function calls
    except OSError:
        return None
    return found.st_dev, found.st_ino

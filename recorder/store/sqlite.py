"""Waits that are cancelled, and end no earlier for it.

Owns: seeing what was begun to its end before a cancellation goes on. Refuses: knowing what it was.

SQLite's driver under SQLAlchemy, so that a wait that is cancelled leaves no lock behind.

Owns: what aiosqlite and SQLAlchemy leave to chance there. A task that is cancelled leaves its statement to the
connection's thread, and SQLAlchemy closes the connection meanwhile. Without this file the transaction can stay open
behind it, and with it SQLite's only write lock: nobody writes until Python finds the connection among its garbage.
With tasks that are cancelled at random moments that happens within a second. Refuses: transactions
(`recorder.store.database`).

A database that is a file: another one may lie at its path later, or none.

Owns: telling which one it is. Refuses: opening it.
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

    What the awaitable raises then is told nobody.
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


_CHUNK: Final = 64  # rows, as `aiosqlite.connect` has it: nobody here reads a cursor row by row


class RollbackPending(sqlite3.Connection):
    """A connection whose end is its transaction's too.

    SQLite keeps a connection that is closed while a statement is half read, with all its locks.
    """

    def close(self) -> None:
        """Roll back and close."""
        if self.in_transaction:
            with suppress(sqlite3.Error):  # a full disk has rolled back by itself
                self.rollback()
        super().close()


@dataclass(frozen=True, slots=True)
class FinishedStatement:
    """What a statement came to. `description`, `rowcount` and `lastrowid` are those of `sqlite3.Cursor`."""

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
    """The cursor that SQLAlchemy asks for: to make it, run it, read it and close it is one hand-over to the thread.

    aiosqlite's own takes four, and a hand-over costs more than most statements. All rows are read at once: SQLAlchemy
    does so in any case, unless it is asked to stream, which no one here does.
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
        """A cursor that needs the thread once a statement."""
        return BufferedCursor(self)

    async def run(self, many: bool, statement: str, *parameters: Any) -> FinishedStatement:
        """Run a statement once, or once for each row of parameters, and read all its rows."""
        done: FinishedStatement = await self._execute(_run, self._conn, many, statement, *parameters)
        return done

    async def set_pragmas(self, pragmas: Sequence[str]) -> None:
        """Set what counts for this connection alone, such as `foreign_keys=ON`."""
        await self._execute(_set_pragmas, self._conn, pragmas)

    async def rollback(self) -> None:
        """Roll back, where there is something to: the pool asks this of every connection that comes back."""
        if self._conn.in_transaction:
            await super().rollback()

    async def close(self) -> None:
        """Close behind what runs."""
        if (stopped := self.stop()) is not None:
            await asyncio.wait([stopped])  # which a cancelled wait does not cancel

    def stop(self) -> asyncio.Future[Any] | None:
        """Close behind what runs, and end the thread: once, as what is asked of an ended thread is never answered."""
        if self._stopped is None:
            self._stopped = super().stop()
        return self._stopped


def connect(database: str, **given: Any) -> CancelSafeConnection:
    """What `aiosqlite.connect` makes of the same, to be awaited."""
    made = CancelSafeConnection(partial(sqlite3.connect, database, factory=RollbackPending, **given), _CHUNK)
    made._thread.daemon = True  # as SQLAlchemy has it: a store that was not closed holds no program
    return made


def existing_file_uri(path: str) -> str:
    """SQLite's URI of a file that must be there: one that was deleted under us must not be made anew, empty."""
    return f"file:{quote(path)}?mode=rw"


def file_identity(path: str) -> tuple[int, int] | None:
    """Which file lies at a path: another one may lie there later."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

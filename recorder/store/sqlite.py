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
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar
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


class CancelSafeConnection(aiosqlite.Connection):
    """A connection whose thread is never left in the middle of a statement."""

    _stopped: asyncio.Future[Any] | None = None

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        # Every statement goes through here. It is not interrupted: SQLite would interrupt the rollback behind it too.
        return await finish(super()._execute(fn, *args, **kwargs))  # type: ignore[no-untyped-call]

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

"""Checkpoints of SQLite's write-ahead log (WAL), off the commit path.

Owns: one thread's connection that moves committed pages from the WAL into the database file.

A passive checkpoint blocks no process, but under steady load it never reaches the end of the WAL, which would grow
without limit. So above `RESTART_PAGES` one short checkpoint blocks writers and lets the WAL restart.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from pathlib import Path

from recorder.base.rate_limited_log import RateLimitedLog
from recorder.store.database import Store
from recorder.store.sqlite import existing_file_uri, file_identity

log = logging.getLogger(__name__)

EVERY_S = 0.5  # at 3,000 calls/s the WAL grows by 75 MB/s
CALM_LOOK_S = 1.0
CALM_EVERY_S = 10.0  # while the WAL is short; otherwise heartbeats alone would cause checkpoints
SHORT_BYTES = 4 * 1024 * 1024
RESTART_PAGES = 8_192  # 32 MiB
RETRY_S = 0.02
_TRUNCATE_WAIT_S = 5.0
RESTART_WAIT_MS = 50  # how long readers may delay a restart, which blocks the writers


class Checkpointer:
    """A task that checkpoints one SQLite file every `EVERY_S`, or every `CALM_EVERY_S` while its WAL is short."""

    def __init__(self, path: str, every_s: float = EVERY_S) -> None:
        self._path = path
        self._every_s = every_s
        self._task: asyncio.Task[None] | None = None
        self._stop = asyncio.Event()
        self._seen_ns = 0
        self._at = float("-inf")  # time of the last checkpoint
        self._file = file_identity(path)
        self._failing = RateLimitedLog(log)
        self._calm = False

    def start(self) -> None:
        """Start the task."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="recorder-checkpoints")

    async def stop(self) -> None:
        """Checkpoint once more, then end."""
        self._stop.set()
        if self._task is not None:
            await self._task

    async def _run(self) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CALM_LOOK_S if self._calm else self._every_s):
                    await self._stop.wait()
            try:
                if self._due():
                    await asyncio.to_thread(checkpoint, self._path)
            except (sqlite3.Error, OSError) as e:
                self._seen_ns = 0  # so that it is repeated
                self._failing(logging.WARNING, "a checkpoint of %s failed (%s); it is retried", self._path, e)

    def _due(self) -> bool:
        """Whether a checkpoint is due: the WAL was written since the last one, and a short WAL can wait."""
        try:
            found = Path(self._path + "-wal").stat()
        except FileNotFoundError:
            return False
        self._calm = found.st_size < SHORT_BYTES and not self._stop.is_set()
        if (self._calm and time.monotonic() - self._at < CALM_EVERY_S) or found.st_mtime_ns == self._seen_ns:
            return False
        if file_identity(self._path) != self._file:  # the WAL's pages belong to the original file
            raise FileNotFoundError("the file was deleted or replaced")
        self._seen_ns, self._at = found.st_mtime_ns, time.monotonic()
        return True


def checkpoint(path: str) -> int:
    """Checkpoint the WAL over a new connection; return the number of its pages."""
    with contextlib.closing(
        sqlite3.connect(existing_file_uri(path), uri=True, timeout=0, isolation_level=None)
    ) as connection:
        _, pages, _ = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages >= RESTART_PAGES:
            connection.execute(f"PRAGMA busy_timeout={RESTART_WAIT_MS}")
            connection.execute("PRAGMA wal_checkpoint(RESTART)")
        return int(pages)


async def empty_log(store: Store) -> bool:
    """Empty SQLite's WAL, which still has old pages. Returns False if readers kept it open; call again."""
    if store.file is None:
        return True
    return await asyncio.to_thread(truncate_log, store.file, _TRUNCATE_WAIT_S)


def truncate_log(path: str, wait_s: float) -> bool:
    """Move the whole WAL into the database file and empty it; False if readers kept it open for `wait_s`.

    SQLite itself waits for readers, but not for another checkpoint, such as the proxy's twice a second.
    """
    deadline = time.monotonic() + wait_s
    with contextlib.closing(
        sqlite3.connect(existing_file_uri(path), uri=True, timeout=wait_s, isolation_level=None)
    ) as connection:
        while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() > deadline:
                return False
            time.sleep(RETRY_S)
        return True

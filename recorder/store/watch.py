"""Waiting until something in the store changed, without asking the store what did.

Owns: one look at the counters of `recorder.store.changes` every `EVERY_S` for a whole process, only while somebody
waits, and waking whoever waits for a topic that counted up. Refuses: knowing what a change was: who is woken looks.

On PostgreSQL a look is at what was heard meanwhile (`recorder.store.postgres`), and what is heard ends the rest.
On SQLite a look is `PRAGMA data_version` on a connection of the watch's own, which never writes, so that what this
process's other connections commit is seen as well as what others do; only where it differs the counters are read. What
this process commits wakes at once: `told` is called behind each commit. A counter that differs wakes, whichever way: a
database that was put back from a copy counts from where the copy was.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Final

from recorder.errors import StoreUnavailable
from recorder.store import changes
from recorder.store.changes import Counts, Topic

log = logging.getLogger(__name__)

EVERY_S: Final = 0.125  # workers are to hear of changes within 0.25 s, and then look themselves
SAME_FILE_LOOKS: Final = 8  # how many looks a file that was put in another's place may go unnoticed

Rest = Callable[[float], Awaitable[None]]
Look = Callable[[], Awaitable[Counts | None]]  # the counts, or None: nothing was committed since the last look


class News:
    """What one waits for."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._event.set()  # what came before is news to who has just begun

    def tell(self) -> None:
        """Wake it, also for a reason that lies outside the store."""
        self._event.set()

    async def wait(self, within_s: float | None = None) -> bool:
        """Return when something changed since it last did, or after so many seconds. The first wait is over at once.

        Do the work after it, not before: what changes meanwhile ends the next wait. Returns whether there was news.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._event.wait()
        came = self._event.is_set()
        self._event.clear()
        return came


class Watch:
    """One a store. `with watch.on(topic, …) as news: await news.wait()`."""

    def __init__(self, look: Look, close: Callable[[], None] = lambda: None, rest: Rest = asyncio.sleep) -> None:
        self._look = look
        self._close = close
        self._rest = rest  # until the next look
        self._waiting: dict[News, frozenset[Topic]] = {}
        self._counts: Counts | None = None  # as last seen; None: not looked yet
        self._resting = False  # between two looks
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def on(self, *topics: Topic) -> Iterator[News]:
        """Somebody waits for these topics until the block ends."""
        news = News()
        self._waiting[news] = frozenset(topics)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="watch the store")
        try:
            yield news
        finally:
            self._waiting.pop(news, None)  # it is not there after `close`

    def told(self, counts: Counts) -> None:
        """This process committed a change: these counts are news now, and none when the watch sees them."""
        if self._counts is not None:
            self._counts = {**self._counts, **counts}
        self._wake(counts)

    async def close(self) -> None:
        """Stop looking. Nobody is woken any more."""
        self._waiting.clear()
        if self._task is not None:
            if self._resting:  # a look is not cut off: it would leave its connection's thread behind
                self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        failing = False
        try:
            while self._waiting:
                try:
                    self._compare(await self._look())
                    failing = False
                except StoreUnavailable as e:
                    if not failing:
                        log.warning("the store does not tell what changes, asking on: %s", e)
                    failing = True
                    self._counts = None
                self._resting = True
                await self._rest(EVERY_S)
                self._resting = False
        finally:
            self._resting = False
            self._counts = None
            self._close()

    def _compare(self, counts: Counts | None) -> None:
        if counts is None:
            return
        seen, self._counts = self._counts, counts
        topics = counts.keys() | seen.keys() if seen is not None else ()
        self._wake(Topic if seen is None else [t for t in topics if counts.get(t) != seen.get(t)])

    def _wake(self, topics: Iterable[str]) -> None:
        changed = frozenset(topics)
        for news, wanted in self._waiting.items():
            if wanted & changed:
                news.tell()


class SqliteLook:
    """A look at a SQLite file, on a connection that never writes. In the event loop's own thread: it takes 10 µs."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # which file the connection has open
        self._version: int | None = None
        self._looks = 0

    async def __call__(self) -> Counts | None:
        """The counts where anything was committed since the last look. Raises StoreUnavailable."""
        try:
            return self._look()
        except (sqlite3.Error, OSError) as e:
            self.close()
            raise StoreUnavailable(f"{self._path} cannot be read: {e}") from e

    def _look(self) -> Counts | None:
        connection = self._opened()
        (version,) = connection.execute("PRAGMA data_version").fetchone()
        if version == self._version:
            return None
        counts = dict(connection.execute(changes.READ).fetchall())
        self._version = version  # read before them: what is committed in between is looked at twice
        return counts

    def _opened(self) -> sqlite3.Connection:
        """The connection; a new one where another file was put in the old one's place."""
        self._looks += 1
        if self._connection is not None and self._looks % SAME_FILE_LOOKS:
            return self._connection
        found = self._path.stat()
        if self._connection is None or self._file != (found.st_dev, found.st_ino):
            self.close()
            address = f"{self._path.absolute().as_uri()}?mode=rw"  # a file that is not there is not made
            self._connection = sqlite3.connect(address, uri=True, timeout=0, isolation_level=None)
            self._connection.execute("PRAGMA query_only=ON")
            self._file = (found.st_dev, found.st_ino)
        return self._connection

    def close(self) -> None:
        """Close the connection. The next look opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._version = None

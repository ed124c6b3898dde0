"""Change counters by topic, and waiting for a change without polling tables.

Owns: which tables belong to which topic, each topic's row, incrementing it inside the writing transaction, and one poll
of the counters every `EVERY_S` per process, only while a caller waits. Callers need not count: `Store.write` calls
`topic_of` for every statement that it executes. Refuses: what changed; a woken caller queries that.

A statement that no process waits for (a renewed lease, the time of a last call) is marked by `mark_quiet`, so that it
does not wake processes needlessly.

On PostgreSQL a poll reads the notifications received meanwhile (`recorder.store.postgres`), and a notification ends the
pause at once. On SQLite a poll is `PRAGMA data_version` on a connection that never writes, so it shows commits of this
and of other processes; the counters are read only if it differs. A commit of this process wakes waiters at once. A
lower counter wakes them too, because a restored database continues with the counters of its backup.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Final, TypeVar

from sqlalchemy import Executable, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, CursorResult, Engine
from sqlalchemy.event import listen
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import UpdateBase

from recorder.errors import StoreUnavailable
from recorder.store.schema import changes

S = TypeVar("S", bound=Executable)
Counts = Mapping[str, int]


class Topic(StrEnum):
    """A kind of change that a process can wait for."""

    SERVICE = "service"  # aliases moved, versions that changed state, adapters that are tried
    ENGINES = "engines"  # what engine replicas serve
    PROXIES = "proxies"  # what proxies have seen, and still hold
    GROUPS = "groups"  # groups that changed state
    RUNS = "runs"  # trajectories that ended, were repinned or deleted
    LEASES = "leases"  # leases acquired and released
    CAMPAIGNS = "campaigns"  # campaigns and gates that began, made a step or ended
    SETTINGS = "settings"  # settings that people changed at run time


TOPIC_OF: Final[Mapping[str, Topic]] = {
    "aliases": Topic.SERVICE,
    "versions": Topic.SERVICE,
    "adapter_trials": Topic.SERVICE,
    "replicas": Topic.ENGINES,
    "proxies": Topic.PROXIES,
    "groups": Topic.GROUPS,
    "trajectories": Topic.RUNS,
    "leases": Topic.LEASES,
    "campaigns": Topic.CAMPAIGNS,
    "setting_changes": Topic.SETTINGS,
}

_QUIET: Final = "hone_quiet"
_NOTED: Final = "hone_changed"  # the key of a transaction's topics in a connection
READ: Final = "SELECT topic, count FROM changes"
CHANNEL: Final = "hone_changes"  # of PostgreSQL's NOTIFY


def mark_quiet(statement: S) -> S:
    """Return the statement with a mark that its changes need no notification."""
    return statement.execution_options(**{_QUIET: True})


def topic_of(statement: Executable) -> Topic | None:
    """Return the topic that a statement increments; None for a read, a quiet write, and a table without a topic."""
    if not isinstance(statement, UpdateBase) or statement.get_execution_options().get(_QUIET):
        return None
    return TOPIC_OF.get(statement.table.name) if isinstance(statement.table, Table) else None


def note_topics_on(engine: Engine) -> None:
    """Note the topics of statements on an engine's connections, for `count_changes`."""
    listen(engine, "after_execute", _note)


def _note(
    connection: Connection, statement: Executable, _many: object, _values: object, _options: object, result: Any
) -> None:
    topic = topic_of(statement)
    if topic is not None and (not isinstance(result, CursorResult) or result.rowcount != 0):  # -1: unknown
        connection.info.setdefault(_NOTED, set()).add(topic)


def forget_topics(connection: AsyncConnection) -> None:
    """Clear the noted topics: the earlier transaction on this connection was rolled back, or counted."""
    connection.info.pop(_NOTED, None)


async def count_changes(connection: AsyncConnection) -> Counts:
    """Increment the topics that this transaction changed, as its last statement; return the new counts."""
    noted: set[Topic] = connection.info.pop(_NOTED, set())
    if not noted:
        return {}
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    # in a fixed order, so that two transactions cannot deadlock (PostgreSQL)
    new = insert(changes).values([{"topic": topic, "count": 1} for topic in sorted(noted)])
    counted = new.on_conflict_do_update(index_elements=["topic"], set_={"count": changes.c.count + 1})
    counts = await _rows(connection, counted.returning(changes.c.topic, changes.c.count))
    if connection.dialect.name == "postgresql":  # listeners are notified when this commits
        await connection.execute(select(func.pg_notify(CHANNEL, " ".join(f"{t}={n}" for t, n in counts.items()))))
    return counts


def parse_notification(payload: str) -> Counts:
    """Return the counts in a notification."""
    return {topic: int(count) for topic, _, count in (one.partition("=") for one in payload.split())}


async def read_counts(connection: AsyncConnection) -> Counts:
    """Return all counts."""
    return await _rows(connection, select(changes.c.topic, changes.c.count))


async def _rows(connection: AsyncConnection, statement: Executable) -> Counts:
    return {str(topic): int(count) for topic, count in await connection.execute(statement)}


log = logging.getLogger(__name__)

EVERY_S: Final = 0.125  # half of the 0.25 s within which workers must notice a change
SAME_FILE_LOOKS: Final = 8  # how many polls may pass before a replaced file is noticed

Rest = Callable[[float], Awaitable[None]]
Look = Callable[[], Awaitable[Counts | None]]  # the counts, or None: nothing was committed since the last poll


class ChangeSignal:
    """Wakes one waiting caller."""

    def __init__(self) -> None:
        self._event = asyncio.Event()
        self._event.set()  # a new waiter has not seen earlier changes

    def tell(self) -> None:
        """Wake the waiting caller, also for a reason outside the store."""
        self._event.set()

    async def wait(self, within_s: float | None = None) -> bool:
        """Wait until something changed since the last return, or for `within_s`. The first call returns at once.

        Do the work after it, not before: changes during the work end the next wait. Returns whether something changed.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._event.wait()
        came = self._event.is_set()
        self._event.clear()
        return came


class ChangeWatcher:
    """One per store. `with watch.on(topic, …) as news: await news.wait()`."""

    def __init__(self, look: Look, close: Callable[[], None] = lambda: None, rest: Rest = asyncio.sleep) -> None:
        self._look = look
        self._close = close
        self._rest = rest  # pauses until the next poll
        self._waiting: dict[ChangeSignal, frozenset[Topic]] = {}
        self._counts: Counts | None = None  # as last read; None: not read yet
        self._resting = False  # between two polls
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def on(self, *topics: Topic) -> Iterator[ChangeSignal]:
        """Register a caller that waits for these topics until the block ends."""
        news = ChangeSignal()
        self._waiting[news] = frozenset(topics)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run(), name="watch the store")
        try:
            yield news
        finally:
            self._waiting.pop(news, None)  # it is absent after `close`

    def told(self, counts: Counts) -> None:
        """Note counts that this process committed: they wake waiting callers now, and not again at the next poll."""
        if self._counts is not None:
            self._counts = {**self._counts, **counts}
        self._wake(counts)

    async def close(self) -> None:
        """Stop polling. No caller is woken after this."""
        self._waiting.clear()
        if self._task is not None:
            if self._resting:  # a poll is not cancelled: it would leak its connection's thread
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
                        log.warning("changes in the store cannot be read; retrying: %s", e)
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


class SqliteChangePoller:
    """Polls a SQLite file on a connection that never writes. It runs in the event loop's thread: a poll takes 10 µs."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None  # the file that the connection has open
        self._version: int | None = None
        self._looks = 0

    async def __call__(self) -> Counts | None:
        """Return the counts if anything was committed since the last poll, else None. Raises StoreUnavailable."""
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
        counts = dict(connection.execute(READ).fetchall())
        self._version = version  # read before the counts, so that a commit in between is not missed
        return counts

    def _opened(self) -> sqlite3.Connection:
        """Return the connection; a new one if another file replaced the old one."""
        self._looks += 1
        if self._connection is not None and self._looks % SAME_FILE_LOOKS:
            return self._connection
        found = self._path.stat()
        if self._connection is None or self._file != (found.st_dev, found.st_ino):
            self.close()
            address = f"{self._path.absolute().as_uri()}?mode=rw"  # a missing file is not created
            self._connection = sqlite3.connect(address, uri=True, timeout=0, isolation_level=None)
            self._connection.execute("PRAGMA query_only=ON")
            self._file = (found.st_dev, found.st_ino)
        return self._connection

    def close(self) -> None:
        """Close the connection. The next poll opens another."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._version = None

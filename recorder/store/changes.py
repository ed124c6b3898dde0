"""What changed, as counters by topic: a writing transaction counts up the topics of the tables that it wrote.

Owns: which tables stand for which topic, the row of each topic, and counting up inside the transaction that writes.
No caller counts: `Store.write` asks `topic_of` about every statement that it executes, so none can be forgotten.
Refuses: waiting (`recorder.store.watch`).

A statement that changes nothing anybody waits for (a lease renewed, a time of a last call) says so by `quietly`: it
would wake every process for nothing. Whoever forgets that loses a little time, and nobody a change.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, TypeVar

from sqlalchemy import Executable, Table, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, CursorResult, Engine
from sqlalchemy.event import listen
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import UpdateBase

from recorder.store.schema import changes

S = TypeVar("S", bound=Executable)
Counts = Mapping[str, int]


class Topic(StrEnum):
    """What a process may wait for."""

    SERVICE = "service"  # aliases moved, versions that changed state
    ENGINES = "engines"  # what engine replicas serve
    PROXIES = "proxies"  # what proxies have seen, and still hold
    GROUPS = "groups"  # groups that changed state
    RUNS = "runs"  # runs that ended, were pinned anew or deleted
    LEASES = "leases"  # names taken and let go
    CAMPAIGNS = "campaigns"  # begun, a step further, ended: gates' too


TOPIC_OF: Final[Mapping[str, Topic]] = {
    "aliases": Topic.SERVICE,
    "versions": Topic.SERVICE,
    "replicas": Topic.ENGINES,
    "proxies": Topic.PROXIES,
    "groups": Topic.GROUPS,
    "trajectories": Topic.RUNS,
    "leases": Topic.LEASES,
    "campaigns": Topic.CAMPAIGNS,
}

_QUIET: Final = "hone_quiet"
_NOTED: Final = "hone_changed"  # where a connection keeps the topics of its transaction
READ: Final = "SELECT topic, count FROM changes"
CHANNEL: Final = "hone_changes"  # of PostgreSQL's NOTIFY


def quietly(statement: S) -> S:
    """The statement, marked: it changes nothing that anybody waits for."""
    return statement.execution_options(**{_QUIET: True})


def topic_of(statement: Executable) -> Topic | None:
    """The topic that a statement counts up; None for a question, a quiet write, and a table that nobody waits for."""
    if not isinstance(statement, UpdateBase) or statement.get_execution_options().get(_QUIET):
        return None
    return TOPIC_OF.get(statement.table.name) if isinstance(statement.table, Table) else None


def note_on(engine: Engine) -> None:
    """Note the topics of what is executed on an engine's connections, for `count_up`."""
    listen(engine, "after_execute", _note)


def _note(
    connection: Connection, statement: Executable, _many: object, _values: object, _options: object, result: Any
) -> None:
    topic = topic_of(statement)
    if topic is not None and (not isinstance(result, CursorResult) or result.rowcount != 0):  # -1: it cannot tell
        connection.info.setdefault(_NOTED, set()).add(topic)


def forget(connection: AsyncConnection) -> None:
    """Begin anew: what an earlier transaction noted on this connection was rolled back, or counted."""
    connection.info.pop(_NOTED, None)


async def count_up(connection: AsyncConnection) -> Counts:
    """Count up what this transaction changed, as its last statement; the new counts."""
    noted: set[Topic] = connection.info.pop(_NOTED, set())
    if not noted:
        return {}
    insert = sqlite.insert if connection.dialect.name == "sqlite" else postgresql.insert
    # in one order: two transactions that each hold what the other wants would wait for each other (PostgreSQL)
    new = insert(changes).values([{"topic": topic, "count": 1} for topic in sorted(noted)])
    counted = new.on_conflict_do_update(index_elements=["topic"], set_={"count": changes.c.count + 1})
    counts = await _rows(connection, counted.returning(changes.c.topic, changes.c.count))
    if connection.dialect.name == "postgresql":  # who listens is told when this commits
        await connection.execute(select(func.pg_notify(CHANNEL, " ".join(f"{t}={n}" for t, n in counts.items()))))
    return counts


def told_by(payload: str) -> Counts:
    """The counts that a notification carries."""
    return {topic: int(count) for topic, _, count in (one.partition("=") for one in payload.split())}


async def read(connection: AsyncConnection) -> Counts:
    """All counts."""
    return await _rows(connection, select(changes.c.topic, changes.c.count))


async def _rows(connection: AsyncConnection, statement: Executable) -> Counts:
    return {str(topic): int(count) for topic, count in await connection.execute(statement)}

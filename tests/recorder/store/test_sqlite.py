"""The connection under SQLAlchemy: a statement is one job of its thread, and its cursor says what SQLite's would."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
import time
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from recorder.store.database import Store
from recorder.store.sqlite import CancelSafeConnection, connect


@pytest.fixture
async def connection(tmp_path: Path) -> AsyncIterator[CancelSafeConnection]:
    opened = connect(str(tmp_path / "one.db"), isolation_level=None)
    await opened
    await opened.cursor().execute("create table t (id integer primary key, name text not null)")
    yield opened
    await opened.close()


async def test_a_cursor_says_what_sqlites_cursor_says(connection: CancelSafeConnection, tmp_path: Path) -> None:
    steps = [
        ("execute", "insert into t (name) values (?)", ("a",)),
        ("executemany", "insert into t (name) values (?)", [("b",), ("c",)]),
        ("execute", "insert into t (name) values (?), (?) returning id", ("d", "e")),
        ("execute", "update t set name = 'f' where id > ?", (2,)),
        ("execute", "select id, name from t order by id", ()),
        ("execute", "select id from t where id > ?", (9,)),
        ("execute", "delete from t", ()),
    ]
    cursor = connection.cursor()
    with sqlite3.connect(tmp_path / "other.db", isolation_level=None) as plain:
        plain.execute("create table t (id integer primary key, name text not null)")
        for call, statement, parameters in steps:
            theirs = plain.cursor()
            await getattr(cursor, call)(statement, parameters)
            getattr(theirs, call)(statement, parameters)
            rows = theirs.fetchall() if theirs.description else []
            assert list(await cursor.fetchall()) == rows, statement
            assert (cursor.description, cursor.lastrowid) == (theirs.description, theirs.lastrowid), statement
            assert cursor.rowcount == theirs.rowcount, statement
    plain.close()


async def test_a_statement_that_fails_raises_sqlites_error_and_the_next_one_runs(
    connection: CancelSafeConnection,
) -> None:
    cursor = connection.cursor()
    with pytest.raises(sqlite3.IntegrityError):
        await cursor.execute("insert into t (name) values (?)", (None,))
    await cursor.execute("select count(*) from t")
    assert list(await cursor.fetchall()) == [(0,)]


async def test_a_rollback_takes_an_open_transaction_back(connection: CancelSafeConnection) -> None:
    cursor = connection.cursor()
    await connection.rollback()  # none is open
    await cursor.execute("begin immediate")
    await cursor.execute("insert into t (name) values ('a')")
    await connection.rollback()
    assert not connection.in_transaction
    await cursor.execute("select count(*) from t")
    assert list(await cursor.fetchall()) == [(0,)]


async def test_a_closed_connection_refuses_statements(connection: CancelSafeConnection) -> None:
    await connection.close()
    with pytest.raises(ValueError, match="no active connection"):
        await connection.set_pragmas(["foreign_keys=ON"])


@pytest.mark.sqlite_only("its driver")
async def test_a_read_needs_the_thread_for_begin_statement_and_commit(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[str] = []
    queue = CancelSafeConnection._execute

    async def counted(self: CancelSafeConnection, fn: object, *args: object) -> object:
        jobs.append(str(getattr(fn, "__name__", fn)))
        return await queue(self, fn, *args)  # type: ignore[arg-type]

    async with store.read() as conn:  # opens the connection
        await conn.execute(text("select 1"))
    monkeypatch.setattr(CancelSafeConnection, "_execute", counted)
    async with store.read() as conn:
        assert (await conn.execute(text("select 1 union all select 2"))).all() == [(1,), (2,)]
    assert jobs == ["_run", "_run", "commit"]


@pytest.mark.parametrize("moment", ["while it opens", "while it closes"])
def test_a_loop_that_ends_before_a_connections_thread_is_told_to_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """A page's reader is cancelled as the program ends: the thread finds the loop closed."""
    failures: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", failures.append)

    class Slow(sqlite3.Connection):
        def __init__(self, *given: Any, **named: Any) -> None:
            time.sleep(0.1)
            super().__init__(*given, **named)

        def close(self) -> None:
            time.sleep(0.1)
            super().close()

    connection = connect(str(tmp_path / "one.db"))
    connection._connector = partial(sqlite3.connect, tmp_path / "one.db", factory=Slow, check_same_thread=False)

    async def use() -> None:
        if moment == "while it opens":
            opening = asyncio.ensure_future(connection)
            await asyncio.sleep(0.02)
            opening.cancel()
            await asyncio.wait([opening])
            assert opening.cancelled()
        else:
            await connection
            closing = asyncio.ensure_future(connection.close())
            await asyncio.sleep(0.02)
            closing.cancel()

    asyncio.run(use())
    connection._thread.join(10)
    assert not connection._thread.is_alive()
    assert failures == []

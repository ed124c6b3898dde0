"""A key under which a hundred thousand groups were opened costs what a fresh key costs, on both stores."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Select, insert, literal, make_url, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.capture import statements
from recorder.states import GroupState
from recorder.store.database import Store
from recorder.store.schema import groups
from recorder.store.statement import Statement
from tests.recorder.talk import PROJECT, Talk, user

CLOSED, OPEN = 100_000, 10_000
CASES: dict[str, Callable[[str], dict[str, str]]] = {
    "NEWEST_OPEN_IMPLICIT": lambda key: {"keys": json.dumps([key])},
    "LAST_SEQUENCES": lambda key: {"keys": json.dumps([key]), "states": json.dumps(list(GroupState))},
    "NEWEST_EXPLICIT": lambda key: {"keys": json.dumps([key])},
    "NEWEST_OF_OWNER": lambda key: {"name": key, "owner": ""},
}


async def open_many(conn: AsyncConnection, key: str, closed: int, opened: int) -> None:
    """Write the groups of a key: some with running members, and later ones that have closed."""
    numbers = select(literal(0).label("n")).cte("numbers", recursive=True)
    numbers = numbers.union_all(select(numbers.c.n + 1).where(numbers.c.n < closed + opened - 1))
    n = numbers.c.n
    named = {"external_id": text(f"'{key}'"), "implicit_key": text(f"'{key}'")}
    state = text(f"CASE WHEN n < {opened} THEN 'open' ELSE 'trained' END")
    fixed = {"project_id": text(f"'{PROJECT}'"), "opened_at": n, "joined_at": n, "last_call_at": n}
    columns: dict[str, Any] = {"id": text(f"'{key}' || n"), "sequence": n, "state": state} | named | fixed
    await conn.execute(insert(groups).from_select(list(columns), select(*columns.values()).select_from(numbers)))


async def cost_of(store: Store, statement: Statement, values: dict[str, Any]) -> int:
    """The steps of SQLite's machine, or the pages that PostgreSQL reads."""
    if store.is_sqlite:
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        said, flat = statement.spelled(values)
        connection = sqlite3.connect(str(make_url(store.url).database))
        connection.set_progress_handler(count, 1)
        connection.execute(said, flat).fetchall()
        connection.close()
        return steps
    async with store.write() as conn:
        core = statement.core("postgresql")
        assert isinstance(core, Select)
        said = str(core.params(values).compile(dialect=conn.dialect, compile_kwargs={"literal_binds": True}))
        plan = (await conn.exec_driver_sql("EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + said)).scalar_one()
        top = (plan if isinstance(plan, list) else json.loads(plan))[0]["Plan"]
        return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


@pytest.mark.slow
async def test_a_key_with_many_groups_costs_what_a_fresh_one_costs(store: Store, talk: Talk) -> None:
    await talk.call([user("?")], "!")
    async with store.write() as conn:
        await open_many(conn, "crowded", CLOSED, OPEN)
        await open_many(conn, "fresh", 1, 1)
    if not store.is_sqlite:
        async with store.write() as conn:
            await conn.exec_driver_sql("ANALYZE groups")
    most = 0 if store.is_sqlite else 4  # pages: an index of more rows is deeper
    for name, values in CASES.items():
        statement = getattr(statements, name)
        crowded, fresh = [
            await cost_of(store, statement, {"project": PROJECT, **values(key)}) for key in ("crowded", "fresh")
        ]
        assert crowded <= 1.1 * fresh + most, (name, crowded, fresh)

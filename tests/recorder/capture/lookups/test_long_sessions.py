"""A turn of a client that names a session costs the same after thousands of calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Table, insert, literal, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.capture.lookups import recorded_calls, statements
from recorder.messages.calls import ANYBODY, ParentCall
from recorder.store.database import Store
from recorder.store.schema import calls, choices
from recorder.store.statement import Statement
from tests.recorder.capture.test_crowded_keys import cost_of
from tests.recorder.talk import PROJECT, Talk, user

LONG = 20_000


async def copy(conn: AsyncConnection, table: Table, column: str, call_id: str, times: int, **changes: Any) -> None:
    """Write copies of a call's rows, with the ids `copy0`, `copy1` …"""
    numbers = select(literal(0).label("n")).cte("numbers", recursive=True)
    numbers = numbers.union_all(select(numbers.c.n + 1).where(numbers.c.n < times - 1))
    columns = {c.name: c for c in table.c} | {column: text("'copy' || n")} | changes
    rows = select(*columns.values()).select_from(table.join(numbers, text("true"))).where(table.c[column] == call_id)
    await conn.execute(insert(table).from_select(list(columns), rows))


async def nodes_of(store: Store) -> list[bytes]:
    async with store.read() as conn:
        return [row[0] for row in (await conn.execute(select(choices.c.node_id).order_by(choices.c.call_id))).all()]


@pytest.mark.slow
@pytest.mark.sqlite_only("PostgreSQL's cost of a statement is asked for with its values as text, and these are binary")
async def test_a_long_trajectory_costs_what_a_short_one_costs(store: Store, talk: Talk) -> None:
    made = await talk.call([user("?")], "!")
    asked = {"nodes": await nodes_of(store)}
    before = await cost_of(store, statements.LEAVES_AT, asked)
    async with store.write() as conn:
        await copy(conn, calls, "id", made.call_id, LONG)
        await copy(conn, choices, "call_id", made.call_id, LONG, node_id=text("NULL"))
    assert await cost_of(store, statements.LEAVES_AT, asked) <= 1.1 * before
    home = made.attribution.trajectory.id
    assert await cost_of(store, statements.LEAVES_AMONG, {"trajectories": [home], **asked}) > 100 * before


class Spy:
    """An executor that notes its statements and answers with rows."""

    def __init__(self, rows: Sequence[Sequence[Any]]) -> None:
        self.rows = rows
        self.asked: list[Statement] = []

    def all(self, statement: Statement, **values: Any) -> Sequence[Sequence[Any]]:
        self.asked.append(statement)
        if statement is statements.SESSION_RUNS:
            return [("mine", "open"), ("also mine", "open")]
        of = values.get("trajectories") or [values.get("trajectory")]
        rows = [row for row in self.rows if row[0] in values["nodes"] and (of == [None] or row[3] in of)]
        return rows[: statements.MOST_EQUAL + 1]

    def many(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> int:
        raise AssertionError("nothing is written")


def at(node: bytes, trajectory_id: str, call_id: str = "c") -> tuple[Any, ...]:
    return node, call_id, 0, trajectory_id, "open", False, 1.0


def found_in_session(spy: Spy, ends: Sequence[bytes]) -> list[str]:
    found = recorded_calls.find_session_trajectories(spy, PROJECT, "s", "", ends, [], ANYBODY)
    return [match.trajectory_id for match in found.matches]


def test_the_deepest_answer_of_the_session_is_found_by_its_node() -> None:
    spy = Spy([at(b"deep", "mine"), at(b"deep", "another's"), at(b"early", "also mine")])
    assert found_in_session(spy, [b"new", b"deep", b"early"]) == ["mine"]
    assert found_in_session(spy, [b"new", b"newer", b"early"]) == ["also mine"]
    assert found_in_session(spy, [b"new"]) == []
    assert recorded_calls.find_leaf_in(spy, "mine", [b"new", b"newer", b"deep"]) == ParentCall("c", 0)
    assert {statements.LEAVES_AMONG, statements.LEAVES_IN}.isdisjoint(spy.asked)


def test_where_many_conversations_are_equal_those_of_the_session_are_asked_for() -> None:
    others = [at(b"deep", "another's", f"c{n}") for n in range(statements.MOST_EQUAL + 1)]
    spy = Spy([*others, at(b"deep", "mine")])
    assert found_in_session(spy, [b"deep"]) == ["mine"]
    assert statements.LEAVES_AMONG in spy.asked
    assert recorded_calls.find_leaf_in(spy, "mine", [b"deep"]) == ParentCall("c", 0)
    assert spy.asked[-1] is statements.LEAVES_IN

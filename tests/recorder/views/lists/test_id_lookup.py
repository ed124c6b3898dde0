"""What an id names: every kind of id, which comes first, never another project's, and by indexes alone."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from recorder.ids import new_id
from recorder.store.database import Project
from recorder.store.schema import issued
from recorder.views.lists.id_lookup import MAX_ID_CHARS, NamedObject, ObjectKind, find_object
from tests.recorder.rows import PROJECT, Rows


def here(rows: Rows) -> Project:
    return Project(rows.store, PROJECT)


async def named(rows: Rows, name: str, *sessions: str) -> tuple[str, str] | None:
    found = await find_object(here(rows), name, sessions)
    return None if found is None else (found.kind.value, found.id)


async def test_every_id_of_hones_own_names_its_object(rows: Rows) -> None:
    group = await rows.group(id=new_id("group"))
    run = await rows.trajectory(group, answered=False, id=new_id("traj"))
    call = await rows.call(run, id=new_id("call"))
    assert await named(rows, group) == ("group", group)
    assert await named(rows, run) == ("trajectory", run)
    assert await find_object(here(rows), call) == NamedObject(ObjectKind.CALL, call, run)


async def test_an_id_that_a_caller_gave_names_its_newest_object(rows: Rows) -> None:
    await rows.group(external_id="orders", sequence=0)
    group = await rows.group(external_id="orders", sequence=1)
    first = await rows.trajectory(external_id="mail-19", sequence=0)
    again = await rows.trajectory(external_id="mail-19", sequence=1)
    within = await rows.trajectory(address_group="orders", external_id="17")
    assert await named(rows, "orders") == ("group", group)
    assert await named(rows, "mail-19") == ("trajectory", again) != ("trajectory", first)
    assert await named(rows, "orders/17") == ("trajectory", within)
    assert await named(rows, "17") is None  # as short as a word, and every group may have one
    assert await named(rows, "orders/18") is None


async def test_an_id_of_a_group_s_trajectory_is_found_without_the_group_if_it_is_no_word(rows: Rows) -> None:
    run = await rows.trajectory(address_group="orders", external_id="0b1d52c4-77aa")
    assert await named(rows, "0b1d52c4-77aa") == ("trajectory", run)


async def test_a_version_is_named_as_everywhere(rows: Rows) -> None:
    await rows.alias("helpdesk")
    assert await named(rows, "helpdesk@0") == ("version", "helpdesk@0")
    assert await named(rows, "helpdesk@00000") == ("version", "helpdesk@0")
    assert await named(rows, "helpdesk@99") is None
    assert await named(rows, "helpdesk@") is None


async def test_a_session_is_found_by_the_name_that_its_carrier_adds(rows: Rows) -> None:
    await rows.trajectory(session="x-session-id:thread 7")
    await rows.trajectory(session="x-session-id:thread-7")
    assert await named(rows, "thread-7", "x-session-id:thread-7") == ("session", "x-session-id:thread-7")
    assert await named(rows, "x-session-id:thread-7") == ("session", "x-session-id:thread-7")
    assert await named(rows, "thread 7", "x-session-id:thread 7") == ("session", "x-session-id:thread 7")
    assert await named(rows, "thread-7") is None


@pytest.mark.parametrize("kind", ["response", "tool_call"])
async def test_an_issued_id_names_the_call_that_it_was_issued_with(rows: Rows, kind: str) -> None:
    run = await rows.trajectory(answered=False)
    call = await rows.call(run)
    row = {"project_id": PROJECT, "issued_id": "resp_1a2b", "kind": kind, "call_id": call, "choice": 0}
    await rows.insert(issued, row | {"trajectory_id": run})
    await rows.insert(issued, row | {"issued_id": "twice", "kind": "ambiguous", "trajectory_id": run})
    assert await find_object(here(rows), "resp_1a2b") == NamedObject(ObjectKind.CALL, call, run)
    assert await named(rows, "twice") is None


@pytest.mark.parametrize("kind", ["traj", "group", "call"])
async def test_the_end_of_a_new_id_names_its_object(rows: Rows, kind: str) -> None:
    id_ = kind + "_01hv" + "0" * 14 + "7zk2m9qx"
    if kind == "group":
        await rows.group(id=id_)
    else:
        run = await rows.trajectory(answered=False, **({"id": id_} if kind == "traj" else {}))
        if kind == "call":
            await rows.call(run, id=id_)
    for typed in ("7zk2m9qx", "…7zk2m9qx", f"{kind}_…7zk2m9qx"):
        found = await find_object(here(rows), typed)
        assert found is not None
        assert found.id == id_


async def test_an_id_of_hones_own_comes_before_the_same_id_of_a_caller(rows: Rows) -> None:
    run = await rows.trajectory(id=new_id("traj"))
    await rows.trajectory(external_id=run)
    assert await named(rows, run) == ("trajectory", run)


async def test_another_projects_ids_name_nothing(rows: Rows) -> None:
    group = await rows.group(id=new_id("group"), external_id="orders")
    run = await rows.trajectory(group, answered=False, id=new_id("traj"), external_id="mail-1919", session="s:1")
    call = await rows.call(run, id=new_id("call"))
    await rows.alias("helpdesk")
    elsewhere = Project(rows.store, "another project")
    for name in (group, run, call, "orders", "mail-1919", "s:1", "helpdesk@0", run[-8:], group[-8:], call[-8:]):
        assert await find_object(here(rows), name) is not None or name[-8:] == name, name
        assert await find_object(elsewhere, name) is None, name


@pytest.mark.parametrize(
    "typed", ["", " ", "two words", "a\tb", "a\ud800", "x" * (MAX_ID_CHARS + 1), "%", "_", "'; --", "\0", "…"]
)
async def test_what_is_no_id_names_nothing(rows: Rows, typed: str) -> None:
    await rows.trajectory(external_id="mail-19")
    assert await named(rows, typed) is None


async def test_every_lookup_reads_an_index(rows: Rows) -> None:
    """SQLite says how it would run each query: a table that it would read without an index is a SCAN."""
    if not rows.store.is_sqlite:
        pytest.skip("the words of SQLite's plans")
    asked: list[tuple[str, Any]] = []

    def note(conn: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        asked.append((statement, parameters))

    reader = rows.store._reader.sync_engine
    event.listen(reader, "before_cursor_execute", note)
    for typed in ("0b1d52c4-77aa", "7zk2m9qx", "helpdesk@3", "orders/17"):
        await find_object(here(rows), typed, ["x-session-id:" + typed])
    event.remove(reader, "before_cursor_execute", note)
    asked = [one for one in asked if one[0].startswith("SELECT")]
    assert len(asked) > 8
    async with rows.store.read() as conn:
        for statement, parameters in asked:
            plan = await conn.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters)
            steps = [str(step) for *_, step in plan]
            whole = [step for step in steps if step.startswith("SCAN") and " INDEX " not in step and "anon" not in step]
            assert not whole, (statement, steps)

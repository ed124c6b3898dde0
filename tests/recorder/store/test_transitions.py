"""States change by the tables of `recorder.states` and by one guarded UPDATE, or not at all."""

from __future__ import annotations

import ast
from enum import StrEnum
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from recorder import states
from recorder.errors import Conflict, LeaseLost, NotFound
from recorder.ids import new_id
from recorder.store import transitions
from recorder.store.database import Store
from recorder.store.schema import groups, metadata, trajectories, versions
from recorder.store.transitions import MACHINES, guarded_update, move_state, source_states, try_move_state
from tests.effort import scaled
from tests.recorder.rows import PROJECT, Rows

STATES: dict[str, type[StrEnum]] = {
    "trajectories": states.TrajectoryState,
    "calls": states.CallState,
    "groups": states.GroupState,
    "versions": states.VersionState,
    "campaigns": states.CampaignState,
    "attempts": states.AttemptState,
    "steps": states.StepState,
    "notifications": states.NotificationState,
}
NUMBERS = count(1)


async def make(rows: Rows, table: str, state: StrEnum) -> str:
    """A row of any table that has states, in the given one."""
    if table == "groups":
        return await rows.group(id=new_id("group"), state=state)
    if table == "trajectories":
        return await rows.trajectory(answered=False, id=new_id("traj"), state=state)
    if table == "calls":
        return await rows.call(await rows.trajectory(answered=False, id=new_id("traj")), id=new_id("call"), state=state)
    object_id = new_id("x")
    own = await _columns(rows, table)
    await rows.insert(metadata.tables[table], {"id": object_id, "project_id": PROJECT, "state": state, **own})
    return object_id


async def _columns(rows: Rows, table: str) -> dict[str, Any]:
    alias = {"alias_id": (await rows.alias()).id}
    number = next(NUMBERS)
    if table == "versions":
        times = {"created_at": 0.0, "state_at": 0.0}
        return {**alias, **times, "number": number, "engine_name": "x", "metrics": {}}
    if table == "steps":
        return {**alias, "number": number, "parent_version_id": "v", "metrics": {}, "started_at": 0.0}
    if table == "notifications":
        return {"kind": "alarm", "event": f"e{number}", "what": "w", "link": "/hone/", "figures": {}, "at": 0.0}
    if table == "campaigns":
        return {**alias, "name": "c", "settings": {}, "started_at": 0.0}
    of_campaign = {"campaign_id": await make(rows, "campaigns", states.CampaignState.RUNNING)}
    task = {"id": new_id("scen"), "project_id": PROJECT, "external_id": "1", "split": "train", "input": {}}
    await rows.insert(metadata.tables["scenarios"], {**of_campaign, **task})
    names = {"group_external_id": "g", "trajectory_external_id": "t"}
    return {**of_campaign, **names, "scenario_id": task["id"], "step_number": 1, "purpose": "train", "number": 0}


def test_every_state_machine_knows_every_state_of_its_enum() -> None:
    for table, enum in STATES.items():
        machine = MACHINES[table]
        named = set(machine) | {target for targets in machine.values() for target in targets}
        assert named == set(enum)


def test_a_state_that_has_been_left_out_of_a_table_can_never_be_left() -> None:
    assert source_states(trajectories, states.TrajectoryState.OPEN) == frozenset()
    assert source_states(groups, states.GroupState.TRIED) == {"training"}


@pytest.mark.parametrize("table", STATES)
@given(data=st.data())
@settings(max_examples=scaled(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
async def test_random_sequences_never_leave_the_table(rows: Rows, table: str, data: st.DataObject) -> None:
    enum, machine, row_table = STATES[table], MACHINES[table], metadata.tables[table]
    state = data.draw(st.sampled_from(sorted(enum)))
    object_id = await make(rows, table, state)
    for target in data.draw(st.lists(st.sampled_from(sorted(enum)), max_size=8)):
        allowed = target in machine.get(state, frozenset())
        try:
            async with rows.store.write() as conn:
                await move_state(conn, row_table, object_id, target)
            assert allowed
            state = target
        except (Conflict, ValueError):  # ValueError: no state at all leads there
            assert not allowed
        assert await rows.state(row_table, object_id) == state


async def test_expect_narrows_where_a_row_may_come_from(rows: Rows) -> None:
    group = await rows.group(state="ready")
    async with rows.store.write() as conn:
        with pytest.raises(Conflict, match="is ready, from where it cannot become judging"):
            await move_state(conn, groups, group, states.GroupState.JUDGING, expect=states.GroupState.UNSCORED)
        await move_state(conn, groups, group, states.GroupState.JUDGING, expect=states.GroupState.READY)
    assert await rows.state(groups, group) == "judging"


def test_expecting_a_state_that_the_table_forbids_is_a_bug() -> None:
    with pytest.raises(ValueError, match="may not become scored"):
        guarded_update(groups, states.GroupState.SCORED, expect=states.GroupState.READY)


async def test_a_row_that_is_not_there_is_not_found(store: Store) -> None:
    async with store.write() as conn:
        with pytest.raises(NotFound, match="versions nothing"):
            await move_state(conn, versions, "nothing", states.VersionState.WRITTEN)
        assert not await try_move_state(conn, versions, "nothing", states.VersionState.WRITTEN)


async def test_a_move_by_a_holder_ends_its_lease_and_sets_its_fields(rows: Rows) -> None:
    group = await rows.group(state="judging", lease_owner="a", lease_epoch=3, lease_expires_at=1e12)
    async with rows.store.write() as conn:
        await move_state(conn, groups, group, states.GroupState.UNSCORED, owner="a", epoch=3, reason="down")
    row = await rows.get(groups, group)
    assert (row["state"], row["reason"], row["lease_owner"], row["lease_expires_at"]) == (
        "unscored",
        "down",
        None,
        None,
    )
    assert row["lease_epoch"] == 3


@pytest.mark.parametrize(("owner", "epoch"), [("a", 2), ("b", 3)])
async def test_a_move_by_anyone_else_is_a_lost_lease(rows: Rows, owner: str, epoch: int) -> None:
    group = await rows.group(state="judging", lease_owner="a", lease_epoch=3, lease_expires_at=1e12)
    with pytest.raises(LeaseLost, match="claim again"):
        async with rows.store.write() as conn:
            await move_state(conn, groups, group, states.GroupState.UNSCORED, owner=owner, epoch=epoch)
    assert await rows.state(groups, group) == "judging"


async def test_a_version_notes_when_its_state_changed(rows: Rows) -> None:
    version = await make(rows, "versions", states.VersionState.ALLOCATED)
    async with rows.store.write() as conn:
        await move_state(conn, versions, version, states.VersionState.WRITTEN)
        at = (await conn.execute(select(versions.c.state_at).where(versions.c.id == version))).scalar_one()
    assert at > 1.7e9


async def test_an_exception_in_the_transaction_undoes_the_move(rows: Rows) -> None:
    group = await rows.group()

    async def fail() -> None:
        async with rows.store.write() as conn:
            await move_state(conn, groups, group, states.GroupState.READY)
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert await rows.state(groups, group) == "open"


def test_no_other_module_updates_a_state() -> None:
    """A state is inserted with its row and changed by `guarded_update` alone; `replicas.state` is a report, not a
    machine.
    """
    strays = []
    for path in Path(transitions.__file__).parent.parent.rglob("*.py"):
        if path.name in {"transitions.py", "replicas.py"}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
                updates = any(isinstance(n, ast.Name) and n.id == "update" for n in ast.walk(node.func))
                if updates and any(k.arg == "state" for k in node.keywords):
                    strays.append(f"{path.name}:{node.lineno}")
    assert strays == []


async def test_the_database_itself_takes_any_insert_of_a_known_state(rows: Rows) -> None:
    """The tables of tests above really are written by `make`: it would fail on a missing column."""
    for table, enum in STATES.items():
        for state in enum:
            assert await rows.state(metadata.tables[table], await make(rows, table, state)) == state
    assert {t.name for t in metadata.tables.values() if "state" in t.c} == set(STATES) | {"replicas"}

"""How trajectories end and groups close: what the end of members makes of their group, and its ledger."""

from __future__ import annotations

import pytest

from recorder.errors import NotFound
from recorder.queue import campaigns
from recorder.queue.attempts import NewAttempt, new_attempts
from recorder.queue.campaigns import GroupBinding, NewScenario
from recorder.queue.groups.closure import (
    TrajectoryEnd,
    close_due_groups,
    close_group,
    close_trajectories,
    close_trajectory,
)
from recorder.queue.groups.readiness import GroupVerdict, Readiness
from recorder.registry import aliases
from recorder.settings import RecorderSettings
from recorder.states import GroupState, Purpose, TrajectoryState
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.schema import calls, trajectories
from recorder.store.schema import groups as group_table
from recorder.store.sql import now
from tests.recorder.rows import PROJECT, Rows

SETTINGS = RecorderSettings(group_window_s=300)
COMPLETED, ERRORED, ABANDONED = TrajectoryState.COMPLETED, TrajectoryState.ERRORED, TrajectoryState.ABANDONED
READY = Readiness(GroupVerdict.READY)


async def end(rows: Rows, trajectory: str, state: TrajectoryState = COMPLETED) -> bool:
    async with rows.store.write() as conn:
        return await close_trajectory(conn, trajectory, state, "done")


async def test_the_last_members_end_readies_a_declared_group_at_once(rows: Rows) -> None:
    group = await rows.group(declared_size=2)
    first, second = [await rows.trajectory(group) for _ in range(2)]
    assert await end(rows, first)
    assert await rows.state(group_table, group) == "open"
    assert await end(rows, second)
    row = await rows.get(group_table, group)
    assert row["state"] == "ready"
    assert row["ready_at"] is not None
    ended = await rows.get(trajectories, first)
    assert (ended["state"], ended["end_reason"]) == ("completed", "done")
    assert ended["ended_at"] is not None


async def test_a_validation_without_an_answer_is_measured_and_has_no_exclusion(rows: Rows) -> None:
    group = await rows.group(declared_size=1)
    attempt = await rows.trajectory(group, purpose="val")
    assert await end(rows, attempt, ERRORED)
    row = await rows.get(group_table, group)
    assert (row["state"], row["reason"]) == ("measured", "too_few")
    assert await ledger.count_codes(Project(rows.store, PROJECT), "trajectory") == {}
    assert await ledger.count_codes(Project(rows.store, PROJECT), "group") == {}


@pytest.mark.parametrize(("purpose", "state"), [("val", "measured"), ("train", "left_out")])
async def test_a_group_without_any_call_is_what_its_attempts_were_planned_for(
    rows: Rows, purpose: str, state: str
) -> None:
    alias = await rows.alias()
    project = Project(rows.store, PROJECT)
    campaign = await campaigns.create_campaign(project, alias.id, "first", {})
    await campaigns.add_scenarios(rows.store, campaign.id, "train", [NewScenario("order-1", {"order": 1})])
    [scenario] = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    await campaigns.bind_groups(project, campaign.id, alias.id, [GroupBinding("g1", scenario.id, 1)])
    await new_attempts(rows.store, campaign.id, [NewAttempt(scenario.id, 1, Purpose(purpose), 0, "g1", "000")])
    assert (await close_group(project, "g1")).state == state


async def test_one_run_readies_a_group_of_an_alias_with_a_running_baseline_however_it_closes(rows: Rows) -> None:
    running = (await aliases.ensure_alias(Project(rows.store, PROJECT), "helpdesk", "b", None, baseline="running")).id
    inside = (await aliases.ensure_alias(Project(rows.store, PROJECT), "other", "b", None, baseline="group")).id
    for alias, campaign, expected in (
        (running, None, "ready"),
        (inside, None, "left_out"),
        (running, "campaign", "left_out"),
    ):
        declared = await rows.group(declared_size=1, alias_id=alias, campaign_id=campaign)
        assert await end(rows, await rows.trajectory(declared))
        by_hand = await rows.group(alias_id=alias, campaign_id=campaign)
        await rows.trajectory(by_hand, state="completed")
        await close_group(Project(rows.store, PROJECT), by_hand)
        assert [await rows.state(group_table, id_) for id_ in (declared, by_hand)] == [expected, expected]


async def test_ending_twice_changes_nothing(rows: Rows) -> None:
    trajectory = await rows.trajectory(await rows.group())
    assert await end(rows, trajectory)
    assert not await end(rows, trajectory, ERRORED)
    assert await rows.state(trajectories, trajectory) == "completed"


async def test_ending_many_takes_no_more_statements_than_ending_two(rows: Rows) -> None:
    async def end_all(count: int) -> int:
        members = [await rows.trajectory(await rows.group(declared_size=9)) for _ in range(count)]
        with rows.statements() as counted:
            async with rows.store.write() as conn:
                assert await close_trajectories(conn, [TrajectoryEnd(m, COMPLETED, "done") for m in members]) == set(
                    members
                )
        return len(counted)

    assert await end_all(20) == await end_all(2)


async def test_the_end_of_trajectories_looks_at_their_own_calls_alone(rows: Rows) -> None:
    members = [await rows.trajectory(await rows.group(declared_size=2)) for _ in range(32)]
    walked: list[str] = []
    with rows.statements() as counted:
        async with rows.store.write() as conn:
            await close_trajectories(conn, [TrajectoryEnd(member, COMPLETED, "done") for member in members])
    async with rows.store.read() as conn:
        if conn.dialect.name == "sqlite":
            for statement in counted:
                if statement.lstrip().upper().startswith(("SELECT", "UPDATE")):
                    parameters = ("x",) * statement.count("?")
                    plan = await conn.exec_driver_sql("EXPLAIN QUERY PLAN " + statement, parameters)
                    walked += [str(step) for *_, step in plan]
    assert [step for step in walked if step.startswith("SCAN") or "parent_call_id" in step] == []


async def test_trajectories_that_end_together_ready_their_groups_and_each_ends_its_own_way(rows: Rows) -> None:
    groups_of_two = [await rows.group(declared_size=2) for _ in range(2)]
    first, second, third, fourth = [await rows.trajectory(g) for g in groups_of_two for _ in range(2)]
    ended = await rows.trajectory(await rows.group(), state="completed")
    closings = [
        TrajectoryEnd(first, COMPLETED),
        TrajectoryEnd(second, COMPLETED, "done"),
        TrajectoryEnd(third, ERRORED, "engine"),
    ]
    async with rows.store.write() as conn:
        closed = await close_trajectories(
            conn, [*closings, TrajectoryEnd(ended, ERRORED), TrajectoryEnd(fourth, COMPLETED)]
        )
        assert closed == {first, second, third, fourth}
        assert await close_trajectories(conn, []) == set()
    reasons = [(await rows.get(trajectories, t))["end_reason"] for t in (first, second, third)]
    assert reasons == [None, "done", "engine"]
    assert [await rows.state(group_table, g) for g in groups_of_two] == ["ready", "left_out"]
    assert await rows.state(trajectories, ended) == "completed"


async def test_a_group_left_out_writes_its_reason_for_itself_and_each_trajectory(rows: Rows) -> None:
    group = await rows.group(declared_size=2)
    first, second = [await rows.trajectory(group) for _ in range(2)]
    await end(rows, first)
    await end(rows, second, ERRORED)
    row = await rows.get(group_table, group)
    assert (row["state"], row["reason"]) == ("left_out", "too_few")
    assert [e.code for e in await ledger.object_entries(rows.store, "group", group)] == ["too_few"]
    for trajectory in (first, second):
        [entry] = await ledger.object_entries(rows.store, "trajectory", trajectory)
        assert (entry.code, entry.detail) == ("too_few", {"group": group})


async def test_a_run_that_no_model_answered_is_errored_and_says_so(rows: Rows) -> None:
    trajectory = await rows.trajectory(await rows.group(), answered=False)
    await rows.call(trajectory, state="errored")
    await rows.call(trajectory, turn_kind="aux")
    await rows.call(trajectory, superseded_by="other")
    await end(rows, trajectory)
    row = await rows.get(trajectories, trajectory)
    assert (row["state"], row["end_reason"]) == ("errored", "no_complete_call")
    assert [e.code for e in await ledger.object_entries(rows.store, "trajectory", trajectory)] == ["no_complete_call"]


async def test_closing_a_group_ends_quiet_live_members_and_seals_the_others(rows: Rows) -> None:
    group = await rows.group(external_id="task", declared_size=8)
    quiet = [await rows.trajectory(group) for _ in range(2)]
    answering = await rows.trajectory(group)
    await rows.call(answering, state="open")
    attempt = await rows.trajectory(group, origin="campaign")
    closed = await close_group(Project(rows.store, PROJECT), "task")
    assert (closed.id, closed.state) == (group, GroupState.READY)
    assert [await rows.state(trajectories, t) for t in quiet] == ["completed", "completed"]
    assert [await rows.state(trajectories, t) for t in (answering, attempt)] == ["sealed-late", "sealed-late"]
    assert await rows.state(calls, (await rows.all(calls))[0]["id"]) == "complete"


async def test_a_group_of_another_project_is_not_closed(rows: Rows) -> None:
    await rows.group(external_id="task")
    with pytest.raises(NotFound, match="no group 'task' in project 'other'"):
        await close_group(Project(rows.store, "other"), "task")


async def test_closing_a_group_again_tells_its_state_and_changes_nothing(rows: Rows) -> None:
    group = await rows.group()
    first = await close_group(Project(rows.store, PROJECT), group)
    assert (first.state, first.reason) == (GroupState.LEFT_OUT, "too_few")
    assert await close_group(Project(rows.store, PROJECT), group) == first
    assert len(await ledger.object_entries(rows.store, "group", group)) == 1


async def test_a_group_of_mixed_purpose_is_judged_and_its_ledger_says_that_it_cannot_train(rows: Rows) -> None:
    group = await rows.group(declared_size=2)
    for purpose in ("train", "val"):
        await end(rows, await rows.trajectory(group, purpose=purpose))
    assert await rows.state(group_table, group) == "ready"
    [entry] = await ledger.object_entries(rows.store, "group", group)
    assert (entry.code, entry.detail) == ("mixed_purpose", {"purposes": ["train", "val"]})


async def test_members_that_are_not_judged_with_their_group_say_why_in_the_ledger(rows: Rows) -> None:
    group = await rows.group(declared_size=6)
    judged = [await rows.trajectory(group) for _ in range(2)]
    failed, replaced = await rows.trajectory(group), await rows.trajectory(group)
    empty, silent = await rows.trajectory(group, answered=False), await rows.trajectory(group, purpose="none")
    late = await rows.trajectory(group, origin="campaign")
    await end(rows, failed, ERRORED)
    await end(rows, replaced, ABANDONED)
    for trajectory in (empty, silent, *judged):
        await end(rows, trajectory)
    assert await rows.state(group_table, group) == "open"
    assert (await close_group(Project(rows.store, PROJECT), group)).state is GroupState.READY
    codes = [
        [e.code for e in await ledger.object_entries(rows.store, "trajectory", t)]
        for t in (failed, replaced, empty, silent, late)
    ]
    assert codes == [["errored"], ["abandoned"], ["no_complete_call"], ["purpose_none"], ["sealed-late"]]
    assert [await ledger.object_entries(rows.store, "trajectory", t) for t in judged] == [[], []]


async def test_settling_by_the_clock_uses_the_databases_clock(rows: Rows) -> None:
    group = await rows.group(joined_at=now() - 301)
    for _ in range(2):
        await rows.trajectory(group, state="completed")
    async with rows.store.write() as conn:
        assert await close_due_groups(conn, [group]) == []
        assert await close_due_groups(conn, [group], SETTINGS) == [READY]
        assert await close_due_groups(conn, [group], SETTINGS) == []  # it is no longer open

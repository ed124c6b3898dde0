"""What time alone changes is changed once, whoever sweeps, and nothing else is touched."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from recorder.errors import LeaseLost
from recorder.maintenance.sweep import BATCH, STALE_CALL_S, SweepReport, next_due_query, seconds_until_due, sweep
from recorder.messages.calls import Address, RecordedCall
from recorder.queue import attempts, campaigns, claims, leases
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import NewScenario
from recorder.settings import RecorderSettings
from recorder.states import CallState, Purpose
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.schema import attempts as attempt_table
from recorder.store.schema import calls, groups, trajectories
from recorder.store.sql import now
from tests.recorder.maintenance.due import is_said
from tests.recorder.queue.bindings import bind_group
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, assistant, choice, tool_result, tool_turn, user

SETTINGS = RecorderSettings(idle_timeout_s=10_000, group_window_s=300, group_timeout_s=3600)


async def swept(rows: Rows) -> SweepReport:
    """One sweep that does all there is to do: a second finds nothing."""
    report = await sweep(Project(rows.store, PROJECT), SETTINGS)
    assert not (await sweep(Project(rows.store, PROJECT), SETTINGS)).changed
    return report


async def idle(rows: Rows, group_id: str, **values: Any) -> str:
    return await rows.trajectory(group_id, **{"last_call_at": now() - 10_001, **values})


async def test_an_empty_store_is_left_alone(rows: Rows) -> None:
    assert await swept(rows) == SweepReport()


async def test_looking_for_what_is_due_does_not_need_the_write_lock(rows: Rows) -> None:
    await rows.trajectory(await rows.group())
    async with rows.store.write():
        assert await sweep(Project(rows.store, PROJECT), SETTINGS) == SweepReport()


# A hundred times the defaults: no machine is so slow that a run comes from one side of them to the other.
ANSWERED = RecorderSettings(answered_idle_s=1500, idle_timeout_s=90_000)


async def left_alone(rows: Rows, turn: RecordedCall, for_s: float) -> str:
    """What has become of a run when nothing was heard of it since a turn."""
    run = turn.attribution.trajectory.id
    await rows.set(trajectories, run, last_call_at=now() - for_s)
    await sweep(Project(rows.store, PROJECT), ANSWERED)
    return await rows.state(trajectories, run)


async def test_a_run_whose_newest_answer_asks_for_no_tool_ends_soon(rows: Rows, talk: Talk) -> None:
    asked = await talk.call([user("?")], tool_turn("id-1"))
    last = await talk.call([user("?"), tool_turn("id-1"), tool_result("id-1")], "Done.")
    assert last.attribution.trajectory.id == asked.attribution.trajectory.id
    assert await left_alone(rows, last, 1400) == "open"
    assert await left_alone(rows, last, 1600) == "completed"


async def test_a_run_that_waits_for_its_tool_ends_late(rows: Rows, talk: Talk) -> None:
    asked = await talk.call([user("?")], tool_turn("id-1"))
    assert await left_alone(rows, asked, 89_900) == "open"
    assert await left_alone(rows, asked, 90_100) == "completed"


async def test_an_engine_that_says_tool_calls_is_believed_whatever_can_be_read_of_them(rows: Rows, talk: Talk) -> None:
    asked = await talk.call([user("?")], [replace(choice(assistant("<tool")), finish_reason="tool_calls")])
    assert await left_alone(rows, asked, 1600) == "open"


async def test_an_errand_beside_a_waiting_thread_does_not_end_the_run(rows: Rows, talk: Talk) -> None:
    at, tools = Address(trajectory="run"), [{"type": "function", "function": {"name": "find"}}]
    await talk.call([user("?")], tool_turn("id-1"), at, tools=tools)
    errand = await talk.call([user("A title, please.")], "Orders", at)
    assert await left_alone(rows, errand, 1600) == "open"
    history = [user("?"), tool_turn("id-1"), tool_result("id-1")]
    last = await talk.call(history, "Done.", at, tools=tools)
    assert await left_alone(rows, last, 1600) == "completed"


async def test_a_run_that_rewrote_its_history_waits_for_no_tool_of_before(rows: Rows, talk: Talk) -> None:
    at, tools = Address(trajectory="run"), [{"type": "function", "function": {"name": "find"}}]
    await talk.call([user("?")], tool_turn("id-1"), at, tools=tools)
    last = await talk.call([user("In short: found.")], "Done.", at, tools=tools)
    assert await left_alone(rows, last, 1600) == "completed"


async def test_a_run_that_no_model_answered_yet_ends_late(rows: Rows, talk: Talk) -> None:
    failed = await talk.call([user("?")], [], state=CallState.ERRORED)
    assert await left_alone(rows, failed, 89_900) == "open"
    assert await left_alone(rows, failed, 90_100) == "errored"


async def test_when_an_answered_run_is_due_is_known(rows: Rows, talk: Talk) -> None:
    answered = await talk.call([user("?")], "Done.")
    question = next_due_query(PROJECT, ANSWERED)
    last = (await rows.get(trajectories, answered.attribution.trajectory.id))["last_call_at"]
    assert await is_said(rows, last + 1500, lambda: seconds_until_due(rows.store, question))
    await talk.call([user("!")], tool_turn("id-1"))
    assert await is_said(rows, last + 1500, lambda: seconds_until_due(rows.store, question))


async def test_idle_live_runs_are_completed(rows: Rows) -> None:
    group = await rows.group()
    quiet = await idle(rows, group)
    busy = await rows.trajectory(group, last_call_at=now() - 9900)  # 100 s are left to a slow machine
    assert await swept(rows) == SweepReport(trajectories_ended=1)
    row = await rows.get(trajectories, quiet)
    assert (row["state"], row["end_reason"]) == ("completed", "idle")
    assert await rows.state(trajectories, busy) == "open"


async def test_a_run_that_waits_for_its_model_is_not_idle(rows: Rows) -> None:
    trajectory = await idle(rows, await rows.group())
    await rows.call(trajectory, state="open")
    assert await swept(rows) == SweepReport()


async def test_a_campaigns_runs_are_its_runners_to_end(rows: Rows) -> None:
    await idle(rows, await rows.group(), origin="campaign")
    assert await swept(rows) == SweepReport()


async def test_an_idle_run_without_an_answer_is_errored(rows: Rows) -> None:
    trajectory = await idle(rows, await rows.group(), answered=False)
    await swept(rows)
    assert await rows.state(trajectories, trajectory) == "errored"


async def test_an_idle_first_call_with_several_choices_is_split(rows: Rows) -> None:
    group = await rows.group(joined_at=now() - 301)
    trajectory = await idle(rows, group, answered=False)
    await rows.call(trajectory, sampled=4)
    assert await swept(rows) == SweepReport(trajectories_ended=1, groups_readied=1)
    assert len(await rows.members(group)) == 4


async def test_more_idle_runs_than_fit_a_transaction_are_all_completed(rows: Rows) -> None:
    group = await rows.group()
    for _ in range(BATCH + 3):
        await idle(rows, group)
    assert (await swept(rows)).trajectories_ended == BATCH + 3


async def test_the_end_of_idle_runs_readies_their_groups_in_the_same_sweep(rows: Rows) -> None:
    declared, implicit = await rows.group(declared_size=2), await rows.group(joined_at=now() - 301)
    for group in (declared, implicit):
        for _ in range(2):
            await idle(rows, group)
    report = await swept(rows)
    assert report.trajectories_ended == 4
    assert [await rows.state(groups, g) for g in (declared, implicit)] == ["ready", "ready"]


async def test_groups_that_are_due_are_readied_or_left_out(rows: Rows) -> None:
    ready, few = await rows.group(joined_at=now() - 301), await rows.group(joined_at=now() - 301)
    waiting, timed_out = await rows.group(), await rows.group(declared_size=4, last_call_at=now() - 3601)
    for group in (ready, ready, few, waiting, waiting, timed_out, timed_out):
        await rows.trajectory(group, state="completed")
    late = await rows.trajectory(timed_out, origin="campaign")
    assert await swept(rows) == SweepReport(groups_readied=2, groups_left_out=1)
    states = [await rows.state(groups, g) for g in (ready, few, waiting, timed_out)]
    assert states == ["ready", "left_out", "open", "ready"]
    assert await rows.state(trajectories, late) == "sealed-late"
    assert [e.code for e in await ledger.object_entries(rows.store, "group", few)] == ["too_few"]


async def test_a_full_group_is_readied_without_a_window(rows: Rows) -> None:
    full, room, busy = [await rows.group() for _ in range(3)]
    for group, members in ((full, 3), (room, 2), (busy, 3)):
        for _ in range(members):
            await rows.trajectory(group, state="completed")
    await rows.trajectory(busy)
    report = await sweep(Project(rows.store, PROJECT), SETTINGS.model_copy(update={"group_size": 3}))
    assert report == SweepReport(groups_readied=1)
    assert [await rows.state(groups, g) for g in (full, room, busy)] == ["ready", "open", "open"]


async def test_a_group_nobody_ever_joined_times_out(rows: Rows) -> None:
    group = await rows.group(declared_size=4, last_call_at=now() - 3601)
    assert await swept(rows) == SweepReport(groups_left_out=1)
    assert (await rows.get(groups, group))["reason"] == "too_few"


async def test_what_a_dead_judge_held_is_ready_again(rows: Rows) -> None:
    group = await rows.ready_group()
    dead = await claims.claim_for_judging(Project(rows.store, PROJECT), "dead", -1)
    assert dead is not None
    assert await swept(rows) == SweepReport(claims_expired=1)
    assert await rows.state(groups, group) == "ready"
    with pytest.raises(LeaseLost):
        await claims.renew_claim(rows.store, dead, 60)
    [entry] = await ledger.object_entries(rows.store, "group", group)
    assert (entry.code, entry.detail) == ("lease_expired", {"was": "judging"})


async def test_what_a_dead_trainer_held_is_scored_again(rows: Rows) -> None:
    alias = await rows.alias()
    group = await rows.scored_group(alias_id=alias.id)
    await claims.claim_for_training(rows.store, alias.id, "dead", -1, limit=1)
    assert await swept(rows) == SweepReport(claims_expired=1)
    assert await rows.state(groups, group) == "scored"


async def test_what_is_held_stays_held(rows: Rows) -> None:
    await rows.ready_group()
    assert await claims.claim_for_judging(Project(rows.store, PROJECT), "alive", 60) is not None
    assert await swept(rows) == SweepReport()


async def test_a_call_of_a_dead_proxy_is_errored_at_last(rows: Rows) -> None:
    trajectory = await rows.trajectory(await rows.group())
    dead = await rows.call(trajectory, state="open", started_at=now() - STALE_CALL_S - 1)
    alive = await rows.call(trajectory, state="open", started_at=now() - STALE_CALL_S + 60)
    assert await swept(rows) == SweepReport(calls_errored=1)
    row = await rows.get(calls, dead)
    assert (row["state"], row["error"]) == ("errored", "the proxy that served this call died before it ended")
    assert row["finished_at"] is not None
    assert await rows.state(calls, alive) == "open"


async def test_a_call_of_a_proxy_that_is_only_late_stays_open(rows: Rows) -> None:
    project, here = Project(rows.store, PROJECT), leases.holder_name()  # this process
    trajectory = await rows.trajectory(await rows.group())
    for owner in (here, "elsewhere:1:x"):
        assert await leases.acquire_lease(project, leases.PROXY + owner, owner, -1)
    late, lost = [await rows.call(trajectory, state="open", process=owner) for owner in (here, "elsewhere:1:x")]
    assert await swept(rows) == SweepReport(calls_errored=1)
    assert [await rows.state(calls, one) for one in (late, lost)] == ["open", "errored"]
    assert await swept(rows) == SweepReport()


async def test_attempts_of_dead_runners_and_closed_groups_are_abandoned(rows: Rows) -> None:
    alias = await rows.alias()
    campaign = await campaigns.create_campaign(Project(rows.store, PROJECT), alias.id, "orders", {})
    await campaigns.add_scenarios(rows.store, campaign.id, "train", [NewScenario("1", {}), NewScenario("2", {})])
    for scenario in await campaigns.list_scenarios(rows.store, campaign.id, "train"):
        group = f"g{scenario.external_id}"
        await bind_group(Project(rows.store, PROJECT), group, campaign.id, scenario.id, 2, alias.id)
        planned = [NewAttempt(scenario.id, 1, Purpose.TRAIN, n, group, f"{group}-{n}") for n in range(2)]
        await attempts.new_attempts(rows.store, campaign.id, planned)
    dead = await attempts.claim_attempt(rows.store, campaign.id, "dead", -1)
    assert dead is not None
    [closed] = [g for g in await rows.all(groups) if g["external_id"] == "g2"]
    await rows.set(groups, closed["id"], state="left_out")
    assert await swept(rows) == SweepReport(attempts_abandoned=3)
    states = sorted((r["trajectory_external_id"], r["state"]) for r in await rows.all(attempt_table))
    assert states == [
        ("g1-0", "abandoned"), ("g1-0~1", "pending"), ("g1-1", "pending"), ("g2-0", "abandoned"), ("g2-1", "abandoned"),
    ]  # fmt: skip


async def test_another_projects_rows_are_not_touched(rows: Rows) -> None:
    await idle(rows, await rows.group(joined_at=now() - 301))
    assert not (await sweep(Project(rows.store, "other"), SETTINGS)).changed


async def test_sweeps_at_once_do_each_thing_once(rows: Rows) -> None:
    for _ in range(5):
        group = await rows.group(joined_at=now() - 301)
        for _ in range(2):
            await idle(rows, group)
    reports = await asyncio.gather(*(sweep(Project(rows.store, PROJECT), SETTINGS) for _ in range(4)))
    assert sum(r.trajectories_ended for r in reports) == 10
    assert sum(r.groups_readied for r in reports) == 5

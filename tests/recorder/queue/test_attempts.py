"""An attempt is made by one runner at a time, and again where the fault was not the agent's."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys

import psutil
import pytest
from sqlalchemy import select, update

from recorder.errors import Conflict, InvalidId, LeaseLost, NotFound
from recorder.queue import attempts, campaigns, leases
from recorder.queue.attempts import AttemptEnd, AttemptView, NewAttempt
from recorder.queue.campaigns import CampaignView, NewScenario
from recorder.queue.groups.closure import close_group, close_trajectory
from recorder.states import AttemptState, CallState, Purpose, TrajectoryState
from recorder.store.database import Project
from recorder.store.schema import attempts as table
from recorder.store.schema import groups, trajectories
from recorder.store.sql import now
from tests.recorder.queue.bindings import bind_group
from tests.recorder.rows import PROJECT, Rows

DONE, ERRORED, ABANDONED = AttemptState.DONE, AttemptState.ERRORED, AttemptState.ABANDONED


async def plan(rows: Rows, size: int = 2, purpose: Purpose = Purpose.TRAIN, scenarios: int = 1) -> CampaignView:
    """A campaign whose first step is planned: a group of `size` for each scenario."""
    campaign = await campaigns.create_campaign(Project(rows.store, PROJECT), (await rows.alias()).id, "orders", {})
    tasks = [NewScenario(f"order-{n}", {"order": n}) for n in range(scenarios)]
    await campaigns.add_scenarios(rows.store, campaign.id, "train", tasks)
    for scenario in await campaigns.list_scenarios(rows.store, campaign.id, "train"):
        group = f"g-{scenario.external_id}"
        await bind_group(Project(rows.store, PROJECT), group, campaign.id, scenario.id, size, campaign.alias_id)
        planned = [NewAttempt(scenario.id, 1, purpose, n, group, f"{group}-{n}") for n in range(size)]
        for _ in range(2):  # planning again after a crash adds nothing
            await attempts.new_attempts(rows.store, campaign.id, planned)
    return campaign


async def claim(rows: Rows, campaign: CampaignView, owner: str = "runner", lease_s: float = 60) -> AttemptView:
    attempt = await attempts.claim_attempt(rows.store, campaign.id, owner, lease_s)
    assert attempt is not None
    return attempt


async def answered(rows: Rows, campaign: CampaignView) -> AttemptView:
    attempt = await claim(rows, campaign)
    await rows.call(attempt.trajectory_id)
    return attempt


async def pending(rows: Rows) -> list[tuple[int, str]]:
    query = select(table.c["try"], table.c.trajectory_external_id).where(table.c.state == "pending")
    async with rows.store.read() as conn:
        return [(row[0], row[1]) for row in await conn.execute(query.order_by(table.c.trajectory_external_id))]


async def test_a_claimed_attempt_has_an_open_trajectory_of_its_purpose(rows: Rows) -> None:
    campaign = await plan(rows, purpose=Purpose.VAL)
    attempt = await claim(rows, campaign)
    assert (attempt.scenario.external_id, attempt.scenario.input) == ("order-0", {"order": 0})
    assert (attempt.number, attempt.try_number, attempt.step_number) == (0, 0, 1)
    assert (attempt.group_external_id, attempt.trajectory_external_id) == ("g-order-0", "g-order-0-0")
    row = await rows.get(trajectories, attempt.trajectory_id)
    assert (row["state"], row["purpose"], row["origin"]) == ("open", "val", "campaign")
    assert (row["address_group"], row["external_id"]) == ("g-order-0", "g-order-0-0")
    assert (row["group_id"], row["alias_id"]) == (attempt.group_id, campaign.alias_id)
    assert row["made_by"] == (await rows.get(groups, attempt.group_id))["made_by"] == campaign.id


async def test_attempts_go_out_group_by_group_and_once(rows: Rows) -> None:
    campaign = await plan(rows, size=2, scenarios=2)
    took = [await claim(rows, campaign) for _ in range(4)]
    assert [a.trajectory_external_id for a in took] == ["g-order-0-0", "g-order-0-1", "g-order-1-0", "g-order-1-1"]
    assert await attempts.claim_attempt(rows.store, campaign.id, "runner", 60) is None


async def test_polling_for_attempts_does_not_need_the_write_lock(rows: Rows) -> None:
    campaign = await plan(rows, size=1)
    await claim(rows, campaign)
    async with rows.store.write():
        assert await attempts.claim_attempt(rows.store, campaign.id, "runner", 60) is None


async def test_the_last_attempts_end_readies_its_group(rows: Rows) -> None:
    campaign = await plan(rows)
    for _ in range(2):
        attempt = await answered(rows, campaign)
        await attempts.finish_attempt(rows.store, attempt, DONE, answer={"text": "Monday"})
    assert await rows.state(groups, attempt.group_id) == "ready"
    assert await rows.state(trajectories, attempt.trajectory_id) == "completed"
    row = await rows.get(table, attempt.id)
    assert (row["state"], row["answer"], row["lease_owner"]) == ("done", {"text": "Monday"}, None)
    assert await attempts.count_by_state(rows.store, campaign.id, 1) == {DONE: 2}
    assert await attempts.count_by_state(rows.store, campaign.id, 1, Purpose.VAL) == {}


async def test_an_attempt_and_its_trajectory_may_end_differently(rows: Rows) -> None:
    campaign = await plan(rows)
    attempt = await answered(rows, campaign)
    await attempts.finish_attempt(
        rows.store, attempt, ERRORED, error="timeout", trajectory_state=TrajectoryState.COMPLETED, reason="timeout"
    )
    row = await rows.get(trajectories, attempt.trajectory_id)
    assert (row["state"], row["end_reason"]) == ("completed", "timeout")
    other = await answered(rows, campaign)
    await attempts.finish_attempt(rows.store, other, ERRORED, error="engine down")
    assert await rows.state(trajectories, other.trajectory_id) == "errored"


async def test_a_retried_attempt_is_a_new_trajectory_and_the_group_waits_for_it(rows: Rows) -> None:
    campaign = await plan(rows)
    first, second = await answered(rows, campaign), await answered(rows, campaign)
    await attempts.finish_attempt(rows.store, first, ERRORED, error="engine down", retry=True)
    assert await rows.state(trajectories, first.trajectory_id) == "abandoned"
    await attempts.finish_attempt(rows.store, second, DONE)
    assert await rows.state(groups, first.group_id) == "open"  # the abandoned one does not count
    again = await answered(rows, campaign)
    assert (again.try_number, again.trajectory_external_id) == (1, "g-order-0-0~1")
    await attempts.finish_attempt(rows.store, again, ERRORED, error="engine down", retry=True)
    third = await answered(rows, campaign)
    assert (third.try_number, third.trajectory_external_id) == (2, "g-order-0-0~2")
    await attempts.finish_attempt(rows.store, third, DONE)
    assert await rows.state(groups, first.group_id) == "ready"


async def test_many_attempts_are_claimed_and_finished_at_once(rows: Rows) -> None:
    campaign = await plan(rows, size=3, scenarios=2)
    claimed = await attempts.claim_attempts(rows.store, campaign.id, "runner", 60, 4)
    assert [a.trajectory_external_id for a in claimed] == ["g-order-0-0", "g-order-0-1", "g-order-0-2", "g-order-1-0"]
    assert len({a.trajectory_id for a in claimed}) == 4
    for attempt in claimed:
        await rows.call(attempt.trajectory_id)
    first, second, third, fourth = claimed
    lost = await attempts.finish_attempts(
        rows.store,
        [
            AttemptEnd(first, DONE, answer="Monday"),
            AttemptEnd(second, DONE, answer={"day": 2}),
            AttemptEnd(third, ERRORED, error="boom", trajectory_state=TrajectoryState.COMPLETED, reason="agent_error"),
            AttemptEnd(fourth, ERRORED, error="engine down", retry=True),
        ],
    )
    assert lost == []
    assert [(await rows.get(table, a.id))["answer"] for a in claimed] == ["Monday", {"day": 2}, None, None]
    assert [await rows.state(trajectories, a.trajectory_id) for a in claimed] == [*["completed"] * 3, "abandoned"]
    assert await rows.state(groups, first.group_id) == "ready"
    assert await pending(rows) == [(1, "g-order-1-0~1"), (0, "g-order-1-1"), (0, "g-order-1-2")]


async def test_an_attempt_that_was_lost_does_not_keep_the_others_from_ending(rows: Rows) -> None:
    campaign = await plan(rows)
    lost, kept = await attempts.claim_attempts(rows.store, campaign.id, "runner", 60, 9)
    for attempt in (lost, kept):
        await rows.call(attempt.trajectory_id)
    await rows.set(table, lost.id, lease_owner="other")
    endings = [AttemptEnd(lost, DONE), AttemptEnd(kept, DONE)]
    assert await attempts.finish_attempts(rows.store, endings) == [lost]
    assert [await rows.state(table, a.id) for a in (lost, kept)] == ["running", "done"]
    assert await rows.state(trajectories, lost.trajectory_id) == "open"
    assert await attempts.finish_attempts(rows.store, endings) == [lost, kept]  # it has ended: nobody holds it
    assert await attempts.finish_attempts(rows.store, []) == []


async def test_claiming_and_finishing_many_takes_no_more_statements_than_two(rows: Rows) -> None:
    async def run(size: int) -> int:
        campaign = await plan(rows, size=size + 1)
        with rows.statements() as counted:
            claimed = await attempts.claim_attempts(rows.store, campaign.id, "runner", 60, size)
        for attempt in claimed:
            await rows.call(attempt.trajectory_id)
        with rows.statements() as finished:
            await attempts.finish_attempts(rows.store, [AttemptEnd(a, DONE) for a in claimed])
        await attempts.abandon_running(rows.store, campaign.id)
        await close_group(Project(rows.store, PROJECT), "g-order-0")
        await rows.set(groups, claimed[0].group_id, external_id=f"done-{size}")
        for attempt in claimed:
            await rows.set(trajectories, attempt.trajectory_id, external_id=f"{size}-{attempt.number}")
        return len(counted) + len(finished)

    assert await run(20) == await run(2)


async def test_a_runner_that_lost_its_lease_changes_nothing(rows: Rows) -> None:
    campaign = await plan(rows)
    attempt = await claim(rows, campaign, lease_s=-1)
    assert await attempts.abandon_expired(Project(rows.store, PROJECT)) == 1
    with pytest.raises(LeaseLost):
        await attempts.finish_attempt(rows.store, attempt, DONE)
    assert await rows.state(trajectories, attempt.trajectory_id) == "abandoned"
    assert await pending(rows) == [(1, "g-order-0-0~1"), (0, "g-order-0-1")]


async def hold(rows: Rows, campaign: CampaignView, owner: str) -> leases.Lease:
    """The campaign's lease, that has expired."""
    lease = await leases.acquire_lease(Project(rows.store, PROJECT), campaigns.lease_name(campaign.id), owner, -1)
    assert lease is not None
    return lease


async def test_a_runner_that_is_only_late_keeps_its_attempts(rows: Rows) -> None:
    campaign, owner = await plan(rows), leases.holder_name()  # this process
    lease = await hold(rows, campaign, owner)
    late, later = await claim(rows, campaign, owner, -1), await claim(rows, campaign, owner, -1)
    assert await attempts.abandon_expired(Project(rows.store, PROJECT)) == 0
    async with rows.store.read() as conn:
        assert (await conn.execute(select(table.c.id).where(table.c.lease_expires_at <= now()))).all() == []
    await rows.call(late.trajectory_id)
    await attempts.finish_attempt(rows.store, late, DONE)
    assert await rows.state(trajectories, late.trajectory_id) == "completed"
    await leases.release_lease(rows.store, lease)  # the process goes on with something else
    await attempts.renew_attempts(rows.store, campaign.id, owner, -1)
    assert await attempts.abandon_expired(Project(rows.store, PROJECT)) == 1
    assert await rows.state(trajectories, later.trajectory_id) == "abandoned"


@pytest.mark.parametrize("how", ["ended", "zombie", "elsewhere", "same id later", "no name"])
async def test_a_runner_that_is_gone_loses_its_attempts(rows: Rows, how: str) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    if how != "zombie":
        ended.wait()
    while how == "zombie" and psutil.Process(ended.pid).status() != psutil.STATUS_ZOMBIE:
        await asyncio.sleep(0.01)
    here, own = socket.gethostname(), os.getpid()
    owner = {
        "ended": f"{here}:{ended.pid}:x",
        "zombie": f"{here}:{ended.pid}:x",
        "elsewhere": f"{here}x:{own}:x",
        "same id later": f"{here}:{own}:x",
        "no name": "runner",
    }[how]
    campaign = await plan(rows)
    await hold(rows, campaign, owner)
    attempt = await claim(rows, campaign, owner, -1)
    if how == "same id later":
        long_ago = psutil.Process().create_time() - 60
        async with rows.store.write() as conn:
            await conn.execute(update(table).where(table.c.id == attempt.id).values(started_at=long_ago))
    assert await attempts.abandon_expired(Project(rows.store, PROJECT)) == 1
    ended.wait()


async def test_a_resumed_campaign_runs_again_what_its_dead_runner_held(rows: Rows) -> None:
    campaign = await plan(rows)
    held = [await claim(rows, campaign) for _ in range(2)]
    assert await attempts.abandon_running(rows.store, campaign.id) == 2
    assert [await rows.state(trajectories, a.trajectory_id) for a in held] == ["abandoned"] * 2
    assert await pending(rows) == [(1, "g-order-0-0~1"), (1, "g-order-0-1~1")]
    assert await attempts.abandon_running(rows.store, campaign.id) == 0


async def test_an_attempt_whose_trajectory_had_ended_is_not_run_again(rows: Rows) -> None:
    campaign = await plan(rows, size=1, purpose=Purpose.VAL)
    attempt = await answered(rows, campaign)
    async with rows.store.write() as conn:
        await close_trajectory(conn, attempt.trajectory_id, TrajectoryState.COMPLETED, "done")
    assert await attempts.abandon_running(rows.store, campaign.id) == 1
    assert await rows.state(trajectories, attempt.trajectory_id) == "completed"
    assert await pending(rows) == []


async def test_a_runner_renews_all_it_holds_at_once(rows: Rows) -> None:
    campaign = await plan(rows)
    for _ in range(2):
        await claim(rows, campaign, lease_s=-1)
    assert await attempts.renew_attempts(rows.store, campaign.id, "runner", 60) == 2
    assert await attempts.renew_attempts(rows.store, campaign.id, "other", 60) == 0
    assert await attempts.abandon_expired(Project(rows.store, PROJECT)) == 0


async def test_attempts_of_a_closed_group_are_not_handed_out(rows: Rows) -> None:
    campaign = await plan(rows)
    await close_group(Project(rows.store, PROJECT), "g-order-0")
    assert await attempts.claim_attempt(rows.store, campaign.id, "runner", 60) is None
    assert await attempts.abandon_groupless(Project(rows.store, PROJECT)) == 2
    assert {r["error"] for r in await rows.all(table)} == {"group_closed"}


async def test_attempts_need_a_campaign_and_legal_ids(rows: Rows) -> None:
    campaign = await plan(rows)
    [scenario] = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    bad = NewAttempt(scenario.id, 1, Purpose.TRAIN, 0, "g", "a/b")
    with pytest.raises(InvalidId):
        await attempts.new_attempts(rows.store, campaign.id, [bad])
    with pytest.raises(NotFound):
        await attempts.new_attempts(rows.store, "nothing", [])


async def test_an_attempt_is_never_lost_for_having_anothers_number(rows: Rows) -> None:
    campaign = await plan(rows)
    [scenario] = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    with pytest.raises(Conflict, match="number the attempts at a scenario across all its groups"):
        await attempts.new_attempts(
            rows.store, campaign.id, [NewAttempt(scenario.id, 1, Purpose.TRAIN, 0, "g-again", "g-again-0")]
        )


async def test_the_last_call_tells_whose_fault_it_was(rows: Rows) -> None:
    trajectory = await rows.trajectory(await rows.group(), answered=False)
    assert await attempts.last_call(rows.store, trajectory) is None
    await rows.call(trajectory, started_at=now() - 2)
    await rows.call(trajectory, started_at=now() - 1, state="errored", http_status=503, error="engine down")
    await rows.call(trajectory, turn_kind="aux")
    last = await attempts.last_call(rows.store, trajectory)
    assert last == attempts.LastCall(CallState.ERRORED, 503, "engine down", complete=1)
    other = await rows.trajectory(await rows.group())
    fine = attempts.LastCall(CallState.COMPLETE, None, None, complete=1)
    assert await attempts.last_calls(rows.store, [trajectory, other, "nothing"]) == {trajectory: last, other: fine}


async def test_which_attempts_of_a_round_succeeded_is_written(rows: Rows) -> None:
    campaign = await plan(rows, size=3, purpose=Purpose.VAL)
    held = [await claim(rows, campaign) for _ in range(3)]
    succeeded = {held[0].trajectory_id: True, held[1].trajectory_id: False, "traj_deleted": True}
    await attempts.record_successes(rows.store, campaign.id, 2, Purpose.VAL, succeeded)  # of another round
    assert [row["success"] for row in await rows.all(table)] == [None, None, None]
    await attempts.record_successes(rows.store, campaign.id, 1, Purpose.VAL, succeeded)
    written = {row["id"]: row["success"] for row in await rows.all(table)}
    assert [written[one.id] for one in held] == [1.0, 0.0, None]

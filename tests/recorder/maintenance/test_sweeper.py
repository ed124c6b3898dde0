"""Sweeping at due times: what time changes is changed without polling, by one process at a time, whoever died."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from recorder.errors import StoreUnavailable
from recorder.maintenance import sweep as sweep_module
from recorder.maintenance.sweep import STALE_CALL_S, Sweeper, next_due_query, seconds_until_due, sweep
from recorder.queue import attempts, campaigns, leases
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import NewScenario
from recorder.queue.groups.closure import close_trajectory
from recorder.queue.leases import PROXY
from recorder.settings import RecorderSettings
from recorder.states import Purpose, TrajectoryState
from recorder.store.database import Project
from recorder.store.schema import attempts as attempt_table
from recorder.store.schema import calls, groups, trajectories
from recorder.store.sql import now
from tests.recorder.maintenance.due import is_said
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.talk import Talk, user

pytestmark = pytest.mark.slow

LONG_S = 1000.0
SETTINGS = RecorderSettings(
    answered_idle_s=LONG_S, idle_timeout_s=LONG_S, group_window_s=LONG_S, group_timeout_s=LONG_S
)
QUESTION = next_due_query(PROJECT, SETTINGS)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses where there is something to do; and no look for its own sake."""
    monkeypatch.setattr(sweep_module, "BREATH_S", 0.01)
    monkeypatch.setattr(sweep_module, "HICCUP_S", 0.05)
    monkeypatch.setattr(sweep_module, "LOOK_S", LONG_S)


@asynccontextmanager
async def sweeping(rows: Rows, settings: RecorderSettings = SETTINGS) -> AsyncIterator[Sweeper]:
    made = Sweeper(Project(rows.store, PROJECT), settings, leases.holder_name())
    async with made.running():
        yield made


async def until(look: Callable[[], Awaitable[Any]]) -> None:
    while not await look():
        await asyncio.sleep(0.01)


@pytest.fixture
def dead() -> str:
    """The name of a process of this machine that is no more."""
    host, _, random = leases.holder_name().split(":")
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    return f"{host}:{gone.pid}:{random}"


async def is_due(rows: Rows, at: float) -> bool:
    return await is_said(rows, at, lambda: seconds_until_due(rows.store, QUESTION))


def is_in(rows: Rows, table: Any, object_id: str, state: str) -> Callable[[], Awaitable[bool]]:
    async def look() -> bool:
        return await rows.state(table, object_id) == state

    return look


# --- when


async def test_what_was_due_before_it_began_is_swept_at_once(rows: Rows) -> None:
    run = await rows.trajectory(await rows.group(), last_call_at=now() - LONG_S)
    async with sweeping(rows):
        await until(is_in(rows, trajectories, run, "completed"))


async def test_a_run_ends_when_its_time_has_come_and_not_before(rows: Rows) -> None:
    run = await rows.trajectory(await rows.group(), last_call_at=now() - LONG_S + 0.3)
    assert await seconds_until_due(rows.store, QUESTION) <= 0.3
    async with sweeping(rows):
        await until(is_in(rows, trajectories, run, "completed"))
    row = await rows.get(trajectories, run)
    assert row["ended_at"] >= row["last_call_at"] + LONG_S


async def test_a_run_that_came_after_the_last_look_ends_in_time(rows: Rows) -> None:
    async with sweeping(rows, SETTINGS.model_copy(update={"idle_timeout_s": 0.1})) as one:
        run = await rows.trajectory(await rows.group(), last_call_at=now() + 0.1)
        await until(is_in(rows, trajectories, run, "completed"))
    assert one.sweeps


async def test_the_end_of_a_run_readies_its_group_without_waiting_for_a_time(rows: Rows) -> None:
    group = await rows.group(joined_at=now() - LONG_S)
    one, two = await rows.trajectory(group), await rows.trajectory(group)
    async with sweeping(rows) as made:
        async with rows.store.write() as conn:
            for run in (one, two):
                await close_trajectory(conn, run, TrajectoryState.COMPLETED)
        await until(is_in(rows, groups, group, "ready"))
    assert made.sweeps == 1


async def test_a_full_group_of_answered_runs_is_ready_without_a_word_from_anybody(rows: Rows, talk: Talk) -> None:
    for _ in range(2):
        await talk.call([user("?")], "!")
    [group] = await rows.all(groups)
    async with sweeping(rows, SETTINGS.model_copy(update={"answered_idle_s": 0.2, "group_size": 2})):
        await until(is_in(rows, groups, group["id"], "ready"))


async def test_a_store_in_which_nothing_is_due_is_not_written(rows: Rows) -> None:
    run = await rows.trajectory(await rows.group())
    with rows.statements() as written:
        made = Sweeper(Project(rows.store, PROJECT), SETTINGS, "here")
        last = (await rows.get(trajectories, run))["last_call_at"]
        assert await is_said(rows, last + LONG_S, made._look)
    assert written == []


async def test_old_runs_are_deleted_as_retention_says(rows: Rows) -> None:
    group = await rows.group(state="left_out")
    await rows.trajectory(group, state="completed", ended_at=now() - 86401)

    async def gone() -> bool:
        return not await rows.members(group)

    async with sweeping(rows, SETTINGS.model_copy(update={"retention_days": 1.0})):
        await until(gone)


async def test_it_goes_on_when_the_store_does(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    run = await rows.trajectory(await rows.group(), last_call_at=now() - LONG_S)
    refused = asyncio.Event()

    async def fails_once(*given: Any) -> float:
        if refused.is_set():
            return await seconds_until_due(*given)
        refused.set()
        raise StoreUnavailable("database is locked")

    monkeypatch.setattr(sweep_module, "seconds_until_due", fails_once)
    async with sweeping(rows):
        await until(is_in(rows, trajectories, run, "completed"))
    assert refused.is_set()


async def test_nothing_is_ever_due_in_an_empty_store(rows: Rows) -> None:
    assert await seconds_until_due(rows.store, QUESTION) == math.inf


@pytest.mark.parametrize("state", ["judging", "training"])
async def test_a_claim_is_due_when_its_lease_ends(rows: Rows, state: str) -> None:
    group = await rows.group(state=state, lease_expires_at=now() + 50, lease_owner="x")
    assert await is_due(rows, (await rows.get(groups, group))["lease_expires_at"])


async def test_a_declared_group_is_due_when_it_is_full_or_after_its_timeout(rows: Rows) -> None:
    group = await rows.group(declared_size=1, last_call_at=now() - LONG_S + 50)
    assert await is_due(rows, (await rows.get(groups, group))["last_call_at"] + LONG_S)
    await rows.trajectory(group, state="completed", ended_at=now())
    assert await seconds_until_due(rows.store, QUESTION) <= 0


async def test_an_attempt_is_due_when_its_lease_ends_and_at_once_when_its_group_has_closed(rows: Rows) -> None:
    alias = await rows.alias()
    campaign = await campaigns.create_campaign(Project(rows.store, PROJECT), alias.id, "c", {})
    await campaigns.add_scenarios(rows.store, campaign.id, "train", [NewScenario("s", "do")])
    (task,) = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    group = await rows.group(external_id="g", campaign_id=campaign.id, alias_id=alias.id)
    await attempts.new_attempts(rows.store, campaign.id, [NewAttempt(task.id, 1, Purpose.TRAIN, 0, "g", "000")])
    empty = await rows.get(groups, group)
    assert await is_due(rows, empty["joined_at"] + LONG_S)
    (attempt,) = await attempts.claim_attempts(rows.store, campaign.id, "here", 50, limit=1)
    assert await is_due(rows, (await rows.get(attempt_table, attempt.id))["lease_expires_at"])
    await rows.set(attempt_table, attempt.id, state="pending")
    await rows.set(groups, group, state="left_out")
    assert await seconds_until_due(rows.store, QUESTION) <= 0


# --- one at a time


async def test_who_finds_another_sweeping_leaves_it_to_that_one(rows: Rows) -> None:
    run = await rows.trajectory(await rows.group(), last_call_at=now() - LONG_S)
    held = await leases.acquire_lease(Project(rows.store, PROJECT), sweep_module.LEASE, "another machine", 60)
    assert held is not None
    async with sweeping(rows) as made:
        looked = Sweeper(Project(rows.store, PROJECT), SETTINGS, "here")
        assert await looked._look() == sweep_module.HICCUP_S
        assert (made.sweeps, looked.sweeps) == (0, 0)
        assert await rows.state(trajectories, run) == "open"
        await leases.release_lease(rows.store, held)
        await until(is_in(rows, trajectories, run, "completed"))


async def test_two_that_wake_together_sweep_once(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    at_work = 0

    async def alone(*given: Any) -> Any:
        nonlocal at_work
        at_work += 1
        assert at_work == 1
        report = await sweep(*given)
        at_work -= 1
        return report

    monkeypatch.setattr(sweep_module, "sweep", alone)
    runs = [await rows.trajectory(await rows.group(), last_call_at=now() - LONG_S) for _ in range(8)]
    async with sweeping(rows) as one, sweeping(rows) as two:
        for run in runs:
            await until(is_in(rows, trajectories, run, "completed"))
    assert one.sweeps + two.sweeps >= 1


async def test_a_sweep_that_was_killed_holds_nobody_up(rows: Rows, dead: str) -> None:
    run = await rows.trajectory(await rows.group(), last_call_at=now() - LONG_S)
    await leases.acquire_lease(Project(rows.store, PROJECT), sweep_module.LEASE, dead, LONG_S)
    async with sweeping(rows):
        await until(is_in(rows, trajectories, run, "completed"))


# --- calls of processes that are gone


async def open_call(rows: Rows, process: str | None, lease_s: float | None) -> str:
    run = await rows.trajectory(await rows.group(), answered=False)
    if process is not None and lease_s is not None:
        await leases.acquire_lease(Project(rows.store, PROJECT), PROXY + process, process, lease_s)
    return await rows.call(run, state="open", process=process, sampled=0)


async def test_open_calls_of_a_killed_process_of_this_machine_are_closed_at_once(rows: Rows, dead: str) -> None:
    call = await open_call(rows, dead, LONG_S)
    async with sweeping(rows):
        await until(is_in(rows, calls, call, "errored"))
    assert "died before it ended" in (await rows.get(calls, call))["error"]


async def test_open_calls_of_a_process_elsewhere_are_closed_when_its_lease_ends(rows: Rows) -> None:
    call = await open_call(rows, "elsewhere:1:ab", 0.3)
    async with sweeping(rows):
        await until(is_in(rows, calls, call, "errored"))


async def test_open_calls_of_a_process_that_left_are_closed(rows: Rows) -> None:
    call = await open_call(rows, "elsewhere:1:ab", None)
    async with sweeping(rows):
        await until(is_in(rows, calls, call, "errored"))


async def test_a_call_of_a_process_that_runs_stays_open_however_long_it_takes(rows: Rows) -> None:
    call = await open_call(rows, leases.holder_name(), LONG_S)
    await rows.set(calls, call, started_at=now() - 2 * STALE_CALL_S)
    assert await seconds_until_due(rows.store, QUESTION) > 0
    assert await rows.state(calls, call) == "open"


async def test_a_call_of_nobody_known_is_lost_after_an_hour(rows: Rows) -> None:
    call = await open_call(rows, None, None)
    assert await is_due(rows, (await rows.get(calls, call))["started_at"] + STALE_CALL_S)
    await rows.set(calls, call, started_at=now() - STALE_CALL_S)
    async with sweeping(rows):
        await until(is_in(rows, calls, call, "errored"))

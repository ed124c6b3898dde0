"""When the next open group closes if nothing more happens: as the sweep will have it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.queue.groups.readiness import WAIT, GroupFacts, ReadinessMember, count_members, readiness
from recorder.settings import RecorderSettings
from recorder.states import TrajectoryState
from recorder.store.database import Project
from recorder.store.schema import trajectories
from recorder.store.sql import now
from recorder.views.status.stage_facts import group_close_time, next_close_in
from tests.recorder.rows import PROJECT, Rows

SETTINGS = RecorderSettings(answered_idle_s=15, idle_timeout_s=900, group_window_s=300, group_size=3)


async def outlook(rows: Rows, alias: str) -> float | None:
    return await next_close_in(Project(rows.store, PROJECT), alias, SETTINGS)


async def test_without_open_groups_there_is_nothing_to_tell(rows: Rows) -> None:
    alias = (await rows.alias()).id
    await rows.ready_group(alias_id=alias)
    await rows.group(alias_id=alias, campaign_id="campaign_1")
    assert await outlook(rows, alias) is None


async def test_a_group_whose_runs_have_ended_closes_after_its_window(rows: Rows) -> None:
    alias = (await rows.alias()).id
    await rows.trajectory(await rows.group(alias_id=alias, joined_at=now() - 100), state="completed")
    assert await outlook(rows, alias) == pytest.approx(200, abs=2)


async def test_a_group_waits_for_its_last_run(rows: Rows) -> None:
    alias = (await rows.alias()).id
    group = await rows.group(alias_id=alias, joined_at=now() - 200)
    await rows.trajectory(group, last_call_at=now() - 700)
    await rows.trajectory(group, last_call_at=now() - 100)
    assert await outlook(rows, alias) == pytest.approx(800, abs=2)


async def test_a_full_group_closes_with_its_last_run_and_an_ended_one_at_once(rows: Rows) -> None:
    alias = (await rows.alias()).id
    group = await rows.group(alias_id=alias)
    runs = [await rows.trajectory(group, last_call_at=now() - 890) for _ in range(3)]
    assert await outlook(rows, alias) == pytest.approx(10, abs=2)
    for run in runs:
        await rows.set(trajectories, run, state="completed")
    assert await outlook(rows, alias) == 0


async def test_groups_that_a_model_answers_in_are_not_counted_on(rows: Rows) -> None:
    alias = (await rows.alias()).id
    await rows.call(await rows.trajectory(await rows.group(alias_id=alias)), state="open")
    assert await outlook(rows, alias) is None


async def test_a_group_of_declared_size_waits_for_a_long_run_no_longer_than_its_timeout(rows: Rows) -> None:
    alias = (await rows.alias()).id
    group = await rows.group(alias_id=alias, declared_size=1, last_call_at=now() - 3500)
    await rows.trajectory(group)
    assert await outlook(rows, alias) == pytest.approx(100, abs=2)


@given(st.none() | st.integers(1, 4), st.integers(0, 5), st.floats(0, 1e4), st.floats(0, 1e4))
def test_it_is_the_time_at_which_the_rule_stops_waiting(
    size: int | None, members: int, joined_at: float, called_at: float
) -> None:
    group = GroupFacts(size, joined_at, max(joined_at, called_at))
    ended = [ReadinessMember(TrajectoryState.COMPLETED)] * members
    at = group_close_time(group, count_members(ended), None, SETTINGS)
    assert at is not None
    assert readiness(group, ended, at, SETTINGS) != WAIT
    assert readiness(group, ended, at - 1, SETTINGS) == WAIT

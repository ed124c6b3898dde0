"""n > 1: a first call with several choices, never gone on from, becomes as many trajectories when its run ends."""

from __future__ import annotations

from recorder.queue.groups.closure import close_trajectory
from recorder.states import TrajectoryState
from recorder.store.schema import groups as group_table
from recorder.store.schema import trajectories
from tests.recorder.rows import Rows


async def end(rows: Rows, trajectory: str, state: TrajectoryState = TrajectoryState.COMPLETED) -> None:
    async with rows.store.write() as conn:
        assert await close_trajectory(conn, trajectory, state, "done")


async def test_a_first_call_with_several_choices_becomes_as_many_trajectories(rows: Rows) -> None:
    group = await rows.group(declared_size=3)
    trajectory = await rows.trajectory(group, answered=False, external_id="run", tags={"a": "b"}, version_id="v7")
    call = await rows.call(trajectory, sampled=3)
    await end(rows, trajectory)
    made = [await rows.get(trajectories, t) for t in await rows.members(group)]
    assert sorted((r["leaf_call_id"], r["leaf_choice"]) for r in made) == [(call, 0), (call, 1), (call, 2)]
    siblings = [r for r in made if r["id"] != trajectory]
    assert {r["forked_from_call"] for r in siblings} == {call}
    assert {(r["state"], r["purpose"], r["version_id"], r["external_id"]) for r in siblings} == {
        ("completed", "train", "v7", None)
    }
    assert all(r["tags"] == {"a": "b"} and r["ended_at"] is not None for r in siblings)
    assert await rows.state(group_table, group) == "ready"


async def test_choices_of_a_call_that_was_continued_stay_one_trajectory(rows: Rows) -> None:
    group = await rows.group()
    trajectory = await rows.trajectory(group, answered=False)
    first = await rows.call(trajectory, sampled=3)
    await rows.call(trajectory, parent_call_id=first, parent_choice=1)
    await end(rows, trajectory)
    assert await rows.members(group) == [trajectory]


async def test_an_errored_run_is_not_split(rows: Rows) -> None:
    group = await rows.group()
    trajectory = await rows.trajectory(group, answered=False)
    await rows.call(trajectory, sampled=3)
    await end(rows, trajectory, TrajectoryState.ERRORED)
    assert await rows.members(group) == [trajectory]

"""Two versions' runs with the figures that they are compared by: which count, and what each figure is."""

from __future__ import annotations

import pytest

from recorder.queue.claims import claim_one_for_judging
from recorder.queue.judging.scores import NewPart, record_score
from recorder.states import GroupState
from recorder.store.database import Project
from recorder.store.schema import choices, groups, tool_calls, trajectories
from recorder.views.versions.served_trajectories import list_served_trajectories
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score

BOTH = ("ver_a", "ver_b")


async def scored(rows: Rows, *, asked: str | None = None) -> list[str]:
    """A group of a run a version, judged, by a model where `asked`; the runs' ids."""
    group_id = await rows.ready_group(2)
    members = await rows.members(group_id)
    for member, version_id in zip(members, BOTH, strict=True):
        await rows.set(trajectories, member, version_id=version_id)
    claim = await claim_one_for_judging(rows.store, group_id, "judge", 60)
    assert claim is not None
    parts = [NewPart(member, "reward", float(n)) for n, member in enumerate(members)]
    await record_score(rows.store, claim, new_score("recipe", prompt_hash=asked, parts=parts))
    return members


async def test_a_run_has_its_reward_its_answers_its_tools_and_its_time(rows: Rows) -> None:
    first, second = await scored(rows)
    for call in await rows.all(choices):
        await rows.insert(choices, {**call, "index": 1, "token_ids": b"\0" * 4 * 30})
    for outcome in ("complete", "failed", "errored", "complete"):
        row = {"id": f"tool_{outcome}_{len(await rows.all(tool_calls))}", "project_id": PROJECT, "outcome": outcome}
        row |= {"trajectory_id": second, "join_source": "path", "join_confidence": "stated", "name": "t", "tool": "t"}
        await rows.insert(tool_calls, {**row, "started_at": 1.0, "finished_at": 2.0})
    old, new = await list_served_trajectories(Project(rows.store, PROJECT), BOTH, 0.0)
    assert (old.version_id, new.version_id, old.group_id == new.group_id) == (*BOTH, True)
    assert (old.reward, new.reward, old.ranked, old.errored) == (0.0, 1.0, False, False)
    assert (old.tool_failures, new.tool_failures) == (None, 0.5)
    assert old.answer_tokens == new.answer_tokens == 30.0
    assert first != second


async def test_a_reward_that_ranks_is_told_from_one_that_does_not(rows: Rows) -> None:
    await scored(rows, asked="hash")
    assert [run.ranked for run in await list_served_trajectories(Project(rows.store, PROJECT), BOTH, 0.0)] == [
        True,
        True,
    ]


@pytest.mark.parametrize("change", [{"mixed": True}, {"purpose": "eval"}, {"version_id": "ver_c"}, {"state": "open"}])
async def test_runs_that_are_not_of_one_version_alone_or_not_the_agents_do_not_count(
    rows: Rows, change: dict[str, object]
) -> None:
    first, _ = await scored(rows)
    await rows.set(trajectories, first, **change)
    assert [run.version_id for run in await list_served_trajectories(Project(rows.store, PROJECT), BOTH, 0.0)] == [
        "ver_b"
    ]


async def test_a_group_that_waits_for_its_judge_waits_here_too_and_older_runs_are_past(rows: Rows) -> None:
    await scored(rows)
    [group] = await rows.all(groups)
    assert len(await list_served_trajectories(Project(rows.store, PROJECT), BOTH, 0.0)) == 2
    assert await list_served_trajectories(Project(rows.store, PROJECT), BOTH, 1e12) == []
    await rows.set(groups, group["id"], state=GroupState.READY)
    assert await list_served_trajectories(Project(rows.store, PROJECT), BOTH, 0.0) == []

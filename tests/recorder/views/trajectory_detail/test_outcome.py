"""What became of a run: its score, the steps that were trained on it, its ledger, the runs around it."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.pages import listening, walks
from recorder.reasons import explain_reason
from recorder.store.database import Store
from recorder.store.schema import ledger, step_baselines, step_groups, step_trajectories, steps, uses, versions
from recorder.store.sql import now
from recorder.views.trajectories.transcripts import load_trajectory
from recorder.views.trajectory_detail.loader import load_detail
from recorder.views.trajectory_detail.outcome import RelatedTrajectory, TrajectoryOutcome, load_outcome
from tests.recorder.rows import PROJECT, Rows


async def stands(store: Store, run: str) -> TrajectoryOutcome:
    return await load_outcome(store, await load_trajectory(store, run), {})


async def step(rows: Rows, group: str, *runs: str, state: str = "done") -> str:
    """A step that was trained on some runs of a group."""
    alias = await rows.alias()
    own = {"project_id": PROJECT, "alias_id": alias.id}
    made = {"id": "ver_1", "number": 1, "state": "live", "engine_name": "helpdesk@1", "metrics": {}}
    await rows.insert(versions, own | made | {"created_at": now(), "state_at": now()})
    row = {"id": "step_1", "number": 7, "parent_version_id": alias.live_version_id or "", "version_id": "ver_1"}
    await rows.insert(steps, own | row | {"state": state, "metrics": {}, "started_at": now(), "ended_at": now()})
    await rows.insert(step_groups, {"step_id": "step_1", "group_id": group, "score_id": "score_1"})
    for run in runs:
        await rows.insert(step_trajectories, {"step_id": "step_1", "trajectory_id": run})
    return "step_1"


async def test_its_score_is_the_groups_current_one_and_its_own_parts(store: Store, rows: Rows) -> None:
    group = await rows.scored_group(3)
    for run, reward in zip(await rows.members(group), (0.0, 0.5, 1.0), strict=True):
        found = await stands(store, run)
        assert found.score is not None
        assert (found.score.reward, found.group_size, found.group_state) == (reward, 3, "scored")
        assert {part.trajectory_id for part in found.score.parts} == {run}


async def test_its_place_and_its_advantage_are_those_of_its_group(store: Store, rows: Rows) -> None:
    group = await rows.scored_group(3)
    told = []
    for run in await rows.members(group):
        place = (await stands(store, run)).rank
        assert place is not None
        told.append((place.attempt.number, place.of, place.attempt.advantage, place.rule))
    rule = "reward − mean of the 3 rewards that count (0.5)"
    assert told == [(3, 3, -0.5, rule), (2, 3, 0.0, rule), (1, 3, 0.5, rule)]


async def test_a_run_alone_has_nothing_of_a_group(store: Store, rows: Rows) -> None:
    found = await stands(store, await rows.trajectory())
    assert (found.score, found.rank, found.group_size, found.training_uses, found.ledger) == (None, None, 0, (), ())


async def test_the_step_that_was_trained_on_it_is_named_and_none_for_its_sibling(store: Store, rows: Rows) -> None:
    group = await rows.scored_group(2)
    run, other = await rows.members(group)
    await step(rows, group, run)
    [lesson] = (await stands(store, run)).training_uses
    assert (lesson.number, lesson.version, lesson.version_state) == (7, "helpdesk@1", "live")
    assert (lesson.compared_with, lesson.reward) == (None, None)
    assert (await stands(store, other)).training_uses == ()


async def test_an_objective_that_used_it_is_named_with_its_step_and_its_passes(store: Store, rows: Rows) -> None:
    group = await rows.scored_group(2)
    run, other = await rows.members(group)
    use = {"step_id": await step(rows, group, other), "objective": "imitate", "kind": "trajectory", "source_id": run}
    await rows.insert(uses, use | {"times": 2})
    [found] = (await stands(store, run)).objective_uses
    assert (found.objective, found.times, found.number, found.version) == ("imitate", 2, 7, "helpdesk@1")
    assert (await stands(store, other)).objective_uses == ()


async def test_what_its_reward_was_compared_with_is_said_where_the_step_kept_it(store: Store, rows: Rows) -> None:
    group = await rows.scored_group(2)
    run, _ = await rows.members(group)
    kept = {"step_id": await step(rows, group, run), "trajectory_id": run, "reward": 0.75, "mean": 0.5}
    await rows.insert(step_baselines, kept | {"std": 0.1, "rewards": 64, "same_tools": True})
    [lesson] = (await stands(store, run)).training_uses
    assert (lesson.reward, lesson.compared_with, lesson.earlier_rewards) == (0.75, 0.5, 64)


async def test_an_answer_that_the_trainer_passed_over_says_so_in_a_run_that_was_trained_on(
    store: Store, rows: Rows
) -> None:
    group = await rows.scored_group(2)
    run, _ = await rows.members(group)
    await step(rows, group, run)
    call = (await load_trajectory(store, run)).calls[0].id
    line = {"project_id": PROJECT, "object_kind": "call", "object_id": call, "code": "over_age", "at": 1.0}
    await rows.insert(ledger, line | {"detail": {"choice": 0, "trajectory": run}})
    told = await load_detail(store, run)
    answer = told.conversation.answer(call, 0)
    assert answer is not None
    assert (answer.trained, answer.why) == (False, "over_age")
    assert [(one.kind, one.meaning) for one in told.outcome.ledger] == [("call", explain_reason("over_age"))]


async def test_its_session_and_its_address_lead_to_the_runs_around_it(store: Store, rows: Rows) -> None:
    ids: list[str] = []
    for n in range(3):
        went_on: dict[str, Any] = {"sequence": n, "continues": ids[-1] if ids else None}
        ids.append(await rows.trajectory(session="s", external_id="one", **went_on))
    await rows.trajectory(session="other")
    found = await stands(store, ids[1])
    assert (found.before, found.after) == (RelatedTrajectory(ids[0], "one"), RelatedTrajectory(ids[2], "one"))
    assert found.continued_by == RelatedTrajectory(ids[2], "one")


@pytest.mark.sqlite_only("its plans")
async def test_reading_a_run_walks_no_table(store: Store, rows: Rows) -> None:
    group = await rows.scored_group(2)
    run, _ = await rows.members(group)
    await step(rows, group, run)
    other = await rows.trajectory(session="s", external_id="one", continues=run)
    with listening(store) as heard:
        for id_ in (run, other):
            await load_detail(store, id_)
    assert heard
    assert await walks(store, heard) == []

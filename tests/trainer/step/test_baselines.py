"""Runs that never repeat, through the store: feedback, the judge's score, the baseline, the rows of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from judge.scoring.group_score import score_group
from judge.scoring.setup import open_judge_context
from judge.settings import JudgeSettings
from recorder.queue import claims, feedback
from recorder.queue.judging import scores
from recorder.queue.training import baselines
from recorder.queue.training.baselines import FEWEST
from recorder.registry import aliases
from recorder.states import GroupState, Origin, Purpose
from recorder.store.database import Project
from recorder.store.schema import step_baselines as step_baselines_table
from recorder.views.trajectories.transcripts import load_group, load_groups
from tests.recorder.rows import Rows
from tests.trainer.step.left import group_state
from tests.trainer.world import PROJECT, World
from trainer.objectives.group_rows import UntrainedChoice
from trainer.step import baselines as step_baselines

THUMBS = JudgeSettings.model_validate({"rewards": [{"kind": "feedback", "name": "thumbs"}]})


async def runs_with_feedback(world: World, thumbs: Sequence[float], prefix: str = "task") -> dict[str, str]:
    """Runs of which no two attempt one task, judged by what was said of them. Returns group id → run id."""
    found = {}
    async with open_judge_context(THUMBS, Project(world.store, PROJECT)) as context:
        for number, value in enumerate(thumbs):
            run = await world.run(f"{prefix} {number}", 0, 1, number, Purpose.TRAIN, 1)
            await feedback.add_feedback(Project(world.store, PROJECT), run, "thumbs", value)
            claim = await claims.claim_for_judging(Project(world.store, PROJECT), "judge", 60)
            assert claim is not None
            scored = await score_group(await load_group(world.store, claim.group_id), context)
            await scores.record_score(world.store, claim, scored.new)
            found[claim.group_id] = run
    return found


@pytest.fixture
async def running(world: World) -> World:
    """A world whose alias compares its runs with earlier ones."""
    await aliases.ensure_alias(Project(world.store, PROJECT), world.alias.name, "tiny", None, baseline="running")
    return world


@pytest.mark.slow
async def test_feedback_on_runs_that_never_repeat_becomes_a_step_that_says_what_it_compared_with(
    running: World,
) -> None:
    earlier = [float(number % 4 == 0) for number in range(FEWEST)]
    await runs_with_feedback(running, earlier)
    mean = sum(earlier) / FEWEST
    async with await running.trainer() as trainer:
        assert await baselines.list_lacking_recipes(running.store, running.alias.id) != {}
        newest = await runs_with_feedback(running, [1.0, 0.0], "new")
        assert await baselines.list_lacking_recipes(running.store, running.alias.id) == {}
        held = await claims.claim_for_training(
            running.store, running.alias.id, trainer.owner, 60, limit=9, group_ids=list(newest)
        )
        report = await trainer.train_once(held)
    assert (report.trained, report.reason, report.left_out) == (2, None, {})
    assert report.step is not None
    good, bad = newest.values()
    after_good = (sum(earlier) + 1.0) / (FEWEST + 1)
    kept = {one["trajectory_id"]: one for one in await Rows(running.store).all(step_baselines_table)}
    assert [(kept[run]["reward"], kept[run]["rewards"]) for run in (good, bad)] == [(1.0, FEWEST), (0.0, FEWEST + 1)]
    assert [kept[run]["mean"] for run in (good, bad)] == pytest.approx([mean, after_good])
    for group_id in newest:
        assert (await group_state(running, group_id))[0] == GroupState.TRIED


async def test_a_run_that_nothing_can_be_compared_with_is_left_out_and_told(running: World) -> None:
    (group_id,) = await runs_with_feedback(running, [1.0])
    async with await running.trainer() as trainer:
        report = await trainer.train_once(await running.claim(trainer))
    assert report.left_out == {UntrainedChoice.NO_BASELINE: 1}
    assert await group_state(running, group_id) == (GroupState.LEFT_OUT, UntrainedChoice.NO_BASELINE)


async def test_what_compares_its_own_members_has_no_baseline(running: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.objectives.running_baseline.FEWEST", 1)
    await runs_with_feedback(running, [0.0, 1.0])
    (group_id,) = await runs_with_feedback(running, [0.5], "looked at")
    ranked = await running.group("ranked", [1.0, 0.0])  # its score does not say that it is absolute
    (view, of_ranking) = await load_groups(running.store, [group_id, ranked])
    assert list(await step_baselines.load_baselines(running.store, [view, of_ranking])) == [group_id]
    shadow = [replace(member, origin=Origin.SHADOW) for member in view.members]
    for other in (replace(view, campaign_id="c"), replace(view, baseline="group"), replace(view, members=shadow)):
        assert await step_baselines.load_baselines(running.store, [other]) == {}

"""What the stages wait for, read from a real store.

What is waited for, in numbers and times: groups by state, and when the next closes or is tried again.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from recorder.queue import campaigns, leases
from recorder.queue.training import steps
from recorder.settings import LearnSettings, RecorderSettings
from recorder.store.database import Project, Store
from recorder.store.schema import scores as score_table
from recorder.views.status.stage_facts import GroupForecast, forecast_groups, read_stages
from recorder.views.status.stages import LoopSettings, Stage, StageStatus
from tests.recorder.rows import PROJECT, Rows
from trainer.settings import TrainerSettings

ONE_GROUP = LoopSettings(trainer=TrainerSettings(min_groups=1))


async def stage(store: Store, which: Stage, settings: LoopSettings = ONE_GROUP) -> StageStatus:
    found = await read_stages(Project(store, PROJECT), settings)
    return next(one for one in found if one.stage is which)


async def learning(store: Store, settings: LoopSettings = ONE_GROUP) -> str:
    return (await stage(store, Stage.LEARNING, settings)).code


async def test_an_empty_store_waits_for_its_first_call(store: Store) -> None:
    found = await read_stages(Project(store, PROJECT), ONE_GROUP)
    assert [(one.stage, one.code) for one in found] == [
        ("recording", "nothing_recorded"),
        ("judging", "no_group_ready"),
    ]


async def test_learning_of_an_alias_from_its_first_group_to_its_step(store: Store) -> None:
    rows = Rows(store)
    alias = await rows.alias()
    assert await learning(store) == "too_few_groups"
    await rows.ready_group(alias_id=alias.id)
    assert await learning(store) == "no_judge"
    assert await leases.acquire_lease(Project(store, PROJECT), "judge:here", "here", 60)
    assert await learning(store) == "too_few_groups"
    await rows.scored_group(alias_id=alias.id)
    assert await learning(store) == "no_learner"
    assert await leases.acquire_lease(Project(store, PROJECT), leases.trainer_lease(alias.name), "here", 60)
    assert await learning(store) == "step_due"
    closed = LearnSettings(steps_per_hour=1)
    assert alias.live_version_id is not None
    step = await steps.begin_step(store, alias.id, alias.live_version_id)
    assert await learning(store) == "training"
    await steps.abandon_step(store, step.id, "lost")
    assert await learning(store, replace(ONE_GROUP, learn=closed)) == "step_due"


async def test_a_campaign_that_runs_on_an_alias_is_waited_for(store: Store) -> None:
    rows = Rows(store)
    alias = await rows.alias()
    await rows.scored_group(alias_id=alias.id)
    campaign = await campaigns.create_campaign(Project(store, PROJECT), alias.id, "orders", {})
    assert await leases.acquire_lease(Project(store, PROJECT), campaigns.lease_name(campaign.id), "train", 60)
    assert await learning(store) == "campaign"


async def test_a_judges_budget_is_counted_over_the_last_day(store: Store) -> None:
    rows = Rows(store)
    alias = await rows.alias()
    group_id = await rows.scored_group(alias_id=alias.id)
    async with store.write() as conn:
        scored = score_table.c.group_id == group_id
        await conn.execute(update(score_table).where(scored).values(tokens_in=60, tokens_out=40))
    settings = LoopSettings(learn=LearnSettings(judge_tokens_per_day=100))
    held = await stage(store, Stage.JUDGING, settings)
    assert (held.state, held.code) == ("paused", "judge_tokens_per_day")
    assert held.text.startswith("Judging is paused: the judge used its 100 tokens of the last 24 hours.")
    assert await learning(store, settings) == "too_few_groups"  # nothing is there that the judge could add
    await rows.ready_group(alias_id=alias.id)
    assert await learning(store, settings) == "judge_tokens_per_day"


async def test_a_group_that_is_too_old_is_no_group_for_a_step(store: Store) -> None:
    rows = Rows(store)
    alias = await rows.alias()
    await rows.scored_group(alias_id=alias.id, ready_at=0.0)
    assert await learning(store) == "no_learner"
    assert await learning(store, replace(ONE_GROUP, learn=LearnSettings(max_age_s=600))) == "too_few_groups"


SETTINGS = RecorderSettings(idle_timeout_s=900, group_window_s=300, group_timeout_s=3600)


async def asked(store: Store) -> GroupForecast:
    return await forecast_groups(Project(store, PROJECT), SETTINGS)


async def test_the_next_close_is_told_by_the_rule_of_each_group(store: Store) -> None:
    rows = Rows(store)
    await rows.group(declared_size=4, joined_at=1000.0, last_call_at=1000.0)
    assert (await asked(store)).due == {"open": 1000.0 + 3600}
    await rows.group(joined_at=4200.0)
    assert (await asked(store)).due == {"open": 4200.0 + 300}
    running = await rows.group(joined_at=100.0)
    await rows.trajectory(running, last_call_at=3000.0)
    found = await asked(store)
    assert found.due == {"open": 3000.0 + 900}
    assert (found.groups, found.open_trajectories) == ({"open": 3}, 1)
    assert found.sentence(at=3442.0) == "3 groups open, the next closes in 07:38"
    assert found.sentence(times=False) == "3 groups open"


async def test_a_group_that_failed_is_tried_again(store: Store) -> None:
    await Rows(store).group(state="unscored", try_after=500.0)
    found = await asked(store)
    assert found.sentence(at=440.0) == "1 group could not be judged, the next is tried again in 01:00"
    assert found.in_s("unscored", at=600.0) == 0


async def test_nothing_is_waited_for(store: Store) -> None:
    assert (await asked(store)).sentence() == "no group yet"
    await Rows(store).group(state="trained")
    found = await asked(store)
    assert found.sentence() == "no group yet"


@pytest.mark.parametrize("state", ["ready", "judging", "scored", "training", "tried"])
async def test_what_needs_no_time_has_none(state: str, store: Store) -> None:
    await Rows(store).group(state=state)
    found = await asked(store)
    assert found.due == {}
    assert found.sentence().startswith("1 group ")

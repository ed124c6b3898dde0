"""What the stages wait for, read from a real store.

What is waited for, in numbers and times: groups by state, and when the next closes or is tried again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import update

from recorder.queue import campaigns, claims, leases
from recorder.queue.training import steps
from recorder.registry import versions
from recorder.settings import LearnSettings, RecorderSettings
from recorder.store.database import Project, Store
from recorder.store.schema import campaigns as campaigns_table
from recorder.store.schema import groups as groups_table
from recorder.store.schema import scores as score_table
from recorder.store.schema import trajectories
from recorder.store.sql import now
from recorder.views.status.stage_facts import GroupForecast, forecast_groups, read_alias, read_stages
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
    alias = (await rows.alias()).id
    declared = await rows.group(alias_id=alias, declared_size=4, joined_at=1000.0, last_call_at=1000.0)
    await rows.trajectory(declared, state="completed")
    assert (await asked(store)).due == {"open": 1000.0 + 3600}
    await rows.trajectory(await rows.group(alias_id=alias, joined_at=4200.0), state="completed")
    assert (await asked(store)).due == {"open": 4200.0 + 300}
    running = await rows.group(alias_id=alias, joined_at=100.0)
    await rows.trajectory(running, last_call_at=3000.0)
    found = await asked(store)
    assert found.due == {"open": 3000.0 + 900}
    assert (found.groups, found.open_trajectories) == ({"open": 3}, 1)
    assert found.sentence(at=3442.0) == "3 groups open, the next closes in 07:38"
    assert found.sentence(times=False) == "3 groups open"


async def test_a_group_that_failed_is_tried_again(store: Store) -> None:
    rows = Rows(store)
    await rows.ready_group(alias_id=(await rows.alias()).id, state="unscored", try_after=500.0)
    found = await asked(store)
    assert found.sentence(at=440.0) == "1 group could not be judged, the next is tried again in 01:00"
    assert found.in_s("unscored", at=600.0) == 0


async def test_nothing_is_waited_for(store: Store) -> None:
    assert (await asked(store)).sentence() == "no group yet"
    await Rows(store).group(state="trained")
    found = await asked(store)
    assert found.sentence() == "no group waits"


@pytest.mark.parametrize("state", ["ready", "judging", "scored", "training", "tried"])
async def test_what_needs_no_time_has_none(state: str, store: Store) -> None:
    rows = Rows(store)
    await rows.ready_group(alias_id=(await rows.alias()).id, state=state)
    found = await asked(store)
    assert found.due == {}
    assert found.sentence().startswith("1 group ")


# --- the learner's groups, and the others


class Traffic:
    """A store with groups of every use."""

    def __init__(self, rows: Rows, alias_id: str) -> None:
        self.rows = rows
        self.alias_id = alias_id

    async def group(
        self, state: str, origin: str = "live", purpose: str = "train", *, member: str = "completed", **of_group: Any
    ) -> str:
        """A group of two."""
        of = {"alias_id": self.alias_id, "state": state, "ready_at": now(), **of_group}
        group_id = await self.rows.group(**of)
        for _ in range(2):
            run = {"origin": origin, "purpose": purpose, "state": member, "alias_id": of["alias_id"]}
            await self.rows.trajectory(group_id, **run)
        return group_id

    async def claimed(self) -> int:
        """How many groups a learner takes."""
        return len(await claims.claim_for_training(self.rows.store, self.alias_id, "trainer", 60, limit=1000))


@pytest.fixture
async def traffic(store: Store) -> Traffic:
    rows = Rows(store)
    return Traffic(rows, (await rows.alias()).id)


async def test_gate_pairs_wait_for_no_step_and_shadow_groups_are_named(store: Store, traffic: Traffic) -> None:
    for _ in range(3):
        await traffic.group("scored")
    for _ in range(2):
        await traffic.group("scored", "shadow")
    for _ in range(448):
        await traffic.group("scored", "shadow", "eval")
    await traffic.group("ready", "shadow")
    for _ in range(16):
        await traffic.group("ready", "shadow", "eval")
    found = await asked(store)
    assert (found.groups, found.shadow) == ({"ready": 1, "scored": 5}, {"ready": 1, "scored": 2})
    assert found.apart == {"gate": {"ready": 16}}
    assert found.sentence() == (
        "1 group ready for the judge (1 of shadow answers); 5 groups scored (2 of shadow answers); "
        "gate: 16 groups ready for the judge"
    )
    stages = {one.stage: one.text for one in await read_stages(Project(store, PROJECT), LoopSettings())}
    assert stages[Stage.JUDGING] == (
        "Judging waits for a judge: 17 groups are ready and no judge runs. Start one with `hone judge`."
    )
    assert stages[Stage.LEARNING] == (
        "Learning waits for a learner: 5 groups are enough for a step and none runs. Start one with `hone learn`."
    )
    assert await traffic.claimed() == 5


@pytest.mark.parametrize(
    ("use", "of"),
    [
        ("gate", {"origin": "shadow", "purpose": "eval"}),
        ("gate", {"origin": "campaign", "purpose": "eval", "campaign_id": "gate_1"}),
        ("campaign", {"origin": "campaign", "campaign_id": "campaign_1"}),
        ("evaluation", {"origin": "campaign", "purpose": "val", "campaign_id": "campaign_1"}),
        ("evaluation", {"purpose": "eval"}),
        ("not for training", {"purpose": "none"}),
        ("not for training", {"alias_id": None}),  # another provider's model
    ],
    ids=str,
)
@pytest.mark.parametrize("state", ["open", "ready", "judging", "unscored", "scored"])
async def test_what_the_learner_never_takes_is_counted_apart(
    store: Store, traffic: Traffic, use: str, of: dict[str, Any], state: str
) -> None:
    live = await versions.allocate_version(store, traffic.alias_id, (await traffic.rows.alias()).live_version_id or "")
    campaign = {"project_id": PROJECT, "alias_id": traffic.alias_id, "settings": {}, "state": "running"}
    for id_, version in (("gate_1", live.id), ("campaign_1", None)):
        row = {"id": id_, "name": id_, "version_id": version, "started_at": now(), **campaign}
        await traffic.rows.insert(campaigns_table, row)
    await traffic.group(state, member="open" if state == "open" else "completed", **of)
    found = await asked(store)
    assert (found.groups, found.shadow) == ({}, {})
    assert found.apart == ({} if state == "scored" else {use: {state: 1}})
    assert await traffic.claimed() == 0
    facts, _ = await read_alias(store, await traffic.rows.alias(), ONE_GROUP)
    assert (facts.groups, facts.trainable.groups) == ({}, 0)


async def test_scored_groups_that_no_step_takes_yet_are_held_back(store: Store, traffic: Traffic) -> None:
    await traffic.group("scored")
    await traffic.group("scored", try_after=9e9)  # feedback came: it is judged again
    await traffic.group("scored", ready_at=1.0)
    found = await forecast_groups(Project(store, PROJECT), SETTINGS, LearnSettings(max_age_s=600))
    assert (found.groups, found.apart) == ({"scored": 1}, {"held back": {"scored": 2}})
    assert found.sentence() == "1 group scored; held back: 2 groups scored"
    old = LoopSettings(learn=LearnSettings(max_age_s=600))
    learning = await stage(store, Stage.LEARNING, old)
    assert learning.text == "Learning waits for 4 scored groups: 1 is scored, 2 are scored and held back."
    assert (await asked(store)).groups == {"scored": 2}  # without a bound on their age
    assert await traffic.claimed() == 2


async def test_a_shadow_group_is_held_back_until_the_group_of_its_trajectory_is_decided(
    store: Store, traffic: Traffic
) -> None:
    home = await traffic.group("open", member="open")
    [run, _] = await traffic.rows.members(home)
    call = await traffic.rows.call(run)
    shadow = await traffic.group("scored", "shadow")
    for member in await traffic.rows.members(shadow):
        await traffic.rows.set(trajectories, member, forked_from_call=call)
    found = await asked(store)
    assert (found.groups, found.shadow, found.apart) == ({"open": 1}, {}, {"held back": {"scored": 1}})
    await traffic.rows.set(groups_table, home, state="left_out", reason="too_few")
    found = await asked(store)
    assert (found.groups, found.shadow, found.apart) == ({"left_out": 1, "scored": 1}, {"scored": 1}, {})
    assert await traffic.claimed() == 1


async def test_a_store_of_measured_groups_alone_has_recorded_something(store: Store, traffic: Traffic) -> None:
    await traffic.group("scored", purpose="val")
    found = await stage(store, Stage.RECORDING)
    assert (found.code, found.text) == ("recording", "Recording waits for the next call: nothing is open.")


async def test_groups_that_were_only_measured_are_not_counted(store: Store, traffic: Traffic) -> None:
    await traffic.group("measured", purpose="eval", reason="measured")
    await traffic.group("left_out", reason="too_few")
    await traffic.group("trained")
    assert (await asked(store)).groups == {"left_out": 1, "trained": 1}

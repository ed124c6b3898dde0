"""Learning from live traffic: when a step is due, and what is said while none is."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from proxy.settings.hone import HoneSettings
from recorder.ids import new_id
from recorder.messages.calls import (
    Address,
    Attribution,
    RecordedCall,
    RecordedRequest,
    SampledChoice,
    SamplingParameters,
)
from recorder.processes.phase_file import ProgramPhase, read_phase
from recorder.queue import campaigns, claims, leases
from recorder.queue.claims import GroupClaim
from recorder.queue.groups import lookup
from recorder.queue.training import adapter_trials
from recorder.registry import alias_moves, aliases, moves, versions
from recorder.registry.keys import create_key
from recorder.setting_changes import actions
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import LearnSettings
from recorder.states import CallState, Confidence, GroupState, Purpose
from recorder.stats.falls import ScenarioFigure
from recorder.store.database import Project
from recorder.store.schema import groups as groups_table
from recorder.store.schema import scores as score_table
from recorder.store.schema import versions as version_table
from recorder.views.campaigns.events import StepDone
from recorder.views.status.stage_facts import read_stages
from recorder.views.status.stages import LoopSettings, StageStatus
from recorder.views.versions.live_rewards import live_rounds
from tests.recorder.score_rows import new_score
from tests.trainer.ring import ALIAS, PROJECT, RecordedProgress, Ring, Script, ScriptedTrainer
from trainer.errors import MemoryFull, StepFailed, UnsupportedModel
from trainer.progress import Notice, PhaseFile, PhaseStatus
from trainer.runtime.learner import Learner, StepSchedule
from trainer.settings import TrainerSettings
from trainer.step.summary import StepReport

pytestmark = pytest.mark.slow


@pytest.fixture
async def ring(tmp_path: Path) -> AsyncIterator[Ring]:
    async with Ring.running(tmp_path / "data", Script(judge=False)) as running:
        yield running


async def live_group(
    ring: Ring,
    name: str,
    rewards: Sequence[float],
    purpose: Purpose = Purpose.TRAIN,
    version: str | None = None,
    *,
    absolute: bool = False,
) -> str:
    """A scored group of live runs, that a version (by its id, default: the first) sampled."""
    version = version or ring.alias.live_version_id
    group_id = None
    members: list[str] = []
    for number in range(len(rewards)):
        address = Address(str(number), name, len(rewards), purpose, done=True)
        messages = [{"role": "user", "content": name}]
        request = RecordedRequest(
            "chat", "/v1/chat/completions", ALIAS, False, messages, None, None, {}, new_id("b").encode()[-16:],
            SamplingParameters(),
        )  # fmt: skip
        ref = await ring.recorder.trajectory_at(PROJECT, ring.alias.id, address, request, version)
        said = SampledChoice(0, {"role": "assistant", "content": f"{number}"}, [4], [-0.1], "stop")
        now = time.time()
        turn = RecordedCall(new_id("call"), PROJECT, address, Attribution("path", Confidence.STATED, ref), request,
                    CallState.COMPLETE, ring.alias.id, version, None, [1, 2], [said], None, None,
                    200, None, now, now, now)  # fmt: skip
        await ring.recorder.commit(turn)
        group_id = ref.group_id
        members.append(ref.id)
    assert group_id is not None
    claim = await claims.claim_one_for_judging(ring.store, group_id, "judge", 60)
    assert claim is not None
    await score(ring, claim, dict(zip(members, rewards, strict=True)), absolute=absolute)
    return group_id


async def score(ring: Ring, claim: GroupClaim, rewards: dict[str, float], *, absolute: bool = False) -> None:
    from recorder.queue.judging.scores import NewPart, record_score

    parts = [NewPart(member, "reward", value) for member, value in rewards.items()]
    await record_score(ring.store, claim, new_score("recipe", parts=parts, absolute=absolute))


@asynccontextmanager
async def learning(
    ring: Ring, told: RecordedProgress, trainer: ScriptedTrainer, learn: LearnSettings | None = None, **settings: float
) -> AsyncIterator[None]:
    async with _running(learner_of(ring, told, trainer, learn, **settings)):
        yield


def learner_of(
    ring: Ring,
    told: RecordedProgress,
    trainer: ScriptedTrainer,
    learn: LearnSettings | None = None,
    **settings: float | str,
) -> Learner:
    of_trainer = TrainerSettings.model_validate({"min_groups": 1, **settings})
    follower = SettingsFollower(Project(ring.store, PROJECT), HoneSettings(learn=learn or LearnSettings()))
    patience = StepSchedule(ring.store, ring.alias, of_trainer, follower)
    return Learner(ring.store, ring.alias, of_trainer, trainer, told, patience)


@asynccontextmanager
async def _running(learner: Learner) -> AsyncIterator[None]:
    task = asyncio.create_task(learner.run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while not await holds():
        await asyncio.sleep(0.01)


async def test_a_step_begins_when_enough_scored_groups_wait(ring: Ring) -> None:
    told = RecordedProgress()
    async with learning(ring, told, ScriptedTrainer(ring.store, ring.alias), min_groups=2):
        await live_group(ring, "first", [0.0, 1.0])
        await until(lambda: said(told, "Learning waits for 2 scored groups: 1 is scored."))
        assert not told.steps()
        await live_group(ring, "second", [1.0, 0.0])
        await until(lambda: done(told, 1))
    (step,) = told.steps()
    assert (step.version, step.trained) == (f"{ALIAS}@1", 4)  # runs: two of each group
    await until(lambda: nothing_on_the_way(ring))


async def nothing_on_the_way(ring: Ring) -> bool:
    return not await lookup.count_groups(ring.store, ring.alias.id)


async def test_no_step_begins_before_the_last_version_is_decided(ring: Ring) -> None:
    ring.script.promote = False
    told = RecordedProgress()
    await live_group(ring, "first", [0.0, 1.0])
    async with learning(ring, told, ScriptedTrainer(ring.store, ring.alias)):
        await until(lambda: done(told, 1))
        await live_group(ring, "second", [1.0, 0.0])
        waits = (
            f"Learning waits for a decision on {ALIAS}@1: it is gated, and no step begins before it is live or "
            "rejected."
        )
        await until(lambda: said(told, waits))
        assert len(told.steps()) == 1
        version = await versions.get_version_by_name(Project(ring.store, PROJECT), f"{ALIAS}@1")
        await alias_moves.set_live(ring.store, ring.alias.id, version.id, why="promote")
        await until(lambda: done(told, 2))
    second = await versions.get_version_by_name(Project(ring.store, PROJECT), f"{ALIAS}@2")
    assert second.parent_id == version.id


async def test_a_learner_that_a_person_pauses_begins_no_step_until_it_is_resumed(ring: Ring) -> None:
    told, project = RecordedProgress(), Project(ring.store, PROJECT)
    ops, _ = await create_key(project, "ops", ["admin"])
    follower, page = (SettingsFollower(project, HoneSettings()) for _ in range(2))
    of_trainer = TrainerSettings(min_groups=1)
    schedule = StepSchedule(ring.store, ring.alias, of_trainer, follower)
    trainer = ScriptedTrainer(ring.store, ring.alias)
    async with follower.running(), _running(Learner(ring.store, ring.alias, of_trainer, trainer, told, schedule)):
        await actions.set_paused(page, paused=True, who=ops.id)
        change = page.changes["learn.paused"]
        waits = (
            f"Learning is paused by ops since {change.since}. Resume it on the page Training, or by `hone config "
            "learn.paused --set false`."
        )
        await until(lambda: said(told, waits))
        await live_group(ring, "first", [0.0, 1.0])
        (stage,) = [one for one in await read_stages(project, LoopSettings.current(page)) if one.alias == ALIAS]
        assert (stage.code, stage.text) == ("paused", waits)
        assert not told.steps()
        await actions.undo(page, "learn.paused", ops.id)
        await until(lambda: done(told, 1))


async def fallen(ring: Ring, told: RecordedProgress, *, absolute: bool = True) -> str:
    """Twelve tasks of version 0 and a step, then twelve of version 1, that does badly; its id."""
    for number in range(12):
        await live_group(ring, f"good-{number}", [1.0, 0.9], absolute=absolute)
    await until(lambda: done(told, 1))
    version = await versions.get_version_by_name(Project(ring.store, PROJECT), f"{ALIAS}@1")
    await until(lambda: is_live(ring, version.id))
    for number in range(12):
        await live_group(ring, f"bad-{number}", [0.1, 0.0], version=version.id, absolute=absolute)
    return version.id


async def is_live(ring: Ring, version_id: str) -> bool:
    return (await aliases.get_alias(Project(ring.store, PROJECT), ALIAS)).live_version_id == version_id


FELL = (
    f"Learning waits for a decision on {ALIAS}@1: the mean reward fell from 0.950 to 0.050 (by 0.90, 95 % interval "
    "0.90 to 0.90): 12 tasks of the newest version beside those of the versions before. `hone rollback` takes it back, "
    f"`hone promote {ALIAS}@1` keeps it."
)


async def test_no_step_begins_after_a_version_that_earns_less_until_it_is_decided(ring: Ring) -> None:
    told, trainer = RecordedProgress(), ScriptedTrainer(ring.store, ring.alias)
    async with learning(ring, told, trainer, min_groups=12, max_groups=12):
        version_id = await fallen(ring, told)
        await until(lambda: said(told, FELL))
        assert len(told.steps()) == 1
        (stage,) = [
            one for one in await read_stages(Project(ring.store, PROJECT), LoopSettings()) if one.alias == ALIAS
        ]
        assert (stage.code, stage.text) == ("reward_fall", FELL)
        await alias_moves.set_live(ring.store, ring.alias.id, version_id, why="promote", who="me", reason="it is well")
        await until(lambda: done(told, 2))
    listed = await moves.list_moves(Project(ring.store, PROJECT), version_ids=[version_id])
    assert [(move.move, move.who) for move in listed][:2] == [("kept", "me"), ("reward_fall", "learner")]
    assert listed[1].figures["now"] == pytest.approx(0.05)
    second = await versions.get_version_by_name(Project(ring.store, PROJECT), f"{ALIAS}@2")
    await until(lambda: is_live(ring, second.id))
    alias = await aliases.get_alias(Project(ring.store, PROJECT), ALIAS)
    assert await live_rounds(ring.store, alias) == []  # nothing of the newest yet
    for number in range(12):
        await live_group(ring, f"more-{number}", [0.1, 0.0], version=second.id, absolute=True)
    assert len(await live_rounds(ring.store, alias)) == 2  # what was kept is what later ones are compared with


async def test_a_rollback_decides_a_fall_too(ring: Ring) -> None:
    told, trainer = RecordedProgress(), ScriptedTrainer(ring.store, ring.alias)
    async with learning(ring, told, trainer, min_groups=12, max_groups=12):
        await fallen(ring, told)
        await until(lambda: said(told, FELL))
        await alias_moves.rollback(ring.store, ring.alias.id)
        await until(lambda: done(told, 2))


async def test_no_step_begins_after_a_version_too_far_from_the_base_until_it_is_decided(ring: Ring) -> None:
    told, trainer = RecordedProgress(), ScriptedTrainer(ring.store, ring.alias)
    async with learning(ring, told, trainer, min_groups=1, kl_base_max=0.3, drift_trajectories=4):
        await live_group(ring, "first", [1.0, 0.0])
        await until(lambda: done(told, 1))
        version = await versions.get_version_by_name(Project(ring.store, PROJECT), f"{ALIAS}@1")
        await until(lambda: is_live(ring, version.id))
        async with ring.store.write() as conn:  # as a trainer that measures it writes it down
            far = update(version_table).where(version_table.c.id == version.id)
            await conn.execute(far.values(metrics={"drift.kl_base": 0.4}))
        await live_group(ring, "second", [1.0, 0.0], version=version.id)
        (stage,) = [one for one in await until_stage(ring, "kl_base_max") if one.alias == ALIAS]
        assert stage.text.startswith(
            f"Learning waits for a decision on {ALIAS}@1: its KL from the base is 0.4 nats a token on the drift set, "
            "where trainer.kl_base_max is 0.3; read what it answers: `hone show traj_"
        )
        await until(lambda: said(told, stage.text))
        assert len(told.steps()) == 1
        await alias_moves.set_live(ring.store, ring.alias.id, version.id, why="promote", who="me")
        await until(lambda: done(told, 2))
    assert sum("kl_base_max" in text for text in told.warnings()) == 1


async def until_stage(ring: Ring, code: str) -> Sequence[StageStatus]:
    while True:
        stages = await read_stages(Project(ring.store, PROJECT), LoopSettings())
        if any(one.code == code for one in stages):
            return stages
        await asyncio.sleep(0.01)


async def test_rewards_of_a_ranking_show_no_fall(ring: Ring) -> None:
    told, trainer = RecordedProgress(), ScriptedTrainer(ring.store, ring.alias)
    async with learning(ring, told, trainer, min_groups=12, max_groups=12):
        await fallen(ring, told, absolute=False)
        await until(lambda: done(told, 2))


async def test_a_task_is_compared_with_its_own_earlier_trajectories(ring: Ring) -> None:
    for number in range(4):
        await live_group(ring, f"task-{number}", [1.0, 0.0], absolute=True)
    (found,) = await live_rounds(ring.store, ring.alias)
    assert list(found.values()) == [ScenarioFigure(2, 0.5, 0.5)] * 4
    assert len(found) == 4


async def test_a_learner_makes_way_for_a_campaign(ring: Ring) -> None:
    campaign = await campaigns.create_campaign(Project(ring.store, PROJECT), ring.alias.id, "orders", {})
    told = RecordedProgress()
    learner = learner_of(ring, told, ScriptedTrainer(ring.store, ring.alias))
    learning = asyncio.create_task(learner.run())
    await until(lambda: said(told, "Learning waits for 1 scored group: no group is on its way."))
    lease = await leases.acquire_lease(Project(ring.store, PROJECT), campaigns.lease_name(campaign.id), "train", 60)
    assert (await learning).id == campaign.id
    await live_group(ring, "a", [0.0, 1.0])
    assert (await learner.run()).id == campaign.id
    assert not told.steps()
    assert lease is not None
    await leases.release_lease(ring.store, lease)
    async with _running(learner):
        await until(lambda: done(told, 1))


async def test_a_step_holds_no_more_groups_than_it_may(ring: Ring) -> None:
    told = RecordedProgress()
    for name in ("a", "b", "c"):
        await live_group(ring, name, [0.0, 1.0])
    async with learning(ring, told, ScriptedTrainer(ring.store, ring.alias), max_groups=2):
        await until(lambda: done(told, 2))
    assert [step.trained for step in told.steps()] == [4, 2]


async def test_after_the_end_of_its_schedule_learning_leaves_groups_scored_and_says_so_once(ring: Ring) -> None:
    told = RecordedProgress()
    trainer = ScriptedTrainer(ring.store, ring.alias)
    ended = (
        'Learning waits for new settings: trainer.schedule = "linear" has ended: after 1 step the learning rate is 0.'
    )
    last = learner_of(ring, told, trainer, warmup_steps=0, schedule="linear", schedule_steps=1, lr_min=0)
    async with _running(last):
        await live_group(ring, "first", [0.0, 1.0])
        await until(lambda: done(told, 1))
        for name in ("second", "third"):
            await live_group(ring, name, [0.0, 1.0])
        await until(lambda: begins(told, ended))
        await until(lambda: scored_groups(ring, 2))
    assert len(told.steps()) == 1
    assert sum(isinstance(event, PhaseStatus) and event.detail.startswith(ended) for event in told.events) == 1


async def scored_groups(ring: Ring, number: int) -> bool:
    return await lookup.count_groups(ring.store, ring.alias.id) == {GroupState.SCORED: number}


async def test_groups_of_campaigns_and_other_purposes_are_left_alone(ring: Ring) -> None:
    told = RecordedProgress()
    await live_group(ring, "eval", [0.0, 1.0], Purpose.EVAL)
    of_campaign = await live_group(ring, "campaign", [0.0, 1.0])
    async with ring.store.write() as conn:
        await conn.execute(update(groups_table).where(groups_table.c.id == of_campaign).values(campaign_id="camp"))
    async with learning(ring, told, ScriptedTrainer(ring.store, ring.alias)):
        await until(lambda: said(told, "Learning waits for 1 scored group: no group is on its way."))
        await live_group(ring, "live", [0.0, 1.0])
        await until(lambda: done(told, 1))
    assert await lookup.count_groups(ring.store, ring.alias.id, "camp") == {GroupState.SCORED: 1}


async def test_a_failed_step_is_told_and_the_learner_goes_on(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainer.runtime.learner.FAILURE_PAUSE_S", 0.0)

    class FailsOnce(ScriptedTrainer):
        failed = False

        async def train_once(self, claimed: Sequence[GroupClaim], *, campaign_id: str | None = None) -> StepReport:
            if self.failed:
                return await super().train_once(claimed, campaign_id=campaign_id)
            self.failed = True
            for claim in claimed:
                await claims.return_claim(self._store, claim)
            raise StepFailed("the loss was nan")

    told = RecordedProgress()
    await live_group(ring, "a", [0.0, 1.0])
    async with learning(ring, told, FailsOnce(ring.store, ring.alias)):
        await until(lambda: done(told, 1))
    assert told.warnings() == ["the step failed: the loss was nan"]


async def test_a_learner_whose_smallest_pass_does_not_fit_ends(ring: Ring) -> None:
    class Full(ScriptedTrainer):
        async def train_once(self, claimed: Sequence[GroupClaim], *, campaign_id: str | None = None) -> StepReport:
            for claim in claimed:
                await claims.return_claim(self._store, claim)
            raise MemoryFull("one row does not fit")

    told = RecordedProgress()
    group_id = await live_group(ring, "a", [0.0, 1.0])
    with pytest.raises(MemoryFull):
        await learner_of(ring, told, Full(ring.store, ring.alias)).run()
    assert (await lookup.count_groups(ring.store, ring.alias.id)) == {GroupState.SCORED: 1}, group_id


async def test_a_learner_ends_as_soon_as_the_engine_refuses_its_adapters(ring: Ring) -> None:
    told, project = RecordedProgress(), Project(ring.store, PROJECT)
    trial = await adapter_trials.begin_trial(project, ring.alias.id)
    learner = asyncio.create_task(learner_of(ring, told, ScriptedTrainer(ring.store, ring.alias)).run())
    await until(lambda: said(told, "Learning waits for 1 scored group: no group is on its way."))
    await adapter_trials.answer_trial(ring.store, trial, "rank 64 is too high")
    with pytest.raises(UnsupportedModel, match="rank 64 is too high"):
        await learner
    group_id = await live_group(ring, "a", [0.0, 1.0])
    with pytest.raises(UnsupportedModel):
        await learner_of(ring, told, ScriptedTrainer(ring.store, ring.alias)).run()
    assert not told.steps()
    assert await lookup.count_groups(ring.store, ring.alias.id) == {GroupState.SCORED: 1}, group_id


async def test_what_a_step_says_for_a_person_is_told(ring: Ring) -> None:
    class Says(ScriptedTrainer):
        async def train_once(self, claimed: Sequence[GroupClaim], *, campaign_id: str | None = None) -> StepReport:
            report = await super().train_once(claimed, campaign_id=campaign_id)
            return replace(report, notice="passes have fewer tokens")

    told = RecordedProgress()
    await live_group(ring, "a", [0.0, 1.0])
    async with learning(ring, told, Says(ring.store, ring.alias)):
        await until(lambda: done(told, 1))
    assert told.warnings() == ["passes have fewer tokens"]


def test_the_phase_of_a_learner_is_noted_for_its_supervisor(tmp_path: Path) -> None:
    path = tmp_path / "learner.json"
    noted = PhaseFile(path)
    assert read_phase(path) == ProgramPhase("starting", 0)
    noted.tell(PhaseStatus(0, "waiting", detail="Learning waits."))
    noted.tell(Notice("all is well"))
    assert read_phase(path) == ProgramPhase("waiting", 0)
    noted.tell(PhaseStatus(1, "training"))
    assert read_phase(path) == ProgramPhase("training", 0)
    noted.tell(StepDone(1, "a@1", "", None, None, None, None, None, 0, 0, 2, {}, {}))
    noted.tell(PhaseStatus(2, "training"))
    assert read_phase(path) == ProgramPhase("training", 1)
    path.write_text("{")
    assert read_phase(path) == ProgramPhase("starting", 0)


async def test_a_learner_without_a_judge_says_so(ring: Ring) -> None:
    told = RecordedProgress()
    group = await live_group(ring, "a", [0.0, 1.0])
    claim = await claims.claim_one_for_judging(ring.store, group, "judge", 60)
    assert claim is not None
    await claims.return_claim(ring.store, claim)
    ready = "Learning waits for 1 scored group: 1 is ready for the judge."
    async with learning(ring, told, ScriptedTrainer(ring.store, ring.alias)):
        await until(lambda: said(told, f"{ready} No judge runs: start one with `hone judge`."))
    await leases.acquire_lease(Project(ring.store, PROJECT), "judge:here", "here", 60)
    async with learning(ring, told, ScriptedTrainer(ring.store, ring.alias)):
        await until(lambda: said(told, ready))


async def said(told: RecordedProgress, detail: str) -> bool:
    return any(isinstance(event, PhaseStatus) and event.detail == detail for event in told.events)


async def done(told: RecordedProgress, steps: int) -> bool:
    return len(told.steps()) == steps


async def test_two_groups_are_enough_when_the_first_has_waited_long(ring: Ring) -> None:
    told = RecordedProgress()
    async with learning(ring, told, ScriptedTrainer(ring.store, ring.alias), min_groups=4, max_wait_s=600):
        first = await live_group(ring, "first", [0.0, 1.0])
        await until(lambda: said(told, "Learning waits for 4 scored groups: 1 is scored."))
        async with ring.store.write() as conn:
            await conn.execute(update(score_table).where(score_table.c.group_id == first).values(created_at=0.0))
        await live_group(ring, "second", [0.0, 1.0])
        await until(lambda: done(told, 1))
    assert [step.trained for step in told.steps()] == [4]


async def test_when_two_groups_will_be_enough_is_said(ring: Ring) -> None:
    told = RecordedProgress()
    for name in ("first", "second"):
        await live_group(ring, name, [0.0, 1.0])
    async with learning(ring, told, ScriptedTrainer(ring.store, ring.alias), min_groups=4):
        await until(
            lambda: begins(
                told,
                "Learning waits for 4 scored groups: 2 are scored. A step begins with those that are scored at about ",
            )
        )
    assert not told.steps()


async def test_a_step_waits_for_its_budget_and_says_so(ring: Ring) -> None:
    told = RecordedProgress()
    trainer = ScriptedTrainer(ring.store, ring.alias)
    async with learning(ring, told, trainer, LearnSettings(steps_per_hour=1)):
        await live_group(ring, "first", [0.0, 1.0])
        await until(lambda: done(told, 1))
        await live_group(ring, "second", [0.0, 1.0])
        await until(
            lambda: ends(told, "Learning is paused: the alias took its 1 step of the last hour. It resumes at about ")
        )
    assert len(told.steps()) == 1


async def test_what_is_too_old_is_not_trained_on(ring: Ring) -> None:
    told = RecordedProgress()
    old = await live_group(ring, "old", [0.0, 1.0])
    async with ring.store.write() as conn:
        await conn.execute(update(groups_table).where(groups_table.c.id == old).values(ready_at=0.0))
    async with learning(ring, told, ScriptedTrainer(ring.store, ring.alias), LearnSettings(max_age_s=600)):
        await until(lambda: said(told, "Learning waits for 1 scored group: no group is on its way."))
        await live_group(ring, "fresh", [0.0, 1.0])
        await until(lambda: done(told, 1))
    assert [step.trained for step in told.steps()] == [2]


async def begins(told: RecordedProgress, detail: str) -> bool:
    return any(isinstance(event, PhaseStatus) and event.detail.startswith(detail) for event in told.events)


async def ends(told: RecordedProgress, detail: str) -> bool:
    return any(isinstance(event, PhaseStatus) and detail in event.detail for event in told.events)

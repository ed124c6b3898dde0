"""Campaigns end to end: a real store, a real agent in its host, and the ring of `tests.trainer.ring` around them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from judge.settings import JudgeSettings
from recorder.errors import Conflict
from recorder.queue import campaign_requests, campaigns, claims, leases
from recorder.queue.campaign_requests import Wish
from recorder.queue.campaigns import CampaignView
from recorder.queue.claims import GroupClaim
from recorder.queue.training import adapter_trials
from recorder.registry import keys, versions
from recorder.states import CampaignState, VersionState
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.schema import attempts, groups, step_groups, trajectories
from recorder.views.campaigns.events import CampaignMeasure, StepDone
from recorder.views.campaigns.measures import compute_measure
from recorder.views.campaigns.progress import list_campaigns_progress
from tests.trainer.campaign.conftest import RingOf
from tests.trainer.ring import PROJECT, RecordedProgress, Ring, Script, ScriptedTrainer, run_campaign
from trainer.agents import attempts as trainer_attempts
from trainer.errors import (
    AgentUnusable,
    CampaignBusy,
    CampaignError,
    MemoryFull,
    ScenariosInvalid,
    ServiceUnavailable,
    UnsupportedModel,
)
from trainer.settings import TrainerSettings
from trainer.step import engine_trial
from trainer.step.summary import StepReport

pytestmark = pytest.mark.slow  # programs and whole campaigns: left out of `make check`

World = Callable[..., AbstractAsyncContextManager[Ring]]


async def rows(store: Store, table: Any, *where: Any) -> list[Any]:
    async with store.read() as conn:
        return list(await conn.execute(select(table).where(*where)))


def unvalidated(user: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The user's settings without a validation, for what none is needed for: half of the attempts."""
    return {key: value for key, value in user.items() if key != "val_scenarios"} | more


async def the_campaign(store: Store) -> CampaignView:
    (campaign,) = await campaigns.list_campaigns(Project(store, PROJECT))
    return campaign


async def test_a_campaign_climbs_from_version_to_version(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    ended = await ring.train(user, told)
    assert (ended.reason, ended.steps, ended.version) == ("steps", 3, "helpdesk@3")
    assert [step.version for step in told.steps()] == ["helpdesk@1", "helpdesk@2", "helpdesk@3"]
    assert [step.sampled_by for step in told.steps()] == ["helpdesk@0", "helpdesk@1", "helpdesk@2"]
    assert all(step.attempts == 8 and step.kl == 1e-7 and not step.failed for step in told.steps())
    assert sum(ring.calls.values()) == len(ring.calls) == 3 * 8 + 2 * 3
    assert (await the_campaign(ring.store)).state is CampaignState.FINISHED


async def test_a_person_pauses_a_running_campaign_and_ends_it_after_it_was_resumed(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.5
    project = Project(ring.store, PROJECT)
    ops, _ = await keys.create_key(project, "ops", ["admin"])

    async def ask_after(step: int, wish: Wish) -> None:
        while len(told.steps()) < step:
            await asyncio.sleep(0.01)
        asked = await campaign_requests.ask_campaign(project, (await the_campaign(ring.store)).name, wish, ops.id)
        (shown,) = await list_campaigns_progress(project)
        assert shown.asked is None or (shown.asked.wish, shown.asked.by) == (wish, "ops")
        assert asked.id == shown.id

    settings = unvalidated(user, steps=60)
    ended, _ = await asyncio.gather(ring.train(settings, told), ask_after(1, "pause"))
    done = ended.steps
    assert (ended.reason, ended.detail) == ("paused", "asked by ops")
    assert 1 <= done < 60
    assert (await the_campaign(ring.store)).state is CampaignState.STOPPED
    assert f"`hone train --resume {ended.campaign}` continues it" in told.warnings()[-1]
    with pytest.raises(Conflict, match="no process runs the campaign"):
        await campaign_requests.ask_campaign(project, ended.campaign, "end", ops.id)

    ended, _ = await asyncio.gather(ring.train(settings, told), ask_after(done + 1, "end"))
    assert (ended.reason, ended.detail) == ("ended", "asked by ops")
    assert done < ended.steps < 60
    assert (await the_campaign(ring.store)).state is CampaignState.FINISHED


async def test_reward_is_the_mean_over_the_judged_attempts(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 1.0
    await ring.train(unvalidated(user, steps=1), told)
    (step,) = told.steps()
    assert (step.reward, step.success) == (1.0, None)
    assert (step.version, step.trained, step.left_out) == ("helpdesk@0", 0, {"zero_variance": 8})
    assert not step.failed  # nothing to learn is no fault


@pytest.mark.parametrize("success", ["my_agent:solved", pytest.param("checked", marks=pytest.mark.long)])
async def test_success_is_measured_by_a_function_or_a_part_of_the_score(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress, success: str
) -> None:
    script.skill = lambda number: float(number > 0) or 0.5
    ended = await ring.train(user | {"success": success, "steps": 2}, told)
    assert told.steps()[1].success == told.steps()[1].reward == 1.0
    assert told.steps()[0].success == told.steps()[0].reward
    assert ended.success_after == 1.0
    assert ended.versions == {"helpdesk@0": told.steps()[0].success, "helpdesk@1": 1.0}
    before, after = told.validations()
    assert (before.version, before.attempts, after.version, after.success) == ("helpdesk@0", 3, "helpdesk@1", 1.0)


@pytest.mark.long
async def test_a_campaign_stops_at_its_target(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.5 if number < 2 else 1.0
    ended = await ring.train(user | {"steps": 9, "target": 1.0, "success": "my_agent:solved"}, told)
    assert (ended.reason, ended.steps, ended.version) == ("target", 3, "helpdesk@2")


async def test_a_campaign_ends_with_the_schedule_of_its_learning_rate_which_counts_its_own_steps(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.5
    for name, versions_then in (("first", 2), ("second", 4)):  # the steps of the first do not count for the second
        settings = unvalidated(user, name=name, steps=9)
        scripted = TrainerSettings(warmup_steps=0, schedule="cosine", schedule_steps=2, lr_min=0)
        ended = await ring.train(settings, told, scripted=scripted)
        assert (ended.reason, ended.steps, ended.version) == ("schedule_ended", 2, f"helpdesk@{versions_then}")
        assert 'trainer.schedule = "cosine"' in ended.detail
    assert [campaign.reason for campaign in await campaigns.list_campaigns(Project(ring.store, PROJECT))] == [
        "schedule_ended"
    ] * 2
    assert [step.attempts for step in told.steps()] == [8] * 4  # nothing was sampled for a step that does not begin


@pytest.mark.long
async def test_a_campaign_stops_on_a_plateau_of_its_validations(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.5
    settings = user | {"steps": 9, "val_every": 1, "plateau_steps": 2, "plateau_delta": 1.0}
    ended = await ring.train(settings, told)
    assert (ended.reason, ended.steps) == ("plateau", 3)
    assert [v.step for v in told.validations()] == [0, 1, 2, 3]


async def test_validation_is_never_trained_on(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    await ring.train(user | {"val_every": 1, "val_attempts": 2, "steps": 2}, told)
    purposes = {row.id: row.purpose for row in await rows(ring.store, trajectories)}
    assert Counter(purposes.values()) == {"train": 16, "val": 18}
    used = {row.group_id for row in await rows(ring.store, step_groups)}
    members = await rows(ring.store, trajectories, trajectories.c.group_id.in_(used))
    assert members
    assert {row.purpose for row in members} == {"train"}
    assert {row.origin for row in members} == {"campaign"}


async def test_a_rejected_version_is_told_and_the_next_step_goes_on_from_the_old_one(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.reject = {1}
    script.skill = lambda number: 0.5
    await ring.train(unvalidated(user, steps=2), told)
    first, second = told.steps()
    assert (first.version, first.failed, second.version) == ("helpdesk@0", True, "helpdesk@2")
    assert (first.trained, second.trained) == (0, 16)  # what the rejected version was tried on is not lost
    assert "helpdesk@1 was rejected: probe_failed; continuing from helpdesk@0" in told.warnings()
    assert (await versions.get_version_by_name(Project(ring.store, PROJECT), "helpdesk@2")).parent_id == (
        await versions.get_version_by_name(Project(ring.store, PROJECT), "helpdesk@0")
    ).id


async def test_a_campaign_gives_up_when_version_after_version_is_rejected(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.reject = set(range(99))
    script.skill = lambda number: 0.5
    with pytest.raises(CampaignError, match=r"gave up after 2 failed steps in a row .* rejected: probe_failed"):
        await ring.train(unvalidated(user, max_rejected=2), told)
    campaign = await the_campaign(ring.store)
    assert campaign.state is CampaignState.FAILED
    assert "gave up" in (campaign.reason or "")


async def test_a_campaign_ends_where_one_row_does_not_fit_into_memory_and_keeps_its_groups(
    ring: Ring, user: dict[str, Any], told: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(trainer: ScriptedTrainer, claimed: Sequence[GroupClaim], **_: Any) -> StepReport:
        for claim in claimed:
            await claims.return_claim(trainer._store, claim)
        raise MemoryFull("one row of 900 tokens does not fit: lower trainer.token_budget")

    monkeypatch.setattr(ScriptedTrainer, "train_once", full)
    with pytest.raises(MemoryFull, match="900 tokens"):
        await ring.train(user, told)
    campaign = await the_campaign(ring.store)
    assert campaign.state is CampaignState.FAILED
    assert "900 tokens" in (campaign.reason or "")
    assert {row.state for row in await rows(ring.store, groups)} == {"scored", "measured"}


@asynccontextmanager
async def trial_of(ring: Ring) -> AsyncIterator[str]:
    """A trainer's trial that waits, and a proxy's controller that could answer it; gives its id."""
    project = Project(ring.store, PROJECT)
    lease = await leases.acquire_lease(project, leases.CONTROLLER, "proxy", 60)
    assert lease is not None
    trial = await adapter_trials.begin_trial(project, ring.alias.id)
    yield trial
    await adapter_trials.end_trial(ring.store, trial)
    await leases.release_lease(ring.store, lease)


async def test_what_the_engine_refuses_ends_a_campaign_before_anything_is_sampled(
    ring: Ring, user: dict[str, Any], told: RecordedProgress
) -> None:
    async with trial_of(ring) as trial:
        campaign = asyncio.create_task(ring.train(user, told))
        await asyncio.sleep(1)
        assert not campaign.done()
        await adapter_trials.answer_trial(ring.store, trial, "rank 64 is too high")
        with pytest.raises(UnsupportedModel, match="rank 64 is too high"):
            await campaign
    assert not ring.calls
    assert (await the_campaign(ring.store)).state is CampaignState.FAILED


async def test_a_campaign_goes_on_where_the_engine_has_tried_the_adapter_or_does_not_in_time(
    ring: Ring, user: dict[str, Any], told: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with trial_of(ring) as trial:
        await adapter_trials.answer_trial(ring.store, trial, None)
        assert (await ring.train(unvalidated(user, steps=1), told)).reason == "steps"
        assert not told.warnings()
    monkeypatch.setattr(engine_trial, "WAIT_S", 0.1)
    async with trial_of(ring):
        assert (await ring.train(unvalidated(user, steps=1), told, fresh=True)).reason == "steps"
    assert [one for one in told.warnings() if "has not tried an adapter for helpdesk" in one]


async def test_a_trainer_that_cannot_open_ends_a_campaign_before_anything_is_sampled(
    ring: Ring, user: dict[str, Any], told: RecordedProgress, tmp_path: Path
) -> None:
    """Also where it takes longer to say so than an attempt takes."""
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(UnsupportedModel, match="holds an adapter"):
        await ring.train(user, told, trainer=TrainerSettings(base=str(tmp_path)))
    assert not ring.calls


async def test_a_version_that_nobody_promotes_is_told_with_its_state(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.promote = False
    script.skill = lambda number: 0.5
    with pytest.raises(CampaignError, match="helpdesk@1 is gated and was not in service"):
        await ring.train(unvalidated(user, live_timeout_s=0.3), told)


async def test_an_agents_exception_is_errored_and_its_group_goes_on_without(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.5
    await ring.train(unvalidated(user, agent="my_agent:stubborn", scenarios_per_step=4, steps=1), told)
    (step,) = told.steps()
    assert (step.attempts, step.errored) == (16, 4)
    assert (step.measured_attempts, step.agent_failures) == (12, 0)  # a mean of rewards has no failures
    errored = await rows(ring.store, trajectories, trajectories.c.state == "errored")
    assert {row.end_reason for row in errored if row.purpose == "train"} == {"agent_error"}
    left = await rows(ring.store, groups, groups.c.state == "left_out", groups.c.reason == "too_few")
    assert [row.declared_size for row in left if row.declared_size == 4] == [4]
    failed = await rows(ring.store, attempts, attempts.c.state == "errored")
    assert all("ValueError: I do not like twos" in row.error for row in failed)


async def test_an_agents_exception_is_judged_where_that_is_asked_for(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    settings = unvalidated(user, agent="my_agent:stubborn", scenarios_per_step=4, steps=1)
    await ring.train(settings | {"on_agent_error": "judge"}, told)
    ended = await rows(ring.store, trajectories, trajectories.c.end_reason == "agent_error")
    assert {row.state for row in ended} == {"completed"}
    assert not await rows(ring.store, groups, groups.c.state == "left_out", groups.c.reason == "too_few")


async def test_an_attempt_the_agent_spoilt_is_a_failure_of_its_version(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 1.0
    settings = user | {"agent": "my_agent:stubborn", "success": "my_agent:solved", "steps": 1}
    await ring.train(settings, told)
    first = told.validations()[0]
    assert first.success == pytest.approx(2 / 3)
    assert (first.attempts, first.errored, first.agent_failures) == (3, 1, 1)
    found = compute_measure(first, CampaignMeasure.SUCCESS)
    assert found is not None
    assert (found.of, found.errored) == (3, 0)  # in the denominator as a failure, so not beside it


async def test_an_agent_that_never_calls_its_model_is_told_how_to(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    with pytest.raises(CampaignError, match=r"all 3 attempts of step 0 failed \(no_call 3\).*task\.base_url"):
        await ring.train(user | {"agent": "my_agent:silent"}, told)


async def test_the_engines_faults_are_run_again_and_leave_full_groups(
    ring: Ring,
    script: Script,
    data: Path,
    user: dict[str, Any],
    told: RecordedProgress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trainer_attempts, "FAULT_PAUSE_S", 0.0)
    script.fail = lambda call: call in (2, 5)
    script.skill = lambda number: 0.5
    await ring.train(user | {"steps": 1, "val_scenarios": None}, told)
    (step,) = told.steps()
    assert (step.errored, step.failed) == (0, False)
    states = Counter(row.state for row in await rows(ring.store, trajectories))
    assert states == {"completed": 8, "abandoned": 2}
    tries = Counter(row._mapping["try"] for row in await rows(ring.store, attempts))
    assert tries == {0: 8, 1: 2}


async def test_an_engine_that_stays_broken_ends_the_attempt_errored(
    ring: Ring,
    script: Script,
    data: Path,
    user: dict[str, Any],
    told: RecordedProgress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trainer_attempts, "FAULT_PAUSE_S", 0.0)
    script.fail = lambda call: True
    with pytest.raises(CampaignError, match=r"harness_fault 8.*the engine died"):
        await ring.train(user | {"val_scenarios": None, "harness_retries": 1}, told)
    ended = Counter(row.end_reason for row in await rows(ring.store, trajectories, trajectories.c.state == "errored"))
    assert ended == {"harness_fault": 8}


async def test_a_group_that_could_not_be_scored_is_told_and_waited_for(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.judge_fails = {f"train-{i}" for i in range(4)}
    script.skill = lambda number: 0.5
    await ring.train(user | {"steps": 1, "val_scenarios": None}, told)
    assert sum("could not be scored (judge_down: no route to the judge)" in text for text in told.warnings()) == 2
    assert not told.steps()[0].failed


async def test_a_step_goes_on_without_groups_that_get_no_score_in_time(
    ring_of: RingOf, user: dict[str, Any], told: RecordedProgress
) -> None:
    async with ring_of(Script(judge=False)) as ring:
        await leases.acquire_lease(Project(ring.store, PROJECT), "judge:idle", "idle", 600)
        settings = user | {"val_scenarios": None, "judge_timeout_s": 0.2, "max_rejected": 1}
        with pytest.raises(CampaignError, match="no group was scored"):
            await ring.train(settings, told)
        assert any("continues without 2 of 2 groups" in text for text in told.warnings())


async def test_a_campaign_that_was_killed_goes_on_and_repeats_nothing(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.5
    script.hold, script.hold_after, script.hold_at_once = asyncio.Event(), 3 + 8 + 5, 2  # amid the second step
    settings = user | {"concurrency": 2, "steps": 2}
    killed = await _start_elsewhere(ring, settings)
    await ring.reached_hold.wait()
    os.kill(killed.pid, signal.SIGKILL)
    await asyncio.to_thread(killed.wait)
    before = {row.id: row for row in await rows(ring.store, attempts)}
    done = {id_ for id_, row in before.items() if row.state == "done"}
    assert len(done) == 3 + 8 + 4
    script.hold.set()
    ended = await ring.train(settings, told)
    assert ended.steps == 2
    after = {row.id: row for row in await rows(ring.store, attempts)}
    assert {id_: after[id_] for id_ in done} == {id_: before[id_] for id_ in done}
    running = [row for row in before.values() if row.state == "running"]
    assert [after[row.id].state for row in running] == ["abandoned"] * 2
    again = [row for row in after.values() if row._mapping["try"] == 1]
    assert sorted(row.trajectory_external_id for row in again) == sorted(
        f"{r.trajectory_external_id}~1" for r in running
    )
    assert [step.step for step in told.steps()] == [2]  # the first was written down before
    assert len(await campaigns.list_campaigns(Project(ring.store, PROJECT))) == 1
    assert Counter(row.state for row in after.values()) == {"done": 3 + 16 + 3, "abandoned": 2}


async def _start_elsewhere(ring: Ring, settings: dict[str, Any]) -> subprocess.Popen[bytes]:
    """`hone train` in a process of its own, which can be killed."""
    given = {key: str(value) if isinstance(value, Path) else value for key, value in settings.items()}
    program = f"""
        import asyncio
        from pathlib import Path
        from recorder.settings import RecorderSettings
        from tests.trainer.ring import RecordedProgress, run_campaign

        recording = RecorderSettings(url={ring.recording.url!r})
        asyncio.run(
            run_campaign(Path({str(ring.data)!r}), {ring.url!r}, {given!r}, RecordedProgress(), recording=recording)
        )
    """
    root = Path(__file__).parents[3]
    env = {**os.environ, "PYTHONPATH": str(root)}
    return await asyncio.to_thread(
        subprocess.Popen, [sys.executable, "-c", textwrap.dedent(program)], cwd=root, env=env
    )


@pytest.mark.parametrize(
    ("agent", "skill"),
    [
        pytest.param("my_agent:run", 0.5, id="trained"),
        pytest.param("my_agent:stubborn", 1.0, id="stubborn, left out"),
        pytest.param("my_agent:run", 1.0, id="left out", marks=pytest.mark.long),
        pytest.param("my_agent:stubborn", 0.5, id="stubborn, trained", marks=pytest.mark.long),
    ],
)
async def test_a_step_that_was_made_before_the_kill_is_told_as_it_would_have_been(
    ring: Ring,
    script: Script,
    user: dict[str, Any],
    told: RecordedProgress,
    monkeypatch: pytest.MonkeyPatch,
    skill: float,
    agent: str,
) -> None:
    script.skill = lambda number: skill
    untold: list[StepDone] = []

    async def dies(self: object, code: str, event: StepDone) -> None:
        untold.append(event)
        raise asyncio.CancelledError  # as a signal would, just before the step is written down

    settings = user | {"steps": 1, "val_scenarios": None, "scenarios_per_step": 4, "agent": agent}
    with monkeypatch.context() as patched:
        patched.setattr("trainer.campaign.loop.Campaign._tell", dies)
        with pytest.raises(asyncio.CancelledError):
            await ring.train(settings, told)
    assert (await the_campaign(ring.store)).state is CampaignState.STOPPED
    ended = await ring.train(settings, told)
    trained, made = (12 if agent.endswith("stubborn") else 16, 1) if skill < 1 else (0, 0)
    assert (ended.version, len(ring.calls)) == (f"helpdesk@{made}", 16)
    assert len(await versions.get_versions(Project(ring.store, PROJECT), list(VersionState))) == 1 + made
    (step,), (unsaid,) = told.steps(), untold
    assert step.trained == trained
    timeless = [{**asdict(one), "seconds": {}, "note": ""} for one in (step, unsaid)]
    assert timeless[0] == timeless[1]


async def test_a_stopped_campaign_is_gone_on_with_by_name_from_the_store_alone(
    ring: Ring, script: Script, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.hold, script.hold_after = asyncio.Event(), 5
    running = asyncio.create_task(ring.train(user | {"name": "mine", "steps": 1}, told))
    await ring.reached_hold.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    script.hold.set()
    user["scenarios"].unlink()
    ended = await ring.train({"steps": 2}, told, resume="mine")
    assert (ended.campaign, ended.steps) == ("mine", 2)


async def test_only_an_unfinished_campaign_can_be_resumed(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    await ring.train(unvalidated(user, steps=1), told)
    with pytest.raises(CampaignError, match="'train' cannot be resumed: it is finished"):
        await ring.train({}, told, resume="train")
    with pytest.raises(CampaignError, match=r"there is no such campaign\. Unfinished: none"):
        await ring.train({}, told, resume="other")


async def test_a_finished_campaign_of_the_same_name_is_no_reason_not_to_begin_another(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    for _ in range(2):
        await ring.train(unvalidated(user, steps=1), told)
    assert len(await campaigns.list_campaigns(Project(ring.store, PROJECT))) == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"group_size": 3}, "group_size 4 → 3"),
        pytest.param({"scenarios": "other"}, "the train scenarios", marks=pytest.mark.long),
    ],
)
async def test_an_unfinished_campaign_is_not_gone_on_with_in_another_shape(
    ring: Ring,
    script: Script,
    data: Path,
    user: dict[str, Any],
    told: RecordedProgress,
    change: dict[str, Any],
    said: str,
) -> None:
    script.reject, script.skill = set(range(99)), lambda number: 0.5
    settings = user | {"max_rejected": 1, "name": "mine", "val_scenarios": None}
    with pytest.raises(CampaignError, match="gave up"):
        await ring.train(settings, told)
    if "scenarios" in change:
        change = {"scenarios": user["val_scenarios"]}
    with pytest.raises(CampaignError, match=said):
        await ring.train(settings | change, told)
    script.reject = set()
    ended = await ring.train(settings | change, told, fresh=True)
    assert ended.reason == "steps"


async def test_a_campaign_runs_in_one_process_only(
    ring: Ring, script: Script, data: Path, user: dict[str, Any]
) -> None:
    script.hold, script.hold_after = asyncio.Event(), 1
    user = unvalidated(user, steps=1)
    first = asyncio.create_task(ring.train(user, RecordedProgress()))
    await ring.reached_hold.wait()
    with pytest.raises(CampaignBusy, match="another process runs campaign 'train'"):
        await ring.train(user, RecordedProgress())
    script.hold.set()
    assert (await first).reason == "steps"


async def test_where_keys_are_asked_for_the_agent_gets_one_that_is_revoked_at_the_end(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    await keys.create_key(Project(ring.store, PROJECT), "mine", ["admin"])
    (user["cwd"] / "curious.py").write_text(
        "from my_agent import run as ask\n\nasync def run(task):\n    await ask(task)\n"
        "    with open('key', 'w') as file:\n        file.write(task.api_key)\n"
    )
    await ring.train(unvalidated(user, agent="curious:run", steps=1), told)
    secret = (user["cwd"] / "key").read_text()
    assert secret.startswith("hone_")
    assert await keys.verify_secret(ring.store, secret) is None
    (minted,) = [key for key in await keys.list_keys(Project(ring.store, PROJECT)) if key.name.startswith("campaign ")]
    assert minted.scopes == {keys.Scope.INFER}


async def test_what_cannot_work_is_told_before_any_attempt(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    with pytest.raises(AgentUnusable, match="No module named 'nothing'"):
        await ring.train(user | {"agent": "nothing:run"}, told)
    with pytest.raises(CampaignError, match="no agent"):
        await ring.train(user | {"agent": None}, told)
    with pytest.raises(CampaignError, match="no scenarios"):
        await ring.train(user | {"scenarios": None}, told)
    with pytest.raises(ScenariosInvalid, match="cannot be read"):
        await ring.train(user | {"scenarios": Path("/nowhere.jsonl")}, told)
    with pytest.raises(ServiceUnavailable, match=r"no proxy answers at http://127\.0\.0\.1:9/healthz"):
        await run_campaign(data, "http://127.0.0.1:9", user, told)
    assert not ring.calls


async def test_every_step_is_in_the_ledger_as_it_was_told(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    await ring.train(user | {"steps": 2}, told)
    campaign = await the_campaign(ring.store)
    entries = await ledger.object_entries(ring.store, "campaign", campaign.id)
    assert [entry.code for entry in entries] == [
        "begun",
        "validation",
        "judged_by",
        "step",
        "step",
        "validation",
        "ended",
    ]
    assert [e.detail["version"] for e in entries if e.code == "step" and e.detail] == [s.version for s in told.steps()]


async def test_events_are_kept_in_the_data_folder_whatever_is_shown(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress
) -> None:
    for steps in (1, 2):
        await ring.train(user | {"steps": steps, "name": "mine", "success": "checked"}, told)
    lines = [json.loads(line) for line in (data / "campaigns/mine/events.jsonl").read_text().splitlines()]
    kinds = [line["event"] for line in lines if line["event"] != "notice"]
    assert kinds == [
        "validation",
        "step",
        "validation",
        "campaign_ended",
        "validation",
        "step",
        "step",
        "validation",
        "campaign_ended",
    ]
    assert lines[-1] == {"event": "campaign_ended", **asdict(told.events[-1])}
    assert (lines[-1]["attempts_before"], lines[-1]["attempts_after"]) == (3, 3)


CHECKS = """
def broken(trajectory):
    raise RuntimeError("no answer key")
"""
BY_CODE = [{"text": "answers", "check": {"rule": "regex", "value": "^answer"}}]
BROKEN = [{"id": "key", "text": "as the key has it", "check": "checks:broken"}]


def judged_by_checks(folder: Path, rubrics: Callable[[int], Any]) -> Script:
    """The user's folder with rubrics that code decides, and a script whose judge is Hone's own."""
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    lines = [line | {"rubric": rubrics(number)} for number, line in enumerate(lines)]
    (folder / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "checks.py").write_text(CHECKS)
    judge = JudgeSettings.model_validate({"rewards": [{"kind": "rubric"}], "folder": folder, "backoff_s": 0.01})
    return Script(judge=False, worker=judge, skill=lambda number: 0.5)


async def test_a_group_whose_check_cannot_be_decided_is_excluded_and_the_campaign_goes_on(
    user: dict[str, Any], told: RecordedProgress, ring_of: RingOf
) -> None:
    script = judged_by_checks(user["cwd"], lambda number: BY_CODE if number else BROKEN)
    async with ring_of(script) as ring:
        ended = await ring.train(unvalidated(user, steps=2), told)  # one pass over four scenarios
        (excluded,) = await rows(ring.store, groups, groups.c.state == "left_out")
    assert (ended.reason, ended.steps, excluded.reason) == ("steps", 2, "check_undecided")
    assert [step.undecided for step in told.steps()] == ["", ""]
    warned = [warning for warning in told.warnings() if "'train-0'" in warning]
    assert warned
    assert len(warned) <= 3
    assert "rubric: criterion key: checks:broken: RuntimeError: no answer key" in warned[-1]
    assert [warning.rpartition("; ")[2] for warning in warned[-1:]] == [
        "it is excluded, and the campaign goes on without it"
    ]


async def test_a_step_of_which_nothing_can_be_decided_pauses_and_the_mended_check_resumes_it(
    user: dict[str, Any], told: RecordedProgress, ring_of: RingOf
) -> None:
    script = judged_by_checks(user["cwd"], lambda number: BROKEN)
    given = unvalidated(user, steps=2, name="mine", max_rejected=1)
    async with ring_of(script) as ring:
        ended = await ring.train(given, told)
        assert (ended.reason, ended.steps) == ("paused", 1)
        assert "all 2 groups were excluded" in ended.detail
        assert (
            "check_undecided: a check cannot be decided on 4 of 4 trajectories: rubric: criterion key" in ended.detail
        )
        (step,) = told.steps()
        assert not step.failed
        assert "hone score --all --campaign mine" in told.warnings()[-1]
        assert "hone train --resume mine" in told.warnings()[-1]
        again = RecordedProgress()
        assert (await ring.train(given, again)).reason == "paused"  # the next step is no better
        assert [step.step for step in again.steps()] == [2]


async def test_a_validation_whose_checks_cannot_be_decided_does_not_hold_the_campaign_up(
    user: dict[str, Any], told: RecordedProgress, ring_of: RingOf
) -> None:
    script = judged_by_checks(user["cwd"], lambda number: BY_CODE)  # the validation's scenarios have no criteria
    async with ring_of(script) as ring:
        ended = await ring.train(user | {"steps": 1}, told)
    assert (ended.reason, ended.steps) == ("steps", 1)
    assert [one.attempts for one in told.validations()] == [0, 0]

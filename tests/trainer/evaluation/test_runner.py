"""Whole evaluations against the scripted ring: who is told to be better, blind groups, what is never trained on."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from judge.settings import JudgeSettings
from recorder.queue import campaigns as rows
from recorder.queue.campaigns import CampaignView
from recorder.queue.claims import waiting_for_training
from recorder.registry import aliases, replicas, versions
from recorder.settings import RecorderSettings
from recorder.states import CampaignState, GroupState, Purpose, VersionState
from recorder.store.changes import Topic
from recorder.store.database import Project
from recorder.store.schema import attempts, campaigns, trajectories
from recorder.views.trajectories import transcripts
from tests.trainer.campaign.conftest import RingOf
from tests.trainer.ring import ALIAS, PROJECT, RecordedProgress, Ring, Script, run_evaluation
from trainer.errors import CampaignBusy, CampaignError, ServiceUnavailable
from trainer.evaluation.figures import REWARD, SUCCESS, WIN_RATE
from trainer.progress import Notice, PhaseStatus

pytestmark = pytest.mark.slow  # a ring, and an agent's program

RULER = JudgeSettings(model="openai/judge")
RUBRIC = JudgeSettings.model_validate({"model": "openai/judge", "rewards": [{"kind": "rubric"}]})
_FORKS = multiprocessing.get_context("forkserver")


@pytest.fixture
def solved(user: dict[str, Any]) -> dict[str, Any]:
    return {"agent": user["agent"], "cwd": user["cwd"], "attempt_timeout_s": 60.0, "success": "my_agent:solved"}


@pytest.fixture
def file(user: dict[str, Any]) -> Path:
    """Three scenarios."""
    return Path(user["val_scenarios"])


async def live(ring: Ring) -> str:
    """A version that nobody trained goes live, and the engine holds it; its name."""
    before = await aliases.get_alias(Project(ring.store, PROJECT), ALIAS)
    assert before.live_version_id is not None
    made = await versions.allocate_version(ring.store, before.id, before.live_version_id)
    await versions.mark_version(ring.store, made.id, VersionState.WRITTEN)
    with ring.store.watch.on(Topic.SERVICE, Topic.ENGINES) as news:
        while True:
            await news.wait()
            alias = await aliases.get_alias(Project(ring.store, PROJECT), ALIAS)
            held = await replicas.list_replicas(Project(ring.store, PROJECT))
            if alias.live_version_id == made.id and any(made.engine_name in one.loaded for one in held):
                return made.name


async def evaluations(ring: Ring) -> list[CampaignView]:
    async with ring.store.read() as conn:
        return [rows.campaign_view(row) for row in await conn.execute(select(campaigns).order_by(campaigns.c.id))]


async def purposes(ring: Ring) -> set[str]:
    async with ring.store.read() as conn:
        return set((await conn.execute(select(trajectories.c.purpose).distinct())).scalars())


async def test_versions_are_compared_by_success_and_nothing_is_trained_on(
    ring: Ring, script: Script, solved: dict[str, Any], file: Path, told: RecordedProgress
) -> None:
    script.skill, script.providers = lambda number: 0.75 if number else 0.25, {"gpt-5": 1.0}
    name = await live(ring)
    found = await ring.evaluate(["live", "base", "gpt-5"], file, solved, told, seeds=2, models=["gpt-5"])
    shares = [(one.name, one.model, one.measures[SUCCESS].value) for one in found.versions]
    assert shares == [("live", name, 0.75), ("base", "helpdesk@0", 0.25), ("gpt-5", "gpt-5", 1.0)]
    assert [one.differences[SUCCESS].value for one in found.versions[1:]] == [-0.5, 0.25]
    assert [one.attempts for one in found.versions] == [3 * 4 * 2] * 3
    assert (found.scenarios, found.groups, found.unscored, found.judging) == (3, 6, 0, None)
    assert ring.asked == {name: 24, "helpdesk@0": 24, "gpt-5": 24}
    assert await purposes(ring) == {Purpose.EVAL}
    assert (await waiting_for_training(ring.store, ring.alias.id)).groups == 0
    assert await rows.list_campaigns(Project(ring.store, PROJECT)) == []
    (row,) = await evaluations(ring)
    assert (row.name, row.state, row.reason) == ("eval:val", CampaignState.FINISHED, "compared")
    seeds = {event.phase for event in told.events if isinstance(event, PhaseStatus) and event.total}
    assert seeds == {"seed 1 of 2 · attempting", "seed 2 of 2 · attempting"}


async def test_where_ruler_is_the_reward_all_attempts_at_a_scenario_are_judged_in_one_blind_group(
    ring_of: RingOf, solved: dict[str, Any], file: Path, told: RecordedProgress
) -> None:
    script = Script(worker=RULER, skill=lambda number: 0.75 if number else 0.5)
    async with ring_of(script) as ring:
        name = await live(ring)
        found = await ring.evaluate(["base", "live"], file, solved | {"success": None}, told, judge=RULER)
        base, other = found.versions
        # of 4 attempts 2 and 3 succeed: of 16 comparisons 6 are won, 2 are lost, the others are ties
        assert base.measures == {}
        assert other.measures.keys() == {WIN_RATE}
        assert other.measures[WIN_RATE].value == pytest.approx((6 + 8 / 2) / 16)
        assert other.differences[WIN_RATE].value == pytest.approx(4 / 16)
        assert found.judging is not None
        assert found.judging.judgings == 3
        assert found.judging.usd == pytest.approx(1.5)
        (row,) = await evaluations(ring)
        groups = await rows.group_states(ring.store, row.id, 1, Purpose.EVAL)
        views = await transcripts.load_groups(ring.store, [group.group_id for group in groups])
        assert [len(view.members) for view in views] == [8, 8, 8]
        assert not any(name in prompt or "helpdesk@0" in prompt for prompt in ring.prompts)  # blind


async def test_where_a_function_tells_success_no_judge_is_asked(
    ring_of: RingOf, solved: dict[str, Any], file: Path, told: RecordedProgress
) -> None:
    script = Script(worker=RULER, skill=lambda number: 0.5)
    async with ring_of(script) as ring:
        found = await ring.evaluate(["base"], file, solved, told, judge=RULER)
        assert [one.measures[SUCCESS].value for one in found.versions] == [0.5]
        (row,) = await evaluations(ring)
        groups = await rows.group_states(ring.store, row.id, 1, Purpose.EVAL)
        assert [(one.state, one.reason) for one in groups] == [(GroupState.MEASURED, "measured")] * 3
        assert ring.prompts == []


async def test_rewards_are_averaged_where_a_mean_of_them_says_something(
    ring: Ring, script: Script, solved: dict[str, Any], file: Path, told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.5
    found = await ring.evaluate(["base"], file, solved | {"success": None}, told, judge=RUBRIC)
    (base,) = found.versions
    assert base.measures[REWARD].value == 0.5
    assert base.measures.keys() == {REWARD}


async def test_a_version_whose_agent_fails_loses_and_is_counted(
    ring: Ring, script: Script, solved: dict[str, Any], file: Path, told: RecordedProgress
) -> None:
    script.skill = lambda number: 1.0
    found = await ring.evaluate(["base"], file, solved | {"agent": "my_agent:stubborn"}, told)
    (base,) = found.versions
    assert (base.errored, base.attempts) == (4, 12)  # it does not like the third scenario
    assert base.measures[SUCCESS].value == pytest.approx(2 / 3)
    assert base.measures[SUCCESS].scenarios == 3
    assert found.failed == {"agent_error": 4}
    assert "I do not like twos" in str(found.first_error)


async def test_an_evaluation_that_was_stopped_is_gone_on_with_and_nothing_is_attempted_twice(
    ring: Ring, script: Script, solved: dict[str, Any], file: Path, told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.75 if number else 0.25
    await live(ring)
    script.hold, script.hold_after = asyncio.Event(), 10
    names = ["live", "base"]
    first = asyncio.create_task(ring.evaluate(names, file, solved | {"concurrency": 2}, RecordedProgress()))
    await ring.reached_hold.wait()
    with pytest.raises(CampaignBusy):
        await ring.evaluate(names, file, solved, RecordedProgress())
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    script.hold.set()
    (row,) = await evaluations(ring)
    assert (row.state, row.reason) == (CampaignState.STOPPED, "interrupted")
    found = await ring.evaluate(names, file, solved | {"concurrency": 5}, told)
    assert [one.measures[SUCCESS].value for one in found.versions] == [0.75, 0.25]
    assert [one.attempts for one in found.versions] == [12, 12]
    assert any(isinstance(event, Notice) and "resuming the evaluation" in event.text for event in told.events)
    assert len(await evaluations(ring)) == 1
    assert sum(count > 1 for count in ring.calls.values()) == 0
    await ring.evaluate(names, file, solved, RecordedProgress())
    assert len(await evaluations(ring)) == 2  # the first is over


async def test_another_comparison_is_another_evaluation(
    ring: Ring, script: Script, solved: dict[str, Any], file: Path
) -> None:
    script.hold, script.hold_after = asyncio.Event(), 2
    first = asyncio.create_task(ring.evaluate(["base"], file, solved, RecordedProgress()))
    await ring.reached_hold.wait()
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    script.hold.set()
    await ring.evaluate(["base"], file, solved, RecordedProgress(), seeds=2)
    await ring.evaluate(["base"], file, solved, RecordedProgress(), fresh=True)
    assert [row.state for row in await evaluations(ring)] == ["stopped", "finished", "finished"]


async def test_a_program_that_is_killed_goes_on_where_it_was(
    ring: Ring, script: Script, solved: dict[str, Any], file: Path, told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.75 if number else 0.25
    await live(ring)
    script.hold, script.hold_after = asyncio.Event(), 14
    given = (ring.data, ring.url, ["live", "base"], file, solved | {"concurrency": 4, "lease_s": 2.0}, ring.recording)
    process = _FORKS.Process(target=evaluate_in_a_process, args=given)
    await asyncio.to_thread(process.start)
    await ring.reached_hold.wait()
    process.kill()
    await asyncio.to_thread(process.join)
    assert process.exitcode == -signal.SIGKILL
    script.hold.set()
    found = await ring.evaluate(["live", "base"], file, solved, told)
    assert [one.measures[SUCCESS].value for one in found.versions] == [0.75, 0.25]
    assert [one.attempts for one in found.versions] == [12, 12]
    (row,) = await evaluations(ring)
    assert row.state is CampaignState.FINISHED
    done = select(func.count()).where(attempts.c.campaign_id == row.id, attempts.c.state == "done")
    async with ring.store.read() as conn:
        assert (await conn.execute(done)).scalar_one() == 24


def evaluate_in_a_process(
    data: Path, url: str, names: list[str], file: Path, settings: dict[str, Any], recording: RecorderSettings
) -> None:
    asyncio.run(run_evaluation(data, url, names, file, settings, RecordedProgress(), recording=recording))


async def test_a_version_that_no_engine_holds_is_refused_and_nothing_is_written(
    ring: Ring, solved: dict[str, Any], file: Path, told: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = await live(ring)
    _unloaded(monkeypatch)
    await _until_unloaded(ring)
    with pytest.raises(CampaignError, match=f"no engine holds {name} .*`hone canary {name} PERCENT`"):
        await ring.evaluate(["base", "live"], file, solved, told)
    assert await evaluations(ring) == []


async def test_a_version_that_goes_out_of_service_ends_the_evaluation_for_good(
    ring: Ring,
    script: Script,
    solved: dict[str, Any],
    file: Path,
    told: RecordedProgress,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await live(ring)
    script.hold, script.hold_after = asyncio.Event(), 3
    running = asyncio.create_task(ring.evaluate(["base", "live"], file, solved, told))
    await ring.reached_hold.wait()
    _unloaded(monkeypatch)
    await _until_unloaded(ring)
    script.hold.set()
    with pytest.raises(CampaignError, match="no engine holds"):
        await running
    (row,) = await evaluations(ring)
    assert (row.state, row.reason) == (CampaignState.FINISHED, "spoilt")


def _unloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on the ring's engine holds no adapter."""
    report = replicas.report_replica

    async def bare(*given: Any, **more: Any) -> None:
        await report(*given, **more | {"loaded": []})

    monkeypatch.setattr(replicas, "report_replica", bare)


async def _until_unloaded(ring: Ring) -> None:
    with ring.store.watch.on(Topic.ENGINES) as news:
        while any(one.loaded for one in await replicas.list_replicas(Project(ring.store, PROJECT))):
            await news.wait()


async def test_an_agent_that_always_fails_ends_the_evaluation_for_good(
    ring: Ring, solved: dict[str, Any], file: Path, told: RecordedProgress
) -> None:
    with pytest.raises(CampaignError, match=r"all 12 attempts of seed 1 failed \(no_call 12\)"):
        await ring.evaluate(["base"], file, solved | {"agent": "my_agent:silent"}, told)
    (row,) = await evaluations(ring)
    assert (row.state, row.reason) == (CampaignState.FINISHED, "spoilt")


async def test_without_a_proxy_nothing_begins(
    ring: Ring, solved: dict[str, Any], file: Path, told: RecordedProgress
) -> None:
    assert ring.data is not None
    with pytest.raises(ServiceUnavailable, match="no proxy answers"):
        await run_evaluation(ring.data, "http://127.0.0.1:9", ["base"], file, solved, told, recording=ring.recording)
    assert await evaluations(ring) == []

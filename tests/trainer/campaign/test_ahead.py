"""Campaigns that sample ahead: steps overlap, groups stay whole, and nothing is sampled ahead of what decides."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from judge.settings import JudgeSettings
from recorder.queue import campaigns
from recorder.queue.claims import GroupClaim
from recorder.queue.entered_steps import CAMPAIGN_ENDED
from recorder.registry import alias_moves
from recorder.registry.fingerprint import base_fingerprint
from recorder.report.contents import find_campaign, gather_report
from recorder.states import Purpose
from recorder.store.database import Project, Store
from recorder.store.schema import attempts, groups, step_groups
from tests.stores import Stores
from tests.trainer.campaign.conftest import RingOf
from tests.trainer.campaign.living import trainer_settings
from tests.trainer.ring import PROJECT, RecordedProgress, Ring, Script, ScriptedTrainer
from trainer.step.summary import StepReport

pytestmark = pytest.mark.slow  # whole campaigns

PATIENCE_S = 120.0


def ahead(user: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A campaign that samples one step ahead, without a validation."""
    return {key: value for key, value in user.items() if key != "val_scenarios"} | {"max_lag": 1} | more


def called(ring: Ring, step: int, purpose: str = "train") -> int:
    """How many attempts that were planned for a step have asked their model."""
    return sum(f".{step:04d}.{purpose}." in name for name in ring.calls)


async def until(what: Callable[[], bool]) -> None:
    """Wait for something that the test's own server counts."""
    async with asyncio.timeout(PATIENCE_S):
        while not what():
            await asyncio.sleep(0.01)


def at_each_training(monkeypatch: pytest.MonkeyPatch, then: Callable[[int], Any]) -> None:
    """Call `then` with the number of the step whenever a scripted trainer is about to train one."""
    original, steps = ScriptedTrainer.train_once, iter(range(1, 99))

    async def train_once(trainer: ScriptedTrainer, claimed: Sequence[GroupClaim], **given: Any) -> StepReport:
        await then(next(steps))
        return await original(trainer, claimed, **given)

    monkeypatch.setattr(ScriptedTrainer, "train_once", train_once)


async def entered(store: Store) -> dict[str, tuple[int, int | None]]:
    """The step that each training group was planned for, and the one that it entered; all its attempts agree."""
    async with store.read() as conn:
        rows = list(await conn.execute(select(attempts).where(attempts.c.purpose == Purpose.TRAIN)))
    found = {(row.group_external_id, row.step_number, row.entered_step) for row in rows}
    steps = {name.partition(".")[2]: (planned, into) for name, planned, into in found}
    assert len(steps) == len(found), "a group entered two steps"
    return steps


async def group_count(store: Store) -> Counter[int | None]:
    """How many groups entered each step."""
    return Counter(into for _, into in (await entered(store)).values())


async def test_while_a_step_is_judged_trained_and_gated_the_next_ones_attempts_run(
    script: Script, ring_of: RingOf, user: dict[str, Any], told: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge of step 1, the trainer of step 2 and the gate of step 3 each wait for a call of the step after it."""
    score, set_live, gated = Ring._score, alias_moves.set_live, iter(range(1, 99))
    script.skill = lambda number: 0.5

    async def judged(ring: Ring, claim: GroupClaim) -> None:
        await until(lambda: called(ring, 2) > 0)
        await score(ring, claim)

    async def promoted(*args: Any, **given: Any) -> Any:
        if next(gated) == 3:
            await until(lambda: called(ring, 4) > 0)
        return await set_live(*args, **given)

    async def trained(step: int) -> None:
        await until(lambda: step != 2 or called(ring, 3) > 0)

    monkeypatch.setattr(Ring, "_score", judged)
    monkeypatch.setattr(alias_moves, "set_live", promoted)
    at_each_training(monkeypatch, trained)
    async with ring_of(script) as ring:
        ended = await ring.train(ahead(user, steps=4), told)
        assert (ended.reason, ended.steps, ended.version) == ("steps", 4, "helpdesk@4")
        assert await group_count(ring.store) == {1: 2, 2: 2, 3: 2, 4: 2}
        assert sum(ring.calls.values()) == len(ring.calls) == 4 * 8
    assert [(step.attempts, step.trained, step.failed) for step in told.steps()] == [(8, 8, False)] * 4
    assert "stale_groups" in told.steps()[1].metrics


async def test_without_a_lag_no_attempt_of_a_step_begins_before_the_step_before_it_is_over(
    ring: Ring, script: Script, user: dict[str, Any], told: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    async def trained(step: int) -> None:
        seen.append(called(ring, step + 1))

    script.skill = lambda number: 0.5
    at_each_training(monkeypatch, trained)
    await ring.train(ahead(user, max_lag=0), told)
    assert seen == [0, 0, 0]
    assert await group_count(ring.store) == {None: 6}
    assert [step.sampled_by for step in told.steps()] == ["helpdesk@0", "helpdesk@1", "helpdesk@2"]
    assert all("stale_groups" not in step.metrics for step in told.steps())


async def test_a_slow_group_delays_no_step_and_enters_a_later_one_whole(
    ring: Ring, script: Script, user: dict[str, Any], told: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.skill, script.hold, script.hold_groups = (lambda number: 0.5), asyncio.Event(), ".0001.train.0000"

    async def trained(step: int) -> None:
        if step == 2:
            assert script.hold is not None
            script.hold.set()

    at_each_training(monkeypatch, trained)
    ended = await ring.train(ahead(user, steps=4), told)
    assert ended.steps == 4
    found = await entered(ring.store)
    planned, into = found["0001.train.0000"]
    assert (planned, into in (3, 4)) == (1, True)
    assert await group_count(ring.store) == {1: 2, 2: 2, 3: 2, 4: 2}
    assert sum(step.trained for step in told.steps()) == 4 * 8
    async with ring.store.read() as conn:
        used = Counter((await conn.execute(select(step_groups.c.group_id))).scalars())
    assert set(used.values()) == {1}
    report = await gather_report(ring.store, await find_campaign(Project(ring.store, PROJECT), None))
    assert report.lengths is not None
    assert (report.lengths.ended, report.lengths.trained, report.lengths.unfinished) == (32, 32, 0)
    assert (
        0 < report.lengths.ended_long == report.lengths.trained_long <= 16
    )  # fewer where two in the middle took equally long


async def test_no_training_attempt_begins_between_a_steps_end_and_its_validation(
    ring: Ring, script: Script, user: dict[str, Any], told: RecordedProgress
) -> None:
    script.skill = lambda number: 0.5
    await ring.train(user | {"max_lag": 2, "steps": 5, "val_every": 2}, told)
    order = [name.split(".")[1:3] for name in ring.calls]  # in the order of their first calls
    until_validated: dict[int, set[int]] = {}
    for step, purpose in ((int(step), purpose) for step, purpose in order):
        if purpose == "val":
            until_validated.setdefault(step, set())
        else:
            for validated in until_validated:
                until_validated[validated].add(step)
    assert {validated: min(later, default=9) for validated, later in until_validated.items()} == {
        0: 1,
        2: 3,
        4: 5,
        5: 9,
    }
    for validated in (2, 4):
        first = next(at for at, (step, purpose) in enumerate(order) if purpose == "val" and int(step) == validated)
        assert {int(step) for step, purpose in order[:first] if purpose == "train"} == set(range(1, validated + 1))
    assert [one.step for one in told.validations()] == [0, 2, 4, 5]
    assert await group_count(ring.store) == dict.fromkeys(range(1, 6), 2)


async def test_after_a_rejected_version_nothing_new_is_sampled_ahead_until_the_next_step_is_over(
    ring: Ring, script: Script, user: dict[str, Any], told: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.reject, script.skill = {1}, lambda number: 0.5
    seen: dict[int, int] = {}

    async def trained(step: int) -> None:
        if step == 1:
            await until(lambda: called(ring, 2) > 0)
        if step == 3:
            await until(lambda: called(ring, 4) > 0)
        seen[step] = max(int(name.split(".")[1]) for name in ring.calls)

    at_each_training(monkeypatch, trained)
    await ring.train(ahead(user, steps=5), told)
    assert [step.failed for step in told.steps()] == [True, False, False, False, False]
    assert (seen[1], seen[2], seen[3]) == (2, 2, 4)
    assert [step.trained for step in told.steps()][:3] == [0, 16, 8]  # what was sampled ahead waits for its own step
    assert await group_count(ring.store) == dict.fromkeys(range(1, 6), 2)


async def test_at_a_target_what_was_sampled_ahead_is_excluded_and_counted(
    ring: Ring, script: Script, user: dict[str, Any], told: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    script.skill = lambda number: 0.5
    script.hold, script.hold_groups = asyncio.Event(), ".0002.train.0001"

    async def trained(step: int) -> None:
        await until(lambda: called(ring, 2) == 8)  # one group can end, the other runs

    at_each_training(monkeypatch, trained)
    ended = await ring.train(ahead(user, steps=9, target=0.5, success="my_agent:solved"), told)
    assert (ended.reason, ended.steps) == ("target", 1)
    assert ended.left_out == {CAMPAIGN_ENDED: 8}
    assert await group_count(ring.store) == {1: 2, None: 2}
    async with ring.store.read() as conn:
        states = Counter(row.reason for row in await conn.execute(select(groups.c.reason)))
        left = Counter((await conn.execute(select(attempts.c.state))).scalars())
    assert states == {None: 2, CAMPAIGN_ENDED: 2}
    assert set(left) == {"done", "abandoned"}
    report = await gather_report(ring.store, await find_campaign(Project(ring.store, PROJECT), None))
    assert [(one.code, one.trajectories) for one in report.excluded] == [(CAMPAIGN_ENDED, 8)]
    assert report.lengths is not None
    assert report.lengths.unfinished == 4
    script.hold.set()


async def test_a_pause_stops_what_runs_ahead_and_the_resumed_campaign_makes_it_again(
    user: dict[str, Any], told: RecordedProgress, ring_of: RingOf
) -> None:
    (user["cwd"] / "checks.py").write_text("def broken(trajectory):\n    raise RuntimeError('no answer key')\n")
    rubric = [{"id": "key", "text": "as the key has it", "check": "checks:broken"}]
    lines = [{"id": f"t{i}", "input": f"t {i}", "reference": f"answer t {i}", "rubric": rubric} for i in range(4)]
    user["scenarios"].write_text("".join(f"{one}\n".replace("'", '"') for one in lines))
    judge = JudgeSettings.model_validate({"rewards": [{"kind": "rubric"}], "folder": user["cwd"], "backoff_s": 0.01})
    script = Script(judge=False, worker=judge, hold=asyncio.Event(), hold_groups=".0002.train.")
    async with ring_of(script) as ring:
        given = ahead(user, steps=2, name="mine")
        assert (await ring.train(given, told)).reason == "paused"
        async with ring.store.read() as conn:
            rows = list(await conn.execute(select(attempts).where(attempts.c.step_number == 2)))
        assert {row.state for row in rows} <= {"abandoned", "pending"}
        assert called(ring, 3) == 0
        assert script.hold is not None
        script.hold.set()
        again = RecordedProgress()
        await ring.train(given, again)
        assert [(step.step, step.attempts) for step in again.steps()] == [(2, 8)]
        assert await group_count(ring.store) == {1: 2, 2: 2}


async def test_a_campaign_goes_on_with_another_lag(
    ring: Ring, script: Script, user: dict[str, Any], told: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Begun without one, gone on with one, and ended without: no group is lost between them."""
    script.skill, script.hold, script.hold_after = (lambda number: 0.5), asyncio.Event(), 8 + 3
    running = asyncio.create_task(ring.train(ahead(user, max_lag=0, name="mine"), told))
    await ring.reached_hold.wait()
    await _stopped(running)
    ring.reached_hold.clear()
    script.hold_after, ring._held = len(ring.calls) + 10, 0
    script.hold.set()
    script.hold = asyncio.Event()
    running = asyncio.create_task(ring.train({"max_lag": 1, "steps": 5}, told, resume="mine"))
    await ring.reached_hold.wait()
    await _stopped(running)
    script.hold.set()
    ended = await ring.train({"max_lag": 0, "steps": 5}, told, resume="mine")
    assert ended.steps == 5
    assert [step.step for step in told.steps()] == [1, 2, 3, 4, 5]
    assert [step.attempts for step in told.steps()] == [8] * 5
    assert await group_count(ring.store) == dict.fromkeys(range(1, 6), 2)


async def _stopped(running: asyncio.Task[Any]) -> None:
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


async def test_what_is_older_than_the_limit_is_excluded_and_counted(
    data: Path, stores: Stores, user: dict[str, Any], tiny_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the real trainer: the second step's attempts are all version 0's, and `max_age` is 0."""
    told, set_live = RecordedProgress(), alias_moves.set_live

    async def promoted(*args: Any, **given: Any) -> Any:
        await until(lambda: called(ring, 2) == 8)
        return await set_live(*args, **given)

    monkeypatch.setattr(alias_moves, "set_live", promoted)
    script = Script(skill=lambda number: 0.5)
    trainer = trainer_settings(tiny_base).model_copy(update={"max_age": 0})
    with stores.made(data) as recording:
        async with Ring.running(data, script, recording, base_fingerprint(tiny_base, "float32")) as ring:
            await ring.train(ahead(user, steps=2), told, trainer=trainer)
            listed = await campaigns.list_campaigns(Project(ring.store, PROJECT))
    assert len(listed) == 1
    first, second = told.steps()
    assert (first.trained, first.metrics["stale_groups"]) == (8, 0)
    assert (second.trained, dict(second.left_out)) == (0, {"over_age": 8})
    assert (second.metrics["stale_groups"], second.sampled_by) == (1, "helpdesk@0")

"""The health rules of campaigns over the steps of live learning: noted once, a pause until a person decides."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest
from pydantic import ValidationError

from recorder.queue import gate_requests
from recorder.queue.gate_requests import AcceptedVersion
from recorder.registry import alias_moves, live_findings
from recorder.registry.aliases import AliasView
from recorder.settings import HealthSettings, LearnSettings, RecorderSettings, RuleName
from recorder.store import ledger
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.store.schema import steps
from recorder.store.sql import current_time
from recorder.views.campaigns.events import Alarm, StepDone
from recorder.views.status.project import Status, load_status
from recorder.views.status.stages import LoopSettings
from tests.recorder.rows import PROJECT, Rows
from tests.trainer.ring import RecordedProgress
from trainer.runtime.health_watch import HealthWatch

CALM = {"reward_mean": 0.5, "reward_std": 0.3, "health.attempts": 16.0, "health.repetition": 0.05, "entropy": 0.8}
REPEATS = CALM | {"health.repetition": 0.4}


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "data", RecorderSettings(), migrate=True)
    yield opened
    await opened.close()


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(store)


@pytest.fixture
async def alias(rows: Rows) -> AliasView:
    return await rows.alias()


class Steps:
    """The steps of an alias, one after the other, as a trainer writes them."""

    def __init__(self, rows: Rows, alias: AliasView) -> None:
        self._rows = rows
        self._alias = alias
        self.number = 0

    async def write(self, metrics: Mapping[str, float], campaign: str | None = None) -> StepDone:
        """A step, in the store and as the learner tells it."""
        self.number += 1
        async with self._rows.store.read() as conn:
            at = await current_time(conn)
        await self._rows.insert(
            steps,
            {
                "id": f"step_{self.number:03}", "project_id": PROJECT, "alias_id": self._alias.id,
                "number": self.number,
                "parent_version_id": self._alias.live_version_id, "state": "done", "metrics": dict(metrics),
                "started_at": at, "ended_at": at, "campaign_id": campaign,
            },
        )  # fmt: skip
        return told(self.number, metrics)


def told(number: int, metrics: Mapping[str, float]) -> StepDone:
    reward = metrics.get("reward_mean")
    return StepDone(number, None, "", None, reward, None, None, None, 0, 0, 8, metrics=dict(metrics))


def watch(rows: Rows, alias: AliasView, progress: RecordedProgress, **settings: HealthSettings) -> HealthWatch:
    given: dict[RuleName, HealthSettings] = LearnSettings.model_validate({"health": settings}).health
    return HealthWatch(rows.store, alias, given, progress)


def alarms(progress: RecordedProgress) -> list[tuple[int, str, str]]:
    return [(one.step, one.rule, one.then) for one in progress.events if isinstance(one, Alarm)]


async def status(rows: Rows) -> Status:
    return await load_status(Project(rows.store, PROJECT), LoopSettings())


async def test_a_signal_is_told_once_and_stands_in_the_status_until_it_ends(rows: Rows, alias: AliasView) -> None:
    progress, made = RecordedProgress(), Steps(rows, alias)
    watched = watch(rows, alias, progress)
    for _ in range(6):
        await watched.note_step(await made.write(CALM))
    assert (alarms(progress), (await status(rows)).health) == ([], [])
    for _ in range(3):
        await watched.note_step(await made.write(REPEATS))
    assert alarms(progress) == [(8, "repetition", "note")]
    found = await status(rows)
    [health] = found.health
    assert [(one.rule, one.then, one.detail) for one in health.signals] == [
        ("repetition", "note", "the share of repeated phrases went from 0.05 to 0.283")
    ]
    sentence = "repetition in learning of helpdesk, at step 8: the share of repeated phrases went from 0.05 to 0.283"
    assert sentence in found.alarms
    assert not await watched.pause()
    again = RecordedProgress()
    restarted = watch(rows, alias, again)
    await restarted.note_step(await made.write(REPEATS))
    assert alarms(again) == []
    for _ in range(3):
        await restarted.note_step(await made.write(CALM))
    assert (await status(rows)).health == []
    codes = [entry.code for entry in await ledger.object_entries(rows.store, "alias", alias.id)]
    assert codes.count("health_rules") == 2


def test_what_is_always_watched_has_no_setting() -> None:
    with pytest.raises(ValidationError, match="hone learn always watches reward_fall: remove the setting"):
        LearnSettings.model_validate({"health": {"reward_fall": {"at": 0.1}}})


async def test_steps_of_campaigns_and_rules_that_are_off_do_not_count(rows: Rows, alias: AliasView) -> None:
    progress, made = RecordedProgress(), Steps(rows, alias)
    for _ in range(9):
        await made.write(REPEATS, campaign="camp")
    watched = watch(rows, alias, progress, repetition=HealthSettings(then="off"))
    for metrics in (*[CALM] * 6, *[REPEATS] * 3):
        await watched.note_step(await made.write(metrics))
    assert alarms(progress) == []
    gap = CALM | {"logprob_gap": 1.0, "logprob_gap_bound": 0.1, "fresh_tokens": 100.0}
    await watched.note_step(await made.write(gap))  # the learner itself refuses such a step
    assert alarms(progress) == []


async def test_a_step_that_made_no_version_is_watched_too(rows: Rows, alias: AliasView) -> None:
    progress, made = RecordedProgress(), Steps(rows, alias)
    watched = watch(rows, alias, progress)
    await watched.note_step(await made.write(CALM | {"health.zero_variance": 0.2}))
    for _ in range(3):  # every group has equal rewards: no step begins
        await watched.note_step(told(0, CALM | {"health.zero_variance": 1.0}))
    assert alarms(progress) == [(1, "zero_variance", "note")]


async def test_a_rule_that_pauses_waits_for_a_person_and_then_begins_anew(rows: Rows, alias: AliasView) -> None:
    progress, made = RecordedProgress(), Steps(rows, alias)
    watched = watch(rows, alias, progress, entropy_collapse=HealthSettings(then="pause"))
    for metrics in (*[CALM] * 6, *[CALM | {"entropy": 0.1}] * 3):
        await watched.note_step(await made.write(metrics))
    assert alarms(progress) == [(9, "entropy_collapse", "pause")]
    assert await watched.pause()
    assert not await watched.pause()  # once for a version
    found = await status(rows)
    [stage] = [one for one in found.stages if one.alias == alias.name]
    assert stage.code == "health_rule"
    assert stage.text == (
        "Learning waits for a decision on helpdesk@0: the health rule entropy_collapse fired: the entropy of sampling "
        "went from 0.8 to 0.1 nats a token. `hone rollback` takes it back, `hone promote helpdesk@0` keeps it."
    )
    assert alias.live_version_id is not None
    assert await live_findings.decided_at(rows.store, alias.id, "health_rule") == 0
    await alias_moves.set_live(rows.store, alias.id, alias.live_version_id, why="promote", who="me")
    assert await live_findings.decided_at(rows.store, alias.id, "health_rule") > 0
    assert not await watched.pause()
    after = await status(rows)
    assert (after.health, [one.code for one in after.stages if one.alias == alias.name]) == ([], ["too_few_groups"])
    for _ in range(6):
        await watched.note_step(await made.write(CALM | {"entropy": 0.1}))
    assert len(alarms(progress)) == 1


async def test_attempts_at_a_gates_scenarios_are_the_validations(
    rows: Rows, alias: AliasView, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, made = RecordedProgress(), Steps(rows, alias)
    watched = watch(rows, alias, progress)
    accepted: list[AcceptedVersion] = []

    async def list_accepted(*_: object) -> list[AcceptedVersion]:
        return accepted

    monkeypatch.setattr(gate_requests, "list_accepted", list_accepted)
    for number in range(1, 13):
        success = 0.8 if number < 9 else 0.4
        accepted.append(AcceptedVersion(number, number, 100, success))
        await watched.note_step(await made.write(CALM))
    assert ("reward_hacking", "pause") in {(rule, then) for _, rule, then in alarms(progress)}
    assert await watched.pause()
    [health] = (await status(rows)).health
    assert "validations fell from 0.800 to 0.400" in next(
        one.detail for one in health.signals if one.rule == "reward_hacking"
    )


async def test_where_validations_are_flat_and_the_reward_rises_learning_goes_on(
    rows: Rows, alias: AliasView, monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, made = RecordedProgress(), Steps(rows, alias)
    watched = watch(rows, alias, progress)
    accepted: list[AcceptedVersion] = []

    async def list_accepted(*_: object) -> list[AcceptedVersion]:
        return accepted

    monkeypatch.setattr(gate_requests, "list_accepted", list_accepted)
    for number in range(1, 41):
        accepted.append(AcceptedVersion(number, number, 400, 0.5))
        await watched.note_step(await made.write(CALM | {"reward_mean": 0.2 + 0.015 * number}))
    assert {(rule, then) for _, rule, then in alarms(progress)} == {("converged", "note")}
    assert not await watched.pause()

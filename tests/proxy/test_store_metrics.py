"""What `/metrics` shows of the store: groups, rewards, steps, versions, what is undecided, who works."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from proxy import store_metrics
from proxy.store_metrics import StoreMetrics
from recorder.queue import leases
from recorder.queue.judging import cross_checks
from recorder.queue.judging.cross_checks import NewCrossCheck, SwitchRule
from recorder.queue.training import steps
from recorder.registry import alias_moves, replicas, versions
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.database import Project, Store
from recorder.store.schema import trajectories
from tests.recorder.rows import PROJECT, Rows

Figures = dict[tuple[str, tuple[str, ...]], float]


async def read(made: StoreMetrics) -> Figures:
    text = (await made.text()).decode()
    found = (sample for family in text_string_to_metric_families(text) for sample in family.samples)
    return {(sample.name, tuple(sample.labels.values())): sample.value for sample in found}


async def test_groups_rewards_steps_versions_and_workers_are_shown(store: Store) -> None:
    rows = Rows(store)
    alias = await rows.alias()
    await rows.scored_group(3, alias_id=alias.id, version_id=alias.live_version_id)
    await rows.ready_group(alias_id=alias.id, state="unscored", reason="judge_down", try_after=1.0)
    pair = await rows.ready_group(2, purpose="eval", alias_id=alias.id)
    for member in await rows.members(pair):
        await rows.set(trajectories, member, origin="shadow")
    step = await steps.begin_step(store, alias.id, alias.live_version_id or "")
    version = await versions.allocate_version(store, alias.id, alias.live_version_id or "", step_id=step.id)
    await versions.mark_version(store, version.id, VersionState.WRITTEN)
    await leases.acquire_lease(Project(store, PROJECT), "judge:a:1:x", "a:1:x", 60)
    found = await read(StoreMetrics(Project(store, PROJECT), RecorderSettings()))
    assert found["hone_groups", ("scored",)] == 1
    assert found["hone_groups", ("trained",)] == 0
    assert (found["hone_groups", ("ready",)], found["hone_other_groups", ("ready", "gate")]) == (0, 1)
    assert (found["hone_judge_tokens_today", ("learning",)], found["hone_judge_usd_today", ("gate",)]) == (0, 0)
    assert found["hone_groups_due_seconds", ("unscored",)] == 0
    assert found["hone_unscored_groups", ("judge_down",)] == 1
    assert found["hone_reward_mean", ("helpdesk", "helpdesk@0")] == 0.5
    assert found["hone_rewarded_trajectories", ("helpdesk", "helpdesk@0")] == 3
    assert found["hone_reward_relative", ("helpdesk", "helpdesk@0")] == 1
    assert ("hone_reward_mean", ("helpdesk", "helpdesk@1")) not in found  # it has sampled nothing
    assert found["hone_steps", ("helpdesk", "running")] == 1
    assert found["hone_versions", ("helpdesk", "written")] == 1
    assert ("hone_pending_version_seconds", ("helpdesk", "written", "helpdesk@1")) in found
    assert found["hone_live_version", ("helpdesk",)] == 0
    assert found["hone_workers", ("judge",)] == 1
    assert found["hone_workers", ("trainer",)] == 0
    assert found["hone_moves_total", ("helpdesk", "rollback")] == 0


async def test_two_judges_are_shown_by_alias_and_recipe(store: Store) -> None:
    rows = Rows(store)
    for _ in range(10):
        said = NewCrossCheck("helpdesk", "default", "pair", "strong", "openai/strong", tau=-0.5)
        await cross_checks.record_cross_check(
            Project(store, PROJECT), await rows.group(), said, SwitchRule(0.5, 10, "openai/a", "openai/strong")
        )

    said = NewCrossCheck("other", "brief", "pair", "strong", "openai/strong", tau=1.0)
    await cross_checks.record_cross_check(
        Project(store, PROJECT), await rows.group(), said, SwitchRule(0.5, 10, "openai/a", "openai/strong")
    )
    found = await read(StoreMetrics(Project(store, PROJECT), RecorderSettings()))
    assert found["hone_judge_drift", ("helpdesk", "default")] == 1
    assert found["hone_judge_agreement", ("helpdesk", "default")] == -0.5
    assert found["hone_judge_agreement", ("other", "brief")] == 1
    assert found["hone_judge_drift", ("other", "brief")] == 0


async def test_engines_are_counted_by_state_and_moves_by_alias(store: Store) -> None:
    alias = await Rows(store).alias()
    for url in ("http://a", "http://b"):
        await replicas.report_replica(Project(store, PROJECT), url, state="up")
    await replicas.report_replica(Project(store, PROJECT), "http://c", state="down")
    version = await versions.allocate_version(store, alias.id, alias.live_version_id or "")
    for state in (VersionState.WRITTEN, VersionState.LOADED):
        await versions.mark_version(store, version.id, state)
    await versions.pass_gate(store, version.id, "sane", who="controller")
    await alias_moves.set_live(store, alias.id, version.id, why="gate", who="controller")
    await alias_moves.rollback(store, alias.id)
    found = await read(StoreMetrics(Project(store, PROJECT), RecorderSettings()))
    assert [found["hone_engines", (state,)] for state in ("up", "down", "starting")] == [2, 1, 0]
    assert [found["hone_moves_total", ("helpdesk", move)] for move in ("gate", "rollback", "rejected")] == [1, 1, 0]


async def test_the_store_is_not_asked_for_every_reader(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, made = Rows(store), StoreMetrics(Project(store, PROJECT), RecorderSettings())
    assert (await read(made))["hone_groups", ("open",)] == 0
    await rows.ready_group(alias_id=(await rows.alias()).id, state="open")
    assert (await read(made))["hone_groups", ("open",)] == 0
    monkeypatch.setattr(store_metrics, "EVERY_S", 0.0)
    assert (await read(made))["hone_groups", ("open",)] == 1


@pytest.mark.sqlite_only("its file")
async def test_without_a_store_nothing_is_shown(store: Store) -> None:
    made = StoreMetrics(Project(store, PROJECT), RecorderSettings())
    assert store.file is not None
    await asyncio.to_thread(Path(store.file).write_bytes, b"")
    await store._reader.dispose()
    assert await read(made) == {}

"""Steps that change nothing: after the end of a schedule none begins, and a version equal to its parent is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.queue import campaigns, claims
from recorder.queue.training import steps
from recorder.registry import versions
from recorder.states import GroupState, StepState, VersionState
from recorder.store.database import Project
from tests.trainer.step.left import codes, folders, group_state
from tests.trainer.training_child import BASE, core, rows, start
from tests.trainer.training_child import one_step as child_step
from tests.trainer.world import PROJECT, World
from trainer.step.state.results import PhaseSeconds

pytestmark = pytest.mark.slow

NO_RATE = 1e-50  # below the smallest float32: the optimizer moves nothing


async def test_after_the_end_of_a_schedule_no_step_begins_and_the_groups_stay_scored(world: World) -> None:
    async with await world.trainer(schedule="linear", schedule_steps=1, lr_min=0.0) as trainer:
        await world.group("g1", [1.0, 0.0])
        first = await trainer.train_once(await world.claim(trainer))
        assert first.version is not None
        assert first.metrics["lr"] == 1e-2
        await world.promote(first.version)
        group_id = await world.group("g2", [1.0, 0.0], seed=2)
        report = await trainer.train_once(await world.claim(trainer))
    assert (report.step, report.version) == (None, None)
    assert 'trainer.schedule = "linear"' in str(report.reason)
    assert "trainer.schedule_steps" in str(report.reason)
    assert await group_state(world, group_id) == (GroupState.SCORED, None)
    assert await codes(world, "group", group_id) == []
    assert [step.state for step in await steps.list_steps(world.store, world.alias.id)] == [StepState.DONE]
    assert [v.number for v in await versions.list_versions(world.store, world.alias.id)] == [1, 0]


async def test_the_schedule_of_a_campaign_counts_its_own_steps(world: World) -> None:
    """The alias has learned before: neither the warm-up nor the end of a campaign's schedule is past because of it."""
    campaign = await campaigns.create_campaign(Project(world.store, PROJECT), world.alias.id, "orders", {})
    rates = []
    async with await world.trainer(schedule="linear", schedule_steps=2, lr_min=0.0) as trainer:
        for number, campaign_id in enumerate([None, campaign.id, None, campaign.id]):
            await world.group(f"g{number}", [1.0, 0.0], seed=number)
            report = await trainer.train_once(await world.claim(trainer), campaign_id=campaign_id)
            assert report.version is not None
            rates.append(report.metrics["lr"])
            await world.promote(report.version)
        await world.group("g5", [1.0, 0.0], seed=5)
        assert (await trainer.train_once(await world.claim(trainer), campaign_id=campaign.id)).step is None
    assert rates == [1e-2, 1e-2, 5e-3, 5e-3]


async def test_versions_off_the_line_do_not_count_for_the_schedule(world: World) -> None:
    async with await world.trainer(schedule="linear", schedule_steps=1, lr_min=0.0) as trainer:
        await world.group("g1", [1.0, 0.0])
        first = (await trainer.train_once(await world.claim(trainer))).version
        assert first is not None
        await versions.reject_version(world.store, first.id, "probe_failed", lessons="again", who="test")
        again = await trainer.train_once(await world.claim(trainer))
    assert again.version is not None
    assert again.metrics["lr"] == 1e-2


@pytest.mark.parametrize("learned_before", [False, True])
async def test_a_step_that_changes_nothing_makes_no_version(world: World, learned_before: bool) -> None:
    if learned_before:
        async with await world.trainer() as trainer:
            await world.group("g0", [1.0, 0.0], seed=9)
            first = (await trainer.train_once(await world.claim(trainer))).version
            assert first is not None
            await world.promote(first)
    before = await world.live()
    group_id = await world.group("g1", [1.0, 0.0, 0.5])
    flat = await world.group("g2", [0.5, 0.5], seed=2)
    kept = folders(world)
    async with await world.trainer(lr=NO_RATE) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    assert (report.step, report.version, report.trained) == (None, None, 0)
    assert report.left_out == {"no_change": 3, "zero_variance": 2}
    assert "trainer.lr" in str(report.reason)
    assert report.is_fault
    assert await group_state(world, group_id) == (GroupState.LEFT_OUT, "no_change")
    assert await group_state(world, flat) == (GroupState.LEFT_OUT, "zero_variance")
    newest = (await steps.list_steps(world.store, world.alias.id))[0]
    assert (newest.state, newest.version_id) == (StepState.ABANDONED, None)
    assert str(newest.reason).startswith("no_change: ")
    newest_version = (await versions.list_versions(world.store, world.alias.id))[0]
    assert (newest_version.id, newest_version.state) == (before.id, VersionState.LIVE)
    assert (await world.live()).id == before.id
    assert folders(world) == kept


async def test_after_a_step_without_a_change_the_next_one_teaches(world: World) -> None:
    await world.group("g1", [1.0, 0.0])
    async with await world.trainer(lr=NO_RATE) as trainer:
        assert (await trainer.train_once(await world.claim(trainer))).version is None
    await world.group("g2", [1.0, 0.0], seed=2)
    async with await world.trainer() as trainer:
        version = (await trainer.train_once(await world.claim(trainer))).version
    assert version is not None
    assert version.number == 1  # a step without a version takes no number
    assert await claims.claim_for_training(world.store, world.alias.id, "t", 60, limit=9) == []


def test_weights_that_move_while_the_adapter_adds_nothing_are_no_change(tiny_base: Path, tmp_path: Path) -> None:
    """Decay shrinks A while B is still zero: the adapter's product is zero before and after, as version 0's is."""
    trainer = core(tiny_base, tmp_path, weight_decay=0.9, lr=1e-2, warmup_steps=0)
    trainer.go_to(BASE)
    clipped = [one for one in rows(1, behaviour=-50.0) if one.advantage > 0]  # every ratio is clipped: no gradient
    before = trainer.policy.state()
    trained = trainer.step(clipped, 1e-2, lambda: False, PhaseSeconds())
    assert any(not before[name].equal(tensor) for name, tensor in trainer.policy.state().items())
    assert not trained.changed


def test_a_step_of_the_parents_own_weights_is_no_change_and_any_other_is_one(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    _, written = child_step(trainer, 1)
    trainer.go_to(start(written, 1))
    assert not trainer.step(rows(2), NO_RATE, lambda: False, PhaseSeconds()).changed
    trainer.go_to(start(written, 1))
    assert trainer.step(rows(2), 1e-6, lambda: False, PhaseSeconds()).changed

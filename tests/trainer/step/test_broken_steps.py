"""A step that breaks leaves nothing half done: its groups go back, its version is never seen."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

import trainer.policy.update
from recorder.errors import StoreUnavailable, VersionPending
from recorder.queue import leases
from recorder.queue.training import steps
from recorder.registry import alias_moves, versions
from recorder.states import GroupState, StepState, VersionState
from recorder.store import schema
from recorder.store.database import Project
from tests.trainer.step.left import codes, folders, group_state
from tests.trainer.world import PROJECT, World
from trainer.artifacts import adapters
from trainer.errors import AdapterInvalid, AliasBusy, StepFailed, VersionNotWritten
from trainer.step.summary import STEP_FAILED

pytestmark = pytest.mark.slow


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr("trainer.policy.update.train_step", fail)


async def test_a_step_that_fails_gives_its_groups_back_and_leaves_them_out_in_the_end(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    failing(monkeypatch, StepFailed("the loss is not finite (trajectories t)"))
    async with await world.trainer(max_tries=2) as trainer:
        with pytest.raises(StepFailed, match="not finite"):
            await trainer.train_once(await world.claim(trainer))
        assert (await group_state(world, group_id))[0] == GroupState.SCORED
        with pytest.raises(StepFailed):
            await trainer.train_once(await world.claim(trainer))
    assert await group_state(world, group_id) == (GroupState.LEFT_OUT, STEP_FAILED)
    assert await codes(world, "group", group_id) == [STEP_FAILED, STEP_FAILED]
    done = await steps.list_steps(world.store, world.alias.id)
    assert [step.state for step in done] == [StepState.ABANDONED] * 2
    assert all("not finite" in str(step.reason) for step in done)
    assert [v.number for v in await versions.list_versions(world.store, world.alias.id)] == [0]
    assert folders(world) == []


async def test_after_a_failed_step_the_next_one_begins_at_the_live_version(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.group("g1", [1.0, 0.0])
    async with await world.trainer() as trainer:
        with monkeypatch.context() as broken:
            failing(broken, StepFailed("broken"))
            with pytest.raises(StepFailed):
                await trainer.train_once(await world.claim(trainer))
        report = await trainer.train_once(await world.claim(trainer))
    assert report.version is not None
    assert report.version.number == 1  # a step that failed before it had a version took no number
    assert report.metrics["logprob_gap_max"] <= 1e-5


async def test_an_error_of_the_stores_costs_no_try(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    group_id = await world.group("g1", [1.0, 0.0])

    async def away(*args: Any, **kwargs: Any) -> None:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(steps, "finish_step", away)
    async with await world.trainer(max_tries=1) as trainer:
        with pytest.raises(StoreUnavailable):
            await trainer.train_once(await world.claim(trainer))
    assert (await group_state(world, group_id))[0] == GroupState.SCORED
    assert await codes(world, "group", group_id) == []
    (step,) = await steps.list_steps(world.store, world.alias.id)
    assert (step.state, step.reason) == (StepState.ABANDONED, "StoreUnavailable: the store is away")
    assert folders(world) == folders(world, "checkpoints") == []


async def test_a_group_that_breaks_the_trainer_is_not_tried_for_ever(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    failing(monkeypatch, IndexError("out of range"))
    async with await world.trainer(max_tries=1) as trainer:
        with pytest.raises(IndexError):
            await trainer.train_once(await world.claim(trainer))
    assert await group_state(world, group_id) == (GroupState.LEFT_OUT, STEP_FAILED)


async def test_a_disk_that_refuses_a_version_costs_no_try(world: World) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    async with await world.trainer(max_tries=1) as trainer:
        (world.data / "adapters").write_text("in the way")
        with pytest.raises(VersionNotWritten, match=r"version 1 .*Is the disk full"):
            await trainer.train_once(await world.claim(trainer))
        assert (await group_state(world, group_id))[0] == GroupState.SCORED
        (world.data / "adapters").unlink()
        assert (await trainer.train_once(await world.claim(trainer))).version is not None


async def test_a_damaged_parent_costs_the_groups_no_try(world: World) -> None:
    await world.group("g1", [1.0, 0.0], seed=1)
    async with await world.trainer(max_tries=1) as trainer:
        first = (await trainer.train_once(await world.claim(trainer))).version
    assert first is not None
    await world.promote(first)
    group_id = await world.group("g2", [1.0, 0.0], seed=2)
    (Path(str(first.path)) / adapters.WEIGHTS).write_bytes(b"torn")
    async with await world.trainer(max_tries=1) as trainer:
        with pytest.raises(AdapterInvalid, match="sha256 differs"):
            await trainer.train_once(await world.claim(trainer))
    assert await group_state(world, group_id) == (GroupState.SCORED, None)


async def test_a_step_whose_alias_is_taken_over_ends_between_two_packs_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    genuine = trainer.policy.update.train_step
    async with await world.trainer() as worker:

        def taken_meanwhile(*args: Any) -> Any:
            worker._keeper.lost.set()
            return genuine(*args)

        monkeypatch.setattr("trainer.policy.update.train_step", taken_meanwhile)
        with pytest.raises(AliasBusy, match="taken over"):
            await worker.train_once(await world.claim(worker))
    assert await group_state(world, group_id) == (GroupState.SCORED, None)
    assert folders(world) == []


async def test_a_cancelled_step_ends_at_once_and_gives_everything_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    began = threading.Event()
    genuine = trainer.policy.update.train_step

    def slow(policy: Any, optimizer: Any, planned: Any, settings: Any, stopped: Any, fresh: Any) -> Any:
        began.set()
        while not stopped():
            threading.Event().wait(0.005)
        return genuine(policy, optimizer, planned, settings, stopped, fresh)

    async with await world.trainer() as worker:
        claimed = await world.claim(worker)
        with monkeypatch.context() as patched:
            patched.setattr("trainer.policy.update.train_step", slow)
            task = asyncio.create_task(worker.train_once(claimed))
            assert await asyncio.to_thread(began.wait, 60)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert (await group_state(world, group_id))[0] == GroupState.SCORED
        assert [s.state for s in await steps.list_steps(world.store, world.alias.id)] == [StepState.ABANDONED]
        assert folders(world) == []
        report = await worker.train_once(await world.claim(worker))
    assert report.version is not None


async def test_what_a_killed_trainer_began_is_abandoned_and_its_groups_are_trained_by_the_next(world: World) -> None:
    await world.group("g1", [1.0, 0.0])
    live = await world.live()
    lease = await leases.acquire_lease(
        Project(world.store, PROJECT), leases.trainer_lease(world.alias.name), "dead", 60
    )
    assert lease is not None
    dead = await steps.begin_step(world.store, world.alias.id, live.id, lease=lease)
    await versions.allocate_version(world.store, world.alias.id, live.id, step_id=dead.id)
    left = world.data / "adapters" / ".unfinished-org-helpdesk-0123456789abcdef"
    left.mkdir(parents=True)
    await leases.release_lease(world.store, lease)  # as when it runs out
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    assert report.version is not None
    assert report.version.number == 2
    states = {step.id: step.state for step in await steps.list_steps(world.store, world.alias.id)}
    assert states[dead.id] == StepState.ABANDONED
    assert folders(world) == [report.version.engine_name]


async def test_a_group_that_was_taken_over_meanwhile_makes_nothing_visible(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost, kept = [await world.group(f"g{number}", [1.0, 0.0], seed=number) for number in range(2)]
    genuine = steps.finish_step

    async def too_late(*args: Any, **kwargs: Any) -> Any:
        async with world.store.write() as conn:
            await conn.execute(
                update(schema.groups).where(schema.groups.c.id == lost).values(lease_owner="other", lease_epoch=99)
            )
        return await genuine(*args, **kwargs)

    monkeypatch.setattr(steps, "finish_step", too_late)
    async with await world.trainer() as trainer:
        with pytest.raises(StepFailed, match="a lease expired"):
            await trainer.train_once(await world.claim(trainer))
    assert folders(world) == folders(world, "checkpoints") == []
    assert (await group_state(world, lost))[0] == GroupState.TRAINING
    assert (await group_state(world, kept))[0] == GroupState.SCORED
    assert [v.state for v in await versions.list_versions(world.store, world.alias.id)] == [
        VersionState.ABANDONED,
        VersionState.LIVE,
    ]


async def test_a_step_that_ends_after_its_alias_was_taken_makes_nothing_visible(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    genuine = steps.finish_step

    async def taken_unnoticed(*args: Any, **kwargs: Any) -> Any:
        async with world.store.write() as conn:
            await conn.execute(update(schema.leases).values(lease_owner="another", lease_epoch=7))
        return await genuine(*args, **kwargs)

    monkeypatch.setattr(steps, "finish_step", taken_unnoticed)
    async with await world.trainer() as trainer:
        with pytest.raises(StepFailed, match="a lease expired"):
            await trainer.train_once(await world.claim(trainer))
    assert folders(world) == folders(world, "checkpoints") == []
    assert (await group_state(world, group_id))[0] == GroupState.SCORED
    assert (await versions.list_versions(world.store, world.alias.id))[0].state == VersionState.ABANDONED


async def test_no_step_begins_before_the_last_version_is_decided(world: World) -> None:
    await world.group("g1", [1.0, 0.0])
    async with await world.trainer() as trainer:
        first = (await trainer.train_once(await world.claim(trainer))).version
        assert first is not None
        waiting = await world.group("g2", [1.0, 0.0], seed=2)
        with pytest.raises(VersionPending, match="org/helpdesk@1 is written and not decided"):
            await trainer.train_once(await world.claim(trainer))
        assert await group_state(world, waiting) == (GroupState.SCORED, None)
        await world.promote(first)
        second = (await trainer.train_once(await world.claim(trainer))).version
        assert second is not None
        assert second.parent_id == first.id


async def test_an_alias_that_moved_while_its_groups_were_read_fails_the_step(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.group("g1", [1.0, 0.0])
    genuine = steps.begin_step

    async with await world.trainer() as trainer:
        version = (await trainer.train_once(await world.claim(trainer))).version
        assert version is not None
        await world.promote(version)
        group_id = await world.group("g2", [1.0, 0.0], seed=2)

        async def rolled_back(*args: Any, **kwargs: Any) -> Any:
            await alias_moves.rollback(world.store, world.alias.id)
            return await genuine(*args, **kwargs)

        monkeypatch.setattr(steps, "begin_step", rolled_back)
        with pytest.raises(StepFailed, match="no longer live"):
            await trainer.train_once(await world.claim(trainer))
    assert await group_state(world, group_id) == (GroupState.SCORED, None)


async def test_a_commit_whose_answer_was_lost_keeps_its_version(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    genuine = steps.finish_step

    async def lost(*args: Any, **kwargs: Any) -> Any:
        await genuine(*args, **kwargs)
        raise StoreUnavailable("the answer was lost")

    monkeypatch.setattr(steps, "finish_step", lost)
    async with await world.trainer() as trainer:
        with pytest.raises(StoreUnavailable):
            await trainer.train_once(await world.claim(trainer))
    newest = (await versions.list_versions(world.store, world.alias.id))[0]
    assert newest.state == VersionState.WRITTEN
    adapters.read_adapter(Path(str(newest.path)), newest.manifest_sha256)
    assert (await group_state(world, group_id))[0] == GroupState.TRIED


async def test_a_trainer_that_lost_its_alias_trains_no_more(world: World) -> None:
    await world.group("g1", [1.0, 0.0])
    async with await world.trainer() as trainer:
        claimed = await world.claim(trainer)
        trainer._keeper.lost.set()
        with pytest.raises(AliasBusy, match="taken over"):
            await trainer.train_once(claimed)

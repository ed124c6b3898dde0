"""The trainer on a real store: recorded runs in, a version out, and nothing half done whatever breaks."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sqlalchemy import select, update

import trainer.policy.update
from recorder.content.trainable import LeftOut
from recorder.errors import StoreUnavailable
from recorder.registry import versions
from recorder.states import GroupState, Purpose, StepState, VersionState
from recorder.store import ledger, schema
from recorder.work import claims, leases, steps
from recorder.work.claims import GroupClaim
from tests.trainer.world import PROJECT, World
from trainer.artifacts import adapters
from trainer.batch.weights import NotTrained
from trainer.errors import AdapterInvalid, AliasBusy, BaseMismatch, StepFailed, TrainerError, VersionNotWritten
from trainer.policy.model import resolve_base
from trainer.settings import TrainerSettings
from trainer.step.alias_trainer import OPTIMIZER_FRESH, STEP_FAILED, TRAINED, AliasTrainer
from trainer.step.keeper import Keeper


@pytest.fixture
async def world(tmp_path: Path, tiny_base: Path) -> AsyncIterator[World]:
    async with World.opened(tmp_path / "data", tiny_base) as opened:
        yield opened


async def group_state(world: World, group_id: str) -> tuple[str, str | None]:
    async with world.store.read() as conn:
        query = select(schema.groups.c.state, schema.groups.c.reason).where(schema.groups.c.id == group_id)
        row = (await conn.execute(query)).one()
    return row.state, row.reason


async def codes(world: World, kind: str, object_id: str) -> list[str]:
    return [entry.code for entry in await ledger.of(world.store, kind, object_id)]


def folders(world: World, kind: str = "adapters") -> list[str]:
    folder = world.data / kind
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


async def test_scored_groups_become_a_written_version(world: World) -> None:
    good = await world.group("g1", [1.0, 0.0, 0.5, None], seed=1)
    flat = await world.group("g2", [0.5, 0.5], seed=2)
    before = await world.live()
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    step, version = report.step, report.version
    assert step is not None
    assert version is not None
    assert (version.name, version.state, version.parent_id) == ("org/helpdesk@1", VersionState.WRITTEN, before.id)
    assert version.engine_name == f"org-helpdesk@1-{str(version.manifest_sha256)[:12]}" == Path(str(version.path)).name
    assert folders(world) == folders(world, "checkpoints") == [version.engine_name]
    adapters.read(Path(str(version.path)), version.manifest_sha256)
    assert (step.state, step.version_id, step.parent_version_id) == (StepState.DONE, version.id, before.id)
    assert step.checkpoint_path == str(world.data / "checkpoints" / version.engine_name)
    assert await group_state(world, good) == (GroupState.TRAINED, None)
    assert await group_state(world, flat) == (GroupState.LEFT_OUT, NotTrained.ZERO_VARIANCE)
    assert list(await steps.groups_of(world.store, step.id)) == [good]
    assert report.trained == 3
    assert report.left_out == {NotTrained.REWARD_MISSING: 1, NotTrained.ZERO_VARIANCE: 2}
    assert report.reason is None
    assert step.metrics == version.metrics == dict(report.metrics)
    assert report.metrics["reward_mean"] == pytest.approx(0.5)
    assert report.metrics["groups"] == 2
    assert report.metrics["rows_per_trajectory"] == 1
    assert report.metrics["trained_tokens"] == 3 * 2 * 6
    assert report.metrics["tokens_per_s"] > 0
    assert set(report.seconds) == {"read", "rows", "load", "probe", "train", "publish", "commit"}
    counted = await ledger.counts(world.store, PROJECT, "trajectory")
    assert counted == {TRAINED: 3, NotTrained.REWARD_MISSING: 1, NotTrained.ZERO_VARIANCE: 2}


async def test_engine_and_trainer_agree_on_every_token_with_and_without_an_adapter(world: World) -> None:
    async with await world.trainer() as trainer:
        for number in range(3):
            await world.group(f"g{number}", [1.0, 0.0, 0.2], seed=number)
            report = await trainer.train_once(await world.claim(trainer))
            assert report.version is not None
            assert report.version.number == number + 1
            assert report.metrics["logprob_gap"] <= 1e-6
            assert report.metrics["logprob_gap_max"] <= 1e-5
            assert 0 <= report.metrics["kl_engine"] <= 1e-10
            assert report.metrics["ratio_mean"] == pytest.approx(1, abs=1e-5)
            await world.promote(report.version)


async def test_a_version_is_trained_from_the_one_that_is_live_and_older_samples_count_until_they_are_too_old(
    world: World,
) -> None:
    late = [await world.group(f"late{number}", [1.0, 0.0], seed=50 + number) for number in range(2)]
    async with await world.trainer(max_age=1) as trainer:
        held = await world.claim(trainer)
        await world.group("g1", [1.0, 0.0], seed=1)
        first = (await trainer.train_once(await world.claim(trainer))).version
        assert first is not None
        await world.promote(first)
        aged = await trainer.train_once([held[0]])
        assert aged.version is not None
        assert aged.version.parent_id == first.id
        assert (
            not {"kl_engine", "logprob_gap"} & aged.metrics.keys()
        )  # no token is of the parent version: a difference would be drift
        assert aged.metrics["ratio_max"] != pytest.approx(1, abs=1e-4)
        await world.promote(aged.version)
        over = await trainer.train_once([held[1]])
    assert over.version is None
    assert over.left_out == {LeftOut.OVER_AGE: 2}
    assert await group_state(world, late[1]) == (GroupState.LEFT_OUT, LeftOut.OVER_AGE)


async def test_samples_of_a_version_off_the_line_are_left_out(world: World) -> None:
    async with await world.trainer() as trainer:
        for number in range(2):
            await world.group(f"g{number}", [1.0, 0.0], seed=number)
        held = await world.claim(trainer)
        base = await world.live()
        first = (await trainer.train_once([held[0]])).version
        assert first is not None
        await world.promote(first)
        group_id = await world.group("of first", [1.0, 0.0], seed=5)
        of_first = await world.claim(trainer)
        await aliases_back(world, base.id)
        report = await trainer.train_once(of_first)
    assert report.version is None
    assert report.left_out == {LeftOut.FOREIGN_VERSION: 2}
    assert await group_state(world, group_id) == (GroupState.LEFT_OUT, LeftOut.FOREIGN_VERSION)


async def aliases_back(world: World, version_id: str) -> None:
    from recorder.registry import aliases

    await aliases.set_live(world.store, world.alias.id, version_id, why="rollback")


async def test_where_nothing_teaches_no_step_begins(world: World) -> None:
    await world.group("g1", [0.3, 0.3])
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert (await trainer.train_once([])).reason == "no group teaches anything"
    assert (report.step, report.version, report.trained) == (None, None, 0)
    assert "zero_variance" in str(report.reason)
    assert report.metrics["reward_mean"] == pytest.approx(0.3)
    assert await steps.list_steps(world.store, world.alias.id) == []
    assert [v.number for v in await versions.list_versions(world.store, world.alias.id)] == [0]


@pytest.mark.parametrize("purpose", [Purpose.VAL, Purpose.EVAL])
async def test_other_purposes_never_reach_the_trainer(world: World, purpose: Purpose) -> None:
    planted = await world.group("g1", [1.0, 0.0], purpose=purpose)
    async with await world.trainer() as trainer:
        assert await world.claim(trainer) == []
        async with world.store.write() as conn:  # even where a claim were to let one through
            await conn.execute(
                update(schema.groups)
                .where(schema.groups.c.id == planted)
                .values(state="training", lease_owner="x", lease_epoch=9)
            )
            query = select(schema.groups.c.current_score_id).where(schema.groups.c.id == planted)
            score_id = (await conn.execute(query)).scalar_one()
        claim = GroupClaim(planted, "x", 9, 0.0, score_id, PROJECT, world.alias.id, None, 0)
        report = await trainer.train_once([claim])
    assert report.version is None
    assert report.left_out == {LeftOut.PURPOSE: 2}


async def test_one_trainer_holds_an_alias(world: World) -> None:
    async with await world.trainer() as first:
        with pytest.raises(AliasBusy, match="org/helpdesk"):
            await world.trainer()
        (held,) = await leases.holders(world.store, PROJECT, "trainer:")
        assert held.owner == first.owner
    assert await leases.holders(world.store, PROJECT, "trainer:") == []
    async with await world.trainer():
        pass


async def test_a_base_that_is_not_the_aliass_is_refused(world: World, tiny_base: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in tiny_base.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"rope_theta": 123.0}))
    with pytest.raises(BaseMismatch, match=r"another base .* trainer\.dtype"):
        await world.trainer(base=str(other))
    with pytest.raises(BaseMismatch, match="bfloat16"):
        await world.trainer(dtype="bfloat16")
    assert await leases.holders(world.store, PROJECT, "trainer:") == []


async def test_a_base_that_nobody_vouches_for_may_still_start_but_nothing_is_trained_on_it(world: World) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    known = world.alias.base_fingerprint

    async def vouch(fingerprint: str | None) -> None:
        async with world.store.write() as conn:
            await conn.execute(update(schema.aliases).values(base_fingerprint=fingerprint))

    await vouch(None)
    world.alias = replace(world.alias, base_fingerprint=None)
    async with await world.trainer() as trainer:
        for unknown, message in ((None, r"nobody has said.*engine\.base"), ("other", "another base")):
            await vouch(unknown)
            with pytest.raises(BaseMismatch, match=message):
                await trainer.train_once(await world.claim(trainer))
            assert (await group_state(world, group_id))[0] == GroupState.SCORED
        await vouch(known)
        assert (await trainer.train_once(await world.claim(trainer))).version is not None


async def test_a_base_must_be_known(world: World) -> None:
    with pytest.raises(TrainerError, match=r"trainer\.base"):
        await AliasTrainer.open(world.store, world.alias, TrainerSettings(), world.data)


def test_a_base_that_neither_disk_nor_hub_has_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: Any, **kwargs: Any) -> str:
        raise OSError("no network")

    monkeypatch.setattr("trainer.policy.model.snapshot_download", offline)
    with pytest.raises(TrainerError, match=r"some/model.*no folder.*no network"):
        resolve_base("some/model")


async def test_a_new_trainer_goes_on_with_the_same_numbers(tmp_path: Path, tiny_base: Path) -> None:
    """One trainer for three steps, against a new one for every step: also what follows a crash between steps."""
    found = []
    for anew in (False, True):
        async with World.opened(tmp_path / str(anew), tiny_base) as world:
            trainer = await world.trainer(warmup_steps=4)
            for number in range(3):
                await world.group(f"g{number}", [1.0, 0.0], seed=number)
                report = await trainer.train_once(await world.claim(trainer))
                assert report.version is not None
                assert report.metrics["optimizer_fresh"] == 0
                await world.promote(report.version)
                if anew:
                    await trainer.close()
                    trainer = await world.trainer(warmup_steps=4)
            await trainer.close()
            found.append(adapters.read(Path(str((await world.live()).path)), None))
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, atol=1e-6, rtol=0)


async def test_an_optimizer_that_lost_its_state_is_told(world: World) -> None:
    found = []
    for number in range(2):
        async with await world.trainer() as trainer:
            await world.group(f"g{number}", [1.0, 0.0], seed=number)
            report = await trainer.train_once(await world.claim(trainer))
            assert report.version is not None
            assert report.step is not None
            await world.promote(report.version)
            found.append(await codes(world, "version", report.version.id))
            shutil.rmtree(str(report.step.checkpoint_path))
    assert [OPTIMIZER_FRESH in of_version for of_version in found] == [False, True]


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*args: Any) -> None:
        raise error

    monkeypatch.setattr("trainer.policy.update.train", fail)


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
    numbers = {v.number: v.state for v in await versions.list_versions(world.store, world.alias.id)}
    assert numbers == {0: VersionState.LIVE, 1: VersionState.ABANDONED, 2: VersionState.ABANDONED}
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
    assert report.version.number == 2  # a number is never used twice
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
    failing(monkeypatch, MemoryError("no memory"))
    async with await world.trainer(max_tries=1) as trainer:
        with pytest.raises(MemoryError):
            await trainer.train_once(await world.claim(trainer))
    assert await group_state(world, group_id) == (GroupState.LEFT_OUT, STEP_FAILED)


async def test_a_disk_that_refuses_a_version_costs_no_try(world: World) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    async with await world.trainer(max_tries=1) as trainer:
        (world.data / "adapters").write_text("in the way")
        with pytest.raises(VersionNotWritten, match=r"version 1 .*room on the disk"):
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
    genuine = trainer.policy.update.train
    async with await world.trainer() as worker:

        def taken_meanwhile(*args: Any) -> Any:
            worker._keeper.lost.set()
            return genuine(*args)

        monkeypatch.setattr("trainer.policy.update.train", taken_meanwhile)
        with pytest.raises(AliasBusy, match="taken over"):
            await worker.train_once(await world.claim(worker))
    assert await group_state(world, group_id) == (GroupState.SCORED, None)
    assert folders(world) == []


async def test_a_cancelled_step_ends_at_once_and_gives_everything_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    began = threading.Event()
    genuine = trainer.policy.update.train

    def slow(policy: Any, optimizer: Any, planned: Any, settings: Any, stopped: Any) -> Any:
        began.set()
        while not stopped():
            threading.Event().wait(0.005)
        return genuine(policy, optimizer, planned, settings, stopped)

    async with await world.trainer() as worker:
        claimed = await world.claim(worker)
        with monkeypatch.context() as patched:
            patched.setattr("trainer.policy.update.train", slow)
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
    lease = await leases.acquire(world.store, PROJECT, leases.trainer(world.alias.name), "dead", 60)
    assert lease is not None
    dead = await steps.begin_step(world.store, world.alias.id, live.id, lease=lease)
    await versions.allocate(world.store, world.alias.id, live.id, step_id=dead.id)
    left = world.data / "adapters" / ".unfinished-org-helpdesk-0123456789abcdef"
    left.mkdir(parents=True)
    await leases.release(world.store, lease)  # as when it runs out
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
        with pytest.raises(StepFailed, match="a lease ran out"):
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
        with pytest.raises(StepFailed, match="a lease ran out"):
            await trainer.train_once(await world.claim(trainer))
    assert folders(world) == folders(world, "checkpoints") == []
    assert (await group_state(world, group_id))[0] == GroupState.SCORED
    assert (await versions.list_versions(world.store, world.alias.id))[0].state == VersionState.ABANDONED


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
    adapters.read(Path(str(newest.path)), newest.manifest_sha256)
    assert (await group_state(world, group_id))[0] == GroupState.TRAINED


async def test_leases_are_renewed_while_a_step_runs(world: World) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    lease = await leases.acquire(world.store, PROJECT, "trainer:x", "me", 0.5)
    assert lease is not None
    (claim,) = await claims.claim_for_training(world.store, world.alias.id, "me", 0.5, limit=1)
    keeper = Keeper(world.store, lease, 0.5)
    async with keeper.running():
        with keeper.keeping([claim]):
            query = select(schema.groups.c.lease_expires_at).where(schema.groups.c.id == group_id)
            renewed = (lease.expires_at, claim.expires_at)
            while min(renewed[0] - lease.expires_at, renewed[1] - claim.expires_at) < 0.5:
                await asyncio.sleep(0.01)
                async with world.store.read() as conn:
                    renewed = keeper.lease.expires_at, (await conn.execute(query)).scalar_one()
        assert not keeper.lost.is_set()
    assert await leases.holders(world.store, PROJECT, "trainer:x") == []


async def test_a_claim_that_was_let_go_is_no_reason_to_give_up_the_alias(world: World) -> None:
    await world.group("g1", [1.0, 0.0])
    async with await world.trainer() as trainer:
        (claim,) = await world.claim(trainer)
        with trainer._keeper.keeping([claim]):
            await claims.give_back(world.store, claim)
            await trainer._keeper.renew_now()
        assert (await trainer.train_once(await world.claim(trainer))).version is not None


async def test_a_lost_lease_is_noticed(world: World) -> None:
    lease = await leases.acquire(world.store, PROJECT, "trainer:x", "me", 0.1)
    assert lease is not None
    keeper = Keeper(world.store, lease, 0.1)
    await leases.release(world.store, lease)
    assert await leases.acquire(world.store, PROJECT, "trainer:x", "other", 60) is not None
    async with keeper.running():
        assert await asyncio.to_thread(keeper.lost.wait, 60)
    assert [held.owner for held in await leases.holders(world.store, PROJECT, "trainer:x")] == ["other"]


async def test_a_keeper_that_fails_keeps_nothing_and_does_not_hide_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await leases.acquire(world.store, PROJECT, "trainer:x", "me", 0.1)
    assert lease is not None
    keeper = Keeper(world.store, lease, 0.1)

    async def broken() -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(keeper, "renew_now", broken)
    with pytest.raises(ZeroDivisionError):
        async with keeper.running():
            assert await asyncio.to_thread(keeper.lost.wait, 60)
    assert await leases.holders(world.store, PROJECT, "trainer:x") == []


async def test_a_trainer_that_lost_its_alias_trains_no_more(world: World) -> None:
    await world.group("g1", [1.0, 0.0])
    async with await world.trainer() as trainer:
        claimed = await world.claim(trainer)
        trainer._keeper.lost.set()
        with pytest.raises(AliasBusy, match="taken over"):
            await trainer.train_once(claimed)

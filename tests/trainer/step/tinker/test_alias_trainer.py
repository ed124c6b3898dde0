"""The trainer of an alias with steps at a training service: a version like any other, and groups that are returned."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text

from recorder.queue.training import steps
from recorder.states import GroupState, StepState, VersionState
from recorder.store import ledger
from recorder.views.trajectories import transcripts
from tests.stores import Stores
from tests.trainer.step.tinker.conftest import settings_of
from tests.trainer.tinker_server import KEY, Fault, TinkerServer
from tests.trainer.world import World
from trainer.errors import TinkerRefused, TinkerUnavailable, TinkerUnsupported, TrainerError
from trainer.step.alias_trainer import AliasTrainer
from trainer.step.state.engine_facts import EngineFacts


@pytest.fixture
async def world(tmp_path: Path, tiny_base: Path, stores: Stores) -> AsyncIterator[World]:
    """A store whose runs were sampled at temperature 1."""
    data = tmp_path / "data"
    with stores.made(data) as settings:
        async with World.opened(data, tiny_base, settings) as opened:
            opened.temperature = 1.0
            yield opened


async def open_trainer(world: World, service: TinkerServer, share: str = "split", **changes: Any) -> AliasTrainer:
    settings = settings_of(world.base, service.url, token_budget=256, **changes)
    return await AliasTrainer.open(world.store, world.alias, settings, world.data, EngineFacts(share=share))


async def test_two_versions_are_trained_and_promoted(world: World, service: TinkerServer) -> None:
    for number in (1, 2):
        for name in ("a", "b"):
            await world.group(f"{name}{number}", [1.0, 0.0, 0.5, 0.0], seed=10 * number + (name == "b"))
        async with await open_trainer(world, service) as trainer:
            assert "computes each row whole and twice" in (trainer.target_note or "")
            report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        assert report.version.name == f"org/helpdesk@{number}"
        assert report.version.state is VersionState.WRITTEN
        assert report.metrics["logprob_gap"] < 1e-5
        assert report.metrics["optimizer_fresh"] == 0.0
        await world.promote(report.version)
    assert len(service.checkpoints) == 2
    assert not service.sessions  # each was ended


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault("optim_step", 403, KEY), TinkerRefused),
        (Fault("retrieve_future", 404, KEY), TinkerUnavailable),
    ],
    ids=["refused", "lost"],
)
async def test_groups_of_a_step_that_the_service_failed_return_without_a_count(
    fault: Fault, kind: type[TrainerError], world: World, service: TinkerServer
) -> None:
    ids = [await world.group(name, [1.0, 0.0], seed=seed) for seed, name in enumerate("ab")]
    async with await open_trainer(world, service, max_tries=1) as trainer:
        service.faults.append(fault)
        with pytest.raises(kind):
            await trainer.train_once(await world.claim(trainer))
        for id_ in ids:
            assert (await transcripts.load_group(world.store, id_)).state is GroupState.SCORED
            assert not await ledger.object_entries(world.store, "group", id_)
        (step,) = await steps.list_steps(world.store, world.alias.id)
        assert step.state is StepState.ABANDONED
        report = await trainer.train_once(await world.claim(trainer))  # in a new session
    assert report.version is not None
    async with world.store.read() as conn:
        reasons = (await conn.execute(text("SELECT * FROM steps"))).all()
    assert KEY not in repr(reasons)


async def test_rows_of_another_temperature_stop_the_step_and_return(world: World, service: TinkerServer) -> None:
    world.temperature = 0.8
    id_ = await world.group("a", [1.0, 0.0])
    async with await open_trainer(world, service) as trainer:
        with pytest.raises(TinkerUnsupported, match="temperature"):
            await trainer.train_once(await world.claim(trainer))
    assert (await transcripts.load_group(world.store, id_)).state is GroupState.SCORED


async def test_a_shared_gpu_is_refused_when_the_trainer_opens(world: World, service: TinkerServer) -> None:
    with pytest.raises(TinkerUnsupported, match=r"engine\.share"):
        await open_trainer(world, service, share="sleep")
    assert not service.requests

"""A trainer that shares its GPU: it computes only while the engine is asleep for it, and gives the GPU back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from recorder.queue import leases
from recorder.queue.leases import CONTROLLER, GPU, acquire_lease
from recorder.queue.training import gpu_pauses
from recorder.registry.replicas import report_replica
from recorder.states import GroupState
from recorder.store.changes import Topic
from recorder.store.database import Project
from tests.proxy.until import until
from tests.trainer.plain_settings import PLAIN
from tests.trainer.step.left import group_state
from tests.trainer.world import PROJECT, World
from trainer.errors import StepFailed
from trainer.settings import TrainerSettings
from trainer.step.alias_trainer import AliasTrainer
from trainer.step.core import TrainerCore
from trainer.step.state.engine_facts import EngineFacts

URL = "http://127.0.0.1:8701"


class Controller:
    """Does what the controller does: it lets each holder of the GPU in, once the engine is asleep."""

    def __init__(self, world: World) -> None:
        self.project = Project(world.store, PROJECT)
        self.epochs: list[int] = []
        self.may_sleep = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        own = await acquire_lease(self.project, CONTROLLER, "proxy", 60)
        assert own is not None
        await report_replica(self.project, URL, state="up")
        task = asyncio.create_task(self._run(own))
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _run(self, own: leases.Lease) -> None:
        with self.project.store.watch.on(Topic.LEASES) as news:
            while True:
                await self.may_sleep.wait()
                found = await leases.find_lease(self.project, GPU)
                if found is not None and found[0].epoch not in self.epochs:
                    self.epochs.append(found[0].epoch)
                    await gpu_pauses.record_asleep(self.project, URL, found[0], by=own, began_at=0.0, free_mib=None)
                    await report_replica(self.project, URL, state="asleep")
                await news.wait(0.05)


@pytest.fixture
def moves(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the trainer does on the GPU, in order."""
    done: list[str] = []

    def noted(name: str) -> None:
        method = getattr(TrainerCore, name)

        def noting(self: TrainerCore, *args: Any, **named: Any) -> Any:
            done.append(name)
            return method(self, *args, **named)

        monkeypatch.setattr(TrainerCore, name, noting)

    for name in ("__init__", "enter_gpu", "step", "leave_gpu"):
        noted(name)
    return done


async def open_trainer(world: World, **settings: Any) -> AliasTrainer:
    given = {"base": str(world.base), "device": "cpu", "rank": 4, "alpha": 8.0, "lr": 1e-2, "token_budget": 256}
    own, facts = TrainerSettings(**PLAIN, **given | settings), EngineFacts(share="sleep")
    return await AliasTrainer.open(world.store, world.alias, own, world.data, facts)


async def test_a_step_waits_for_the_engine_and_gives_the_gpu_back(world: World, moves: list[str]) -> None:
    controller = Controller(world)
    async with controller.running():
        opening = asyncio.ensure_future(open_trainer(world))
        await until(lambda: _holds_gpu(controller.project))
        assert moves == []  # nothing is on the device before the engine is asleep
        controller.may_sleep.set()
        async with await opening as trainer:
            assert moves == ["__init__", "leave_gpu"]
            assert await leases.find_lease(controller.project, GPU) is None
            await world.group("g1", [1.0, 0.0])
            controller.may_sleep.clear()
            training = asyncio.ensure_future(trainer.train_once(await world.claim(trainer)))
            await until(lambda: _holds_gpu(controller.project))
            assert moves == ["__init__", "leave_gpu"]
            controller.may_sleep.set()
            report = await training
            assert report.version is not None
            assert moves == ["__init__", "leave_gpu", "enter_gpu", "step", "leave_gpu"]
            assert await leases.find_lease(controller.project, GPU) is None
            assert len(controller.epochs) == 2


async def test_a_step_without_the_gpu_makes_no_version_and_gives_its_groups_back(
    world: World, moves: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(world)
    controller.may_sleep.set()
    async with controller.running(), await open_trainer(world, lease_s=0.3) as trainer:
        group_id = await world.group("g1", [1.0, 0.0])
        step = TrainerCore.step

        def step_after_loss(self: TrainerCore, *args: Any) -> Any:
            lost = trainer._gpu._renewer
            assert lost is not None
            asyncio.run_coroutine_threadsafe(leases.release_lease(world.store, lost.lease), loop).result()
            assert lost.lost.wait(10)
            return step(self, *args)

        loop = asyncio.get_running_loop()
        monkeypatch.setattr(TrainerCore, "step", step_after_loss)
        with pytest.raises(StepFailed, match="lease on the GPU was lost"):
            await trainer.train_once(await world.claim(trainer))
        assert moves[-1] == "leave_gpu"
        assert await group_state(world, group_id) == (GroupState.SCORED, None)


async def test_a_trainer_that_cannot_leave_keeps_the_lease(
    world: World, moves: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    controller = Controller(world)
    controller.may_sleep.set()

    def fails(_self: TrainerCore) -> None:
        raise RuntimeError("CUDA error: an illegal memory access")

    monkeypatch.setattr(TrainerCore, "leave_gpu", fails)
    async with controller.running():
        with pytest.raises(RuntimeError, match="illegal memory access"):
            await open_trainer(world)
        assert moves == ["__init__"]
        assert await _holds_gpu(controller.project)


async def test_a_trainer_with_a_gpu_of_its_own_takes_no_lease(world: World, moves: list[str]) -> None:
    async with await world.trainer() as trainer:
        await world.group("g1", [1.0, 0.0])
        await trainer.train_once(await world.claim(trainer))
    assert moves == ["__init__", "step"]
    assert not await _holds_gpu(Project(world.store, PROJECT))


async def _holds_gpu(project: Project) -> bool:
    return await leases.find_lease(project, GPU) is not None

"""The running engine tries an adapter before any version is made, and what it refuses is never trained."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from proxy.versions.verification import verify_adapter
from recorder.queue import leases
from recorder.queue.training import adapter_trials
from recorder.queue.training.adapter_trials import AdapterTrial
from recorder.registry import replicas
from recorder.states import GroupState
from recorder.store.database import Project
from tests.trainer.step.left import codes, folders, group_state
from tests.trainer.world import PROJECT, World
from trainer.errors import UnsupportedModel
from trainer.step import engine_trial
from trainer.step.state.torch_thread import TorchThread

pytestmark = pytest.mark.slow

Answer = Callable[[AdapterTrial], Awaitable[str | None]]


async def accept(trial: AdapterTrial) -> str | None:
    return None


async def refuse(trial: AdapterTrial) -> str | None:
    return "LoRA rank 4 is greater than max_lora_rank 2."


async def engine_up(world: World, state: Any = "up") -> None:
    await replicas.report_replica(Project(world.store, PROJECT), "http://engine", state=state)


@asynccontextmanager
async def proxy(world: World, answer: Answer = accept, *, up: bool = True) -> AsyncIterator[list[AdapterTrial]]:
    """A proxy's controller that answers trials, and an engine; gives what was tried."""
    project, tried = Project(world.store, PROJECT), list[AdapterTrial]()
    lease = await leases.acquire_lease(project, leases.CONTROLLER, "proxy", 60)
    assert lease is not None
    if up:
        await engine_up(world)

    async def control() -> None:
        while True:
            for trial in await adapter_trials.list_offered_trials(project):
                tried.append(trial)
                await adapter_trials.answer_trial(world.store, trial.id, await answer(trial))
            await asyncio.sleep(0.02)

    task = asyncio.create_task(control())
    try:
        yield tried
    finally:
        task.cancel()
        ends = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ends[0], asyncio.CancelledError), ends
        await leases.release_lease(world.store, lease)


async def find(world: World) -> AdapterTrial | None:
    return await adapter_trials.find_trial(world.store, world.alias.id)


async def has_no_folders(world: World) -> bool:
    return folders(world) == []


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(20):
        while not await holds():
            await asyncio.sleep(0.02)


async def test_an_adapter_as_a_step_would_write_it_is_tried_once_and_removed(world: World) -> None:
    async def check(trial: AdapterTrial) -> str | None:
        assert trial.path is not None
        folder = Path(trial.path)
        verify_adapter(folder, manifest_sha256=trial.manifest_sha256, max_rank=4, base_shapes=None)
        assert json.loads((folder / "adapter_config.json").read_text())["r"] == 4
        assert trial.engine_name == folder.name
        assert folder.name.startswith("org-helpdesk@trial-")
        assert folder.parent == world.data.resolve() / "adapters"
        return None

    await world.group("g1", [1.0, 0.0])
    async with proxy(world, check) as tried, await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        assert folders(world) == [report.version.engine_name]
        assert len(tried) == 1
    assert await find(world) is None


async def test_where_the_engine_refuses_it_no_step_begins_and_no_group_is_blamed(world: World) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    async with proxy(world, refuse) as tried, await world.trainer(max_tries=1) as trainer:
        for _ in range(2):
            with pytest.raises(UnsupportedModel, match=r"refuses adapters .*max_lora_rank 2.*trainer\.rank"):
                await trainer.train_once(await world.claim(trainer))
        assert await group_state(world, group_id) == (GroupState.SCORED, None)
        assert await codes(world, "group", group_id) == []
        await until(lambda: has_no_folders(world))  # removed after the answer, beside the step
        assert len(tried) == 1
        with pytest.raises(UnsupportedModel):
            await engine_trial.require_accepted(world.store, world.alias)
    assert await find(world) is None
    assert await engine_trial.require_accepted(world.store, world.alias) is None


async def test_without_an_engine_nothing_waits_and_nothing_is_published(world: World) -> None:
    await world.group("g1", [1.0, 0.0])
    async with await world.trainer() as trainer:
        await until(lambda: has_no_folders(world))  # removed after the answer, beside the step
        assert (await trainer.train_once(await world.claim(trainer))).version is not None
        assert len(folders(world)) == 1


async def test_an_engine_that_comes_up_later_tries_it_then(world: World) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    async with proxy(world, refuse, up=False) as tried, await world.trainer() as trainer:
        await engine_up(world, "starting")
        await asyncio.sleep(0.3)
        assert tried == []
        await engine_up(world)
        with pytest.raises(UnsupportedModel):
            await trainer.train_once(await world.claim(trainer))
        assert len(tried) == 1
    assert (await group_state(world, group_id))[0] == GroupState.SCORED


async def test_an_engine_that_does_not_answer_is_waited_for_once(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(engine_trial, "WAIT_S", 0.2)
    await world.group("g1", [1.0, 0.0])
    await leases.acquire_lease(Project(world.store, PROJECT), leases.CONTROLLER, "proxy", 60)
    await engine_up(world)
    async with await world.trainer() as trainer:
        first = await trainer.train_once(await world.claim(trainer))
        assert first.version is not None
        await world.promote(first.version)
        await world.group("g2", [1.0, 0.0], seed=2)
        assert (await trainer.train_once(await world.claim(trainer))).version is not None
    assert len([one for one in caplog.messages if "has not tried an adapter" in one]) == 1
    assert not [name for name in folders(world) if "@trial-" in name]


async def test_what_a_killed_trainer_left_is_gone_after_the_next_opening(world: World) -> None:
    project = Project(world.store, PROJECT)
    old = await adapter_trials.begin_trial(project, world.alias.id)
    left = world.data / "adapters" / "org-helpdesk@trial-0123456789ab"
    left.mkdir(parents=True)
    await adapter_trials.offer_trial(world.store, old, engine_name=left.name, path=str(left), manifest_sha256="0" * 64)
    await adapter_trials.answer_trial(world.store, old, "of other settings")
    await world.group("g1", [1.0, 0.0])
    async with proxy(world), await world.trainer() as trainer:
        assert (await trainer.train_once(await world.claim(trainer))).version is not None
    assert not left.exists()


async def test_a_trainer_that_ends_while_its_adapter_is_tried_leaves_nothing(world: World) -> None:
    reached = asyncio.Event()

    async def never(trial: AdapterTrial) -> str | None:
        reached.set()
        await asyncio.Event().wait()
        return None

    async with proxy(world, never):
        async with await world.trainer():
            await reached.wait()
            assert len(folders(world)) == 1
        await until(lambda: has_no_folders(world))  # removed after the answer, beside the step
        assert await find(world) is None


async def test_a_step_that_is_cancelled_stops_although_an_adapter_waits_to_be_published(world: World) -> None:
    """Both need torch's thread, and what comes later must not take back the request to stop."""
    torch, began, ended = TorchThread(), asyncio.Event(), list[bool]()
    loop = asyncio.get_running_loop()

    def work() -> None:
        loop.call_soon_threadsafe(began.set)
        for _ in range(2000):
            if torch.stopped():
                ended.append(True)
                return
            time.sleep(0.005)

    step = asyncio.create_task(torch.run(work))
    await began.wait()
    step.cancel()
    other = asyncio.create_task(torch.run(lambda: 7))
    assert await other == 7
    await asyncio.gather(step, return_exceptions=True)
    assert ended == [True]
    await torch.close()

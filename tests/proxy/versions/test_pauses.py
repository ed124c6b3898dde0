"""Engines pause while a trainer holds the GPU, and wake once its memory is free, whoever is killed meanwhile."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from recorder.errors import LeaseLost
from recorder.queue import leases
from recorder.queue.leases import GPU, Lease, acquire_lease, holder_name, release_lease
from recorder.queue.training import gpu_pauses
from recorder.registry.replicas import list_replicas
from recorder.states import VersionState
from recorder.store.database import Project, Store
from recorder.store.ledger import latest_entries
from tests.proxy.controlled import World, controlled, hurry, up
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.sleep_stand_in import SleepStandIn
from tests.proxy.until import until

FOR_S = 60.0
ORDER = {
    "cache": ["/sleep?level=0&mode=keep", "/release_kv_cache_memory"],
    "sleep": ["/sleep?level=1&mode=keep"],
}
WAKING = {"cache": ["/wake_up?tags=kv_cache"], "sleep": ["/wake_up"]}


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    hurry(monkeypatch)


class SharedGpu:
    """A controlled engine that plays a GPU, and what a trainer does to its lease."""

    def __init__(self, world: World, sleep: SleepStandIn) -> None:
        self.world = world
        self.sleep = sleep
        self.project = Project(world.store, "default")

    async def take(self, owner: str | None = None, lease_s: float = FOR_S) -> Lease:
        """Take the GPU, and wait until the engine is asleep for it."""
        lease = await acquire_lease(self.project, GPU, owner or holder_name(), lease_s, take_expired=False)
        assert lease is not None
        await until(lambda: self._allowed(lease))
        return lease

    async def _allowed(self, lease: Lease) -> bool:
        return not await gpu_pauses.list_awake_engines(self.project, lease)

    async def state(self) -> str:
        [row] = await list_replicas(self.project)
        return row.state

    async def detail(self) -> str:
        [row] = await list_replicas(self.project)
        return row.detail or ""

    async def wakes(self) -> None:
        await until(lambda: up(self.world) and not self.sleep.is_paused)
        await until(self._is_up)

    async def _is_up(self) -> bool:
        return await self.state() == "up"


@asynccontextmanager
async def sharing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: str = "sleep", **engine_fields: Any
) -> AsyncIterator[SharedGpu]:
    """A proxy before an engine that shares its GPU."""
    engine, sleep = ScriptedEngine(), SleepStandIn()
    engine.sleep = sleep
    _play_driver(monkeypatch, sleep)
    await engine.start()
    try:
        async with controlled(store, tmp_path, engine, share=share, device="cuda", **engine_fields) as world:
            await until(lambda: up(world))
            yield SharedGpu(world, sleep)
    finally:
        await engine.stop()


def _play_driver(monkeypatch: pytest.MonkeyPatch, sleep: SleepStandIn) -> None:
    monkeypatch.setattr("proxy.versions.pauses.free_gpu_mib", lambda _gpus: sleep.free_mib)


def ended_process() -> str:
    """The name of a holder whose process has ended."""
    done = subprocess.Popen([sys.executable, "-c", ""])
    done.wait()
    return f"{socket.gethostname()}:{done.pid}:dead"


@pytest.mark.parametrize("share", ["cache", "sleep"])
async def test_an_engine_sleeps_while_a_trainer_holds_the_gpu(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: str
) -> None:
    async with sharing(store, tmp_path, monkeypatch, share) as gpu:
        version = await gpu.world.live()
        free_before = gpu.sleep.free_mib[0]
        lease = await gpu.take()
        assert gpu.sleep.asked == ORDER[share]
        assert gpu.sleep.free_mib[0] > free_before
        await until(lambda: gpu.world.versions.is_asleep(gpu.world.engine.url))
        assert "a trainer uses its GPU" in await gpu.detail()
        route = gpu.world.versions.route(await gpu.world.alias())
        assert route.engine_model == version.engine_name  # calls are sent, and wait in the engine
        await gpu.world.rounds(2)
        assert gpu.sleep.asked == ORDER[share]  # once is enough

        gpu.sleep.trainer_holds = True
        written = await gpu.world.write()
        await gpu.world.rounds(2)
        assert await gpu.world.state(written) is VersionState.WRITTEN  # nothing is loaded into a sleeping engine
        gpu.sleep.trainer_holds = False
        await release_lease(gpu.world.store, lease)
        await gpu.wakes()
        assert gpu.sleep.asked == [*ORDER[share], *WAKING[share]]
        assert not gpu.sleep.died
        await gpu.world.becomes(written, VersionState.LIVE)
        [pause] = await gpu_pauses.list_pauses(gpu.project)
        assert (pause.epoch, pause.owner) == (lease.epoch, lease.owner)
        assert pause.ended_at is not None
        assert pause.ended_at >= pause.began_at


async def test_the_refill_of_the_prefix_cache_counts_as_cost(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.versions.pauses.REFILL_S", 1.0)
    async with sharing(store, tmp_path, monkeypatch) as gpu:
        gpu.sleep.queries, gpu.sleep.hits = 1000, 800  # 10 ms for each of the 200 tokens that were computed
        lease = await gpu.take()
        await release_lease(store, lease)
        await gpu.wakes()
        gpu.sleep.queries = 1500  # an emptied cache: 400 hits are missing
        await until(lambda: _has_refill(gpu))
        [pause] = await gpu_pauses.list_pauses(gpu.project)
        assert pause.refill_s == pytest.approx(4.0)
        assert pause.seconds(0) == pytest.approx((pause.ended_at or 0) - pause.began_at + 4.0)


async def test_without_sharing_no_route_for_sleeping_is_used(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(store, tmp_path, monkeypatch, "split") as gpu:
        assert await acquire_lease(gpu.project, GPU, "elsewhere", FOR_S)
        await gpu.world.rounds(3)
        assert gpu.sleep.asked == []
        assert await gpu.state() == "up"


async def test_a_killed_trainer_s_gpu_is_taken_back_at_once(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(store, tmp_path, monkeypatch) as gpu:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        lease = await gpu.take(f"{socket.gethostname()}:{process.pid}:trainer")
        gpu.sleep.trainer_holds = True
        await gpu.world.rounds(2)
        assert gpu.sleep.is_paused
        gpu.sleep.trainer_holds = False  # the driver frees what a process held when it ends
        process.kill()
        await gpu.wakes()  # long before the lease expires, and before anybody waits for the process
        process.wait()
        assert not gpu.sleep.died
        assert await leases.find_lease(gpu.project, GPU) is None
        assert lease.owner in str((await _last_row(gpu, gpu_pauses.AWAKE))["why"])


async def test_an_expired_lease_wakes_no_engine_before_the_memory_is_free(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(store, tmp_path, monkeypatch) as gpu:
        lease = await gpu.take()  # of this process, which runs
        gpu.sleep.trainer_holds = True
        await leases.renew_lease(store, lease, 0.0)
        await until(lambda: _has_expired(gpu.project))
        await until(lambda: _says(gpu, "the memory is not shown to be free"))
        await gpu.world.rounds(3)
        assert gpu.sleep.is_paused
        other = await acquire_lease(gpu.project, GPU, "another trainer", FOR_S, take_expired=False)
        assert other is None  # its memory is not free either
        gpu.sleep.trainer_holds = False
        await gpu.wakes()
        assert not gpu.sleep.died
        assert lease.owner in str((await _last_row(gpu, gpu_pauses.AWAKE))["why"])


async def test_an_engine_stays_asleep_where_no_driver_shows_the_memory(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(store, tmp_path, monkeypatch) as gpu:
        monkeypatch.setattr("proxy.versions.pauses.free_gpu_mib", lambda _gpus: None)
        await gpu.take("other-container:1:x", lease_s=0.2)
        await until(lambda: _says(gpu, "the memory is not shown to be free"))
        assert gpu.sleep.is_paused


async def test_the_next_controller_keeps_an_engine_asleep_and_wakes_it_later(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, sleep = ScriptedEngine(), SleepStandIn()
    engine.sleep = sleep
    _play_driver(monkeypatch, sleep)
    await engine.start()
    async with controlled(store, tmp_path, engine, share="sleep", device="cuda") as world:
        await until(lambda: up(world))
        lease = await SharedGpu(world, sleep).take()
    sleep.trainer_holds = True
    asked = list(sleep.asked)
    async with controlled(store, tmp_path, engine, share="sleep", device="cuda") as world:
        gpu = SharedGpu(world, sleep)
        await until(lambda: world.versions.is_asleep(engine.url))
        await world.rounds(3)
        assert sleep.asked == asked  # the trainer is in: the engine is not touched
        assert world.versions.snapshot.up()[0].loaded == ["base"]
        sleep.trainer_holds = False
        await release_lease(store, lease)
        await gpu.wakes()
        assert not sleep.died
    await engine.stop()


@pytest.mark.parametrize("share", ["cache", "sleep"])
async def test_a_controller_that_ended_within_the_protocol_is_continued(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share: str
) -> None:
    """The engine is asleep, and no row says so: whoever holds the GPU was not told, and waits."""
    async with sharing(store, tmp_path, monkeypatch, share) as gpu:

        async def ends(*_: object, **__: object) -> None:
            raise LeaseLost("on request")

        with monkeypatch.context() as broken:
            broken.setattr("proxy.versions.pauses.gpu_pauses.record_asleep", ends)
            lease = await acquire_lease(gpu.project, GPU, holder_name(), FOR_S)
            assert lease is not None
            await until(lambda: gpu.sleep.free_mib[0] > 20_000)
            assert await gpu_pauses.list_awake_engines(gpu.project, lease)
        await gpu.take(lease.owner)
        assert gpu.sleep.is_paused
        await release_lease(store, Lease("default", GPU, lease.owner, lease.epoch + 1, 0))
        await gpu.wakes()


async def test_an_engine_that_restarted_during_a_pause_sleeps_again(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(store, tmp_path, monkeypatch) as gpu:
        lease = await gpu.take()
        await gpu.world.engine.stop()
        await until(lambda: not gpu.world.versions.snapshot.up())
        await gpu.world.engine.start()
        await until(lambda: gpu.sleep.is_paused)
        await until(lambda: gpu.world.versions.is_asleep(gpu.world.engine.url))
        await release_lease(store, lease)
        await gpu.wakes()


async def test_a_second_holder_waits_for_its_own_pause(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sharing(store, tmp_path, monkeypatch) as gpu:
        first = await gpu.take("here:first:x")
        await release_lease(store, first)
        second = await acquire_lease(gpu.project, GPU, "here:second:x", FOR_S)
        assert second is not None
        assert not await gpu_pauses.is_allowed(gpu.project, gpu.world.engine.url, second.epoch)
        await until(lambda: gpu._allowed(second))
        assert gpu.sleep.is_paused
        assert {one.epoch for one in await gpu_pauses.list_pauses(gpu.project)} == {first.epoch, second.epoch}


@pytest.mark.parametrize("path", ["/sleep", "/wake_up"])
async def test_a_route_that_fails_is_tried_again_and_told(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async with sharing(store, tmp_path, monkeypatch) as gpu:
        monkeypatch.setattr("proxy.versions.pauses.RETRY_S", 0.3)
        gpu.sleep.fail_next.add(path)
        if path == "/sleep":
            lease = await acquire_lease(gpu.project, GPU, holder_name(), FOR_S)
        else:
            lease = await gpu.take()
            await release_lease(store, lease)
        await until(lambda: _says(gpu, f"answered {path} with 500: on request"))
        assert lease is not None
        if path == "/sleep":
            await until(lambda: gpu._allowed(lease))
            await release_lease(store, lease)
        await gpu.wakes()


async def test_an_engine_without_the_routes_serves_on_and_says_so(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = ScriptedEngine()
    await engine.start()
    async with controlled(store, tmp_path, engine, share="sleep", device="cuda") as world:
        await until(lambda: up(world))
        gpu = SharedGpu(world, SleepStandIn())
        await until(lambda: _says(gpu, "restart it with VLLM_SERVER_DEV_MODE=1"))
        lease = await acquire_lease(gpu.project, GPU, holder_name(), FOR_S)
        assert lease is not None
        await world.rounds(2)
        [waiting] = await gpu_pauses.list_awake_engines(gpu.project, lease)
        assert "VLLM_SERVER_DEV_MODE" in waiting
        assert await gpu.state() == "up"
    await engine.stop()


async def test_on_a_cpu_only_scheduling_stops(store: Store, tmp_path: Path) -> None:
    engine, sleep = ScriptedEngine(), SleepStandIn(on_gpu=False)
    engine.sleep = sleep
    await engine.start()
    async with controlled(store, tmp_path, engine, share="cache", device="cpu") as world:
        await until(lambda: up(world))
        gpu = SharedGpu(world, sleep)
        lease = await gpu.take()
        assert sleep.asked == ["/sleep?level=0&mode=keep"]
        await release_lease(store, lease)
        await gpu.wakes()
        assert sleep.asked[-1] == "/wake_up?tags=scheduling"
    await engine.stop()


async def _has_refill(gpu: SharedGpu) -> bool:
    return bool(await latest_entries(gpu.project, code=gpu_pauses.REFILLED))


async def _has_expired(project: Project) -> bool:
    found = await leases.find_lease(project, GPU)
    return found is not None and not found[1]


async def _says(gpu: SharedGpu, text: str) -> bool:
    return text in await gpu.detail()


async def _last_row(gpu: SharedGpu, code: str) -> dict[str, Any]:
    [row, *_] = await latest_entries(gpu.project, code=code)
    assert row.detail is not None
    return row.detail

"""What a part runs: a stand-in engine, a proxy's two workers on one port, and a store; each may fail on purpose."""

from __future__ import annotations

import asyncio
import contextlib
import json
import tempfile
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import httpx

from benchmarks.faults import engine
from benchmarks.faults.processes import FaultyProcess, command, function
from benchmarks.faults.traffic import ALIAS
from benchmarks.faults.verification import PROJECT
from benchmarks.load import free_port
from proxy.supervision.workers import reserve_port
from proxy.worker_ipc.peers import WorkerPeers
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Store
from tests.postgres import Postgres
from tests.proxy.until import until

StoreKind = Literal["sqlite", "postgresql"]
WORKERS: Final = 2
DATABASE: Final = "faults"
_CONNECT_S: Final = 0.2
_SERVED_S: Final = 60.0
# Short, so that what a dead program left comes to its end while the part still runs. No turn is served unrecorded.
RECORDER: Final[Mapping[str, float]] = {
    "answered_idle_s": 5.0, "idle_timeout_s": 10.0, "group_window_s": 1.0, "group_timeout_s": 20.0,
    "commit_timeout_s": 60.0,
}  # fmt: skip


@dataclass
class Ring:
    """All of them. `server`: the PostgreSQL server; None with SQLite. `at`: the proxy's URL, without /v1."""

    data: Path
    engine: FaultyProcess
    workers: list[FaultyProcess]
    server: Postgres | None
    at: str

    async def open_store(self) -> Store:
        """Open the store beside the workers."""
        url = None if self.server is None else self.server.url(DATABASE)
        return await open_store(self.data, RecorderSettings(url=url), migrate=True, project=PROJECT)

    async def stop_workers(self) -> None:
        """End the workers in order."""
        await asyncio.gather(*(one.stop() for one in self.workers))


@contextlib.asynccontextmanager
async def running(folder: Path, kind: StoreKind) -> AsyncIterator[Ring]:
    """Run everything in an empty folder until the block ends. Workers run as under `hone serve --workers`, with this
    process in the place of their parent.
    """
    data = folder / "data"
    data.mkdir(mode=0o700)
    port = free_port()
    async with contextlib.AsyncExitStack() as stack:
        server = Postgres(synchronous_commit="on") if kind == "postgresql" else None  # as users run it
        if server is not None:
            stack.callback(server.stop)
            server.create(DATABASE)
        model = function("engine", engine.run, (port,), folder / "engine.log", lambda: listens(port))
        stack.push_async_callback(model.stop)
        await model.start()
        config = folder / "hone.toml"
        config.write_text(_settings(f"http://127.0.0.1:{port}", server))
        shared = stack.enter_context(reserve_port("127.0.0.1", 0))
        meeting = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hone-workers-")))
        peers = WorkerPeers(meeting, 0, WORKERS)
        await stack.enter_async_context(peers.running())
        workers = [_worker(number, config, data, shared, meeting, peers) for number in range(1, WORKERS + 1)]
        ring = Ring(data, model, workers, server, f"http://127.0.0.1:{shared}")
        await (await ring.open_store()).close()  # several programs must not make it at the same time
        stack.push_async_callback(ring.stop_workers)
        await asyncio.gather(*(one.start() for one in workers))
        await _until_served(ring.at)
        yield ring


def _worker(number: int, config: Path, data: Path, port: int, meeting: Path, peers: WorkerPeers) -> FaultyProcess:
    async def ready() -> bool:
        return await peers.figures_of(number) is not None

    argv = ["serve", "--config", str(config), "--data", str(data), "--worker", str(number), "--meet", str(meeting)]
    environment = {
        "HONE_PROXY__HOST": "127.0.0.1",
        "HONE_PROXY__PORT": str(port),
        "HONE_PROXY__WORKERS": str(WORKERS),
    }
    return command(f"worker {number}", argv, environment, config.parent / f"worker-{number}.log", ready)


async def _until_served(at: str) -> None:
    """Wait until the engine is known."""
    async with httpx.AsyncClient() as http:

        async def served() -> bool:
            return (await http.get(f"{at}/readyz")).is_success

        await until(served, within_s=_SERVED_S)


async def listens(port: int) -> bool:
    """Return whether something listens on a port of this machine."""
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(_CONNECT_S):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        return True
    return False


def _settings(engine_url: str, server: Postgres | None) -> str:
    stored = {**RECORDER} if server is None else {**RECORDER, "url": server.url(DATABASE)}
    lines = [f"{name} = {json.dumps(value)}" for name, value in stored.items()]
    alias = [f"[aliases.{ALIAS}]", 'base_model = "base"']
    return "\n".join(["[recorder]", *lines, "[engine]", f'urls = ["{engine_url}"]', *alias, ""])

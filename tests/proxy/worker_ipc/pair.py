"""Two workers of one proxy in this process, each on a port of its own, so that a test says which one it asks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from proxy.settings.mcp import McpServerSettings
from proxy.worker_ipc.peers import WorkerPeers
from recorder.queue.leases import PROXY, holder_name, keep_presence
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving


@asynccontextmanager
async def worker(
    store: Store,
    engine: FakeEngine,
    meeting: Path,
    number: int,
    *,
    mcp: Mapping[str, McpServerSettings] | None = None,
) -> AsyncIterator[Proxy]:
    """One of two, until the block ends."""
    process = holder_name()
    async with (
        keep_presence(Project(store, PROJECT), PROXY, process, 60),
        serving(store, engine, mcp=mcp, process=process, peers=WorkerPeers(meeting, number, 2)) as proxy,
    ):
        yield proxy


@asynccontextmanager
async def both(
    store: Store, engine: FakeEngine, meeting: Path, *, mcp: Mapping[str, McpServerSettings] | None = None
) -> AsyncIterator[tuple[Proxy, Proxy]]:
    """Both, until the block ends."""
    async with AsyncExitStack() as stack:
        one, two = [
            await stack.enter_async_context(worker(store, engine, meeting, number, mcp=mcp)) for number in (1, 2)
        ]
        yield one, two

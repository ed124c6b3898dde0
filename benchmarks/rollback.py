"""How soon `hone rollback` takes effect: several proxies on one store, before a static upstream, and the command.

All proxies receive requests all the time. Reported is the time from the rollback's timestamp in the store to the first
request that went to the previous version, as all later ones did, on the slower proxy. Requests to a proxy follow each
other by about 15 ms, so the figure is up to 15 ms too large and never too small. The command's own time is reported
separately; most of it is Python's start. No engine takes part: a version that is rolled back to is loaded already.

    python -m benchmarks.rollback [--rounds 20] [--proxies 2] [--store postgres] [--save]

A PostgreSQL server is started for it, with full durability.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx

from benchmarks import load
from benchmarks.proxy import run_proxy
from recorder.registry.alias_moves import set_live
from recorder.registry.aliases import AliasView, get_alias
from recorder.registry.moves import list_moves
from recorder.registry.replicas import report_replica
from recorder.registry.versions import VersionView, allocate_version, mark_version
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from tests.postgres import Postgres
from tests.stores import stored_in

RESULTS: Final = Path(__file__).parent / "results"
ROOT: Final = Path(__file__).parent.parent
PROJECT: Final = "default"
PROMISED_S: Final = 0.25
EVERY_S: Final = 0.005  # between two requests to a proxy
SETTLE_S: Final = 1.0  # seconds of requests after a rollback


@dataclass
class Asker:
    """One user of one proxy: the time of each request (unix seconds), and the version that answered."""

    port: int
    asked: list[tuple[float, str]] = field(default_factory=list)
    _awaited: tuple[str, asyncio.Event] = field(default_factory=lambda: ("", asyncio.Event()))

    async def run(self) -> None:
        """Send requests until cancelled."""
        body = {"model": "bench", "messages": [{"role": "user", "content": "Where is my order?"}]}
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{self.port}", timeout=60) as http:
            while True:
                sent = time.time()
                answer = await http.post("/v1/chat/completions", json=body, headers={"x-hone-purpose": "none"})
                version = answer.raise_for_status().headers["x-hone-version"]
                self.asked.append((sent, version))
                if version == self._awaited[0]:
                    self._awaited[1].set()
                await asyncio.sleep(EVERY_S)

    async def answers(self, version: str) -> None:
        """Wait until `version` answers a request."""
        self._awaited = version, asyncio.Event()
        async with asyncio.timeout(60):
            await self._awaited[1].wait()

    def left_after_s(self, version: str, at: float) -> float:
        """Return the seconds from `at` to the first request after the last one that `version` answered.

        Infinite if no request followed.
        """
        last = max(sent for sent, name in self.asked if name == version)
        return min([sent - at for sent, _ in self.asked if sent > max(last, at)], default=inf)


@asynccontextmanager
async def asking(ports: list[int]) -> AsyncIterator[list[Asker]]:
    """Run one user for each proxy."""
    askers = [Asker(port) for port in ports]
    tasks = [asyncio.create_task(asker.run()) for asker in askers]
    yield askers
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    failed = [error for error in ended if isinstance(error, Exception)]
    if failed:
        raise failed[0]


async def gated(store: Store, alias: AliasView, upstream_port: int) -> VersionView:
    """Write a version that the static upstream lists, and that passed its gate."""
    assert alias.live_version_id is not None
    version = await allocate_version(store, alias.id, alias.live_version_id)
    for state in (VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED):
        version = await mark_version(store, version.id, state)
    url, held = f"http://127.0.0.1:{upstream_port}", ["bench", version.engine_name]
    await report_replica(
        Project(store, PROJECT), url, base_model="bench", base_fingerprint="f", state="up", loaded=held
    )
    return version


async def measure(
    data: Path, recording: RecorderSettings, ports: list[int], upstream_port: int, rounds: int
) -> dict[str, Any]:
    """Promote and roll back repeatedly."""
    store = await open_store(data, recording, migrate=False)
    version = await gated(store, await get_alias(Project(store, PROJECT), "bench"), upstream_port)
    left_s: list[list[float]] = []
    command_s: list[float] = []
    for _ in range(rounds):
        await set_live(store, version.alias_id, version.id, why="promote")
        async with asking(ports) as askers:
            await asyncio.gather(*(asker.answers(version.name) for asker in askers))
            command_s.append(await roll_back(data, recording))
            await asyncio.sleep(SETTLE_S)
        at = (await list_moves(Project(store, PROJECT), limit=1))[0].at
        left_s.append([asker.left_after_s(version.name, at) for asker in askers])
        if inf in left_s[-1]:
            raise SystemExit(f"a proxy still answers as {version.name}, {SETTLE_S} s after its rollback")
    await store.close()
    slowest = sorted(max(each) for each in left_s)
    return {
        "proxies": len(ports),
        "rounds": rounds,
        "in_service_ms": {
            "median": round(1000 * median(slowest)),
            "p95": round(1000 * slowest[int(len(slowest) * 0.95)]),
            "max": round(1000 * slowest[-1]),
        },
        "within_250_ms": sum(one <= PROMISED_S for one in slowest),
        "command_ms": round(1000 * median(command_s)),
    }


async def roll_back(data: Path, recording: RecorderSettings) -> float:
    """Run the command; return its duration."""
    command = [sys.executable, "-m", "proxy.cli", "rollback", "bench", "--data", str(data)]
    began = time.perf_counter()
    env = os.environ | stored_in(recording)
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, cwd=ROOT, env=env)
    return time.perf_counter() - began


@contextmanager
def stored(kind: str) -> Iterator[RecorderSettings]:
    """Yield an empty store of this kind."""
    if kind == "sqlite":
        yield RecorderSettings()
        return
    server = Postgres(synchronous_commit="on", fsync="on", full_page_writes="on", autovacuum="on")
    try:
        server.create("bench")
        yield RecorderSettings(url=server.url("bench"))
    finally:
        server.stop()


def main() -> None:
    """Measure and print; with `--save`, save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--proxies", type=int, default=2)
    parser.add_argument("--store", choices=("sqlite", "postgres"), default="sqlite")
    parser.add_argument("--save", action="store_true", help="write results/rollback.json, or rollback-postgres.json")
    asked = parser.parse_args()
    about = {"machine": load.machine(), "store": asked.store}
    with tempfile.TemporaryDirectory() as folder, ExitStack() as running:
        data, upstream_port = Path(folder) / "data", load.free_port()
        running.enter_context(load.child(load.run_upstream, upstream_port))
        recording = running.enter_context(stored(asked.store))
        ports = [load.free_port() for _ in range(asked.proxies)]
        for port in ports:
            running.enter_context(load.child(run_proxy, port, upstream_port, str(data), False, recording.url))
        found = about | asyncio.run(measure(data, recording, ports, upstream_port, asked.rounds))
    text = json.dumps(found, indent=1)
    print(text)
    if asked.save:
        of_store = "" if asked.store == "sqlite" else f"-{asked.store}"
        (RESULTS / f"rollback{of_store}.json").write_text(text + "\n")


if __name__ == "__main__":
    main()

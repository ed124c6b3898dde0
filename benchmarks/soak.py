"""Hone for a long time while everything is killed: traffic, a judge, a learner, a proxy and an engine, on real parts.

`hone up` runs completely: a real vLLM with the demo's tiny model, the proxy, the judge before a scripted judge model,
the learner with the real trainer. Agents with tools ask the demo's questions, wave after wave, while the proxy is
ready. Each wave asks about other orders, and every cache is small (benchmarks/small_caches): it is full and evicts, as
after days. Every few seconds one of the four programs is killed with `kill -9` and restarts by itself, at intervals
that let it spend most of its time at work. Meanwhile memory, open files, the store's log, adapters on disk and loaded
adapters are sampled. At the end everything is stopped, and `hone db check` checks the store. Reported, and written to
summary.json: each figure early, late and at its maximum. Fails if a figure grew, an invariant of the store is broken,
or nothing was learned.

    python -m benchmarks.soak --minutes 60 [--out build/soak] [--save]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

import httpx
import psutil
from openai import OpenAIError

from benchmarks.load import machine
from benchmarks.swaps import violations
from examples.helpdesk import agent
from examples.helpdesk.orders import read_database
from examples.helpdesk.surroundings import surroundings
from examples.live.users import Task
from recorder.settings import RecorderSettings
from tests.e2e.conftest import CONFIG, ROOT, Stack, wait_for

RESULTS: Final = Path(__file__).parent / "results" / "soak.json"
# How many seconds a program lives on average: an engine takes most of a minute to start, a learner to import torch.
LIVES_S: Final = {"engine": 300.0, "proxy": 60.0, "judge": 60.0, "learn": 90.0}
KEEP: Final = 4  # versions
MAX_LORAS: Final = 4  # the engine's default
ORDERS, ATTEMPTS = 4, 4  # of a wave
SMALL_CACHES: Final = ROOT / "benchmarks" / "small_caches"
SAMPLE_EVERY_S: Final = 5.0
SETTLE_S: Final = 75.0  # longer than any lease, so that the work of the last killed program is taken over
SETTINGS: Final = CONFIG.replace("[aliases.helpdesk]", '[aliases.helpdesk]\npromote = "auto"')
ENVIRONMENT: Final = {
    "HONE_RECORDER__GROUP_WINDOW_S": "1",
    "HONE_RECORDER__IDLE_TIMEOUT_S": "20",  # a trajectory whose agent met a dead proxy ends
    "HONE_RECORDER__GROUP_TIMEOUT_S": "30",
    "HONE_TRAINER__MIN_GROUPS": "1",
    "HONE_TRAINER__KEEP_VERSIONS": str(KEEP),
}
# How much a figure's late median may exceed its early one: a factor, and an amount that is always allowed.
MAY_GROW: Final = {
    "memory_mb": (1.25, 200.0),
    "open_files": (1.25, 50.0),
    "wal_mb": (1.5, 16.0),
    "adapters_on_disk": (1.0, KEEP + MAX_LORAS),
    "checkpoints_on_disk": (1.0, KEEP + MAX_LORAS),
    "adapters_loaded": (1.0, MAX_LORAS),
}


@dataclass
class Soak:
    """The running programs, the kills, and the sampled figures."""

    stack: Stack
    orders: Sequence[str]
    up: psutil.Process
    over: asyncio.Event = field(default_factory=asyncio.Event)
    asked: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    samples: list[dict[str, float]] = field(default_factory=list)

    async def traffic(self) -> None:
        """Run waves of trajectories, each order several times at once. Requests to a dead proxy fail."""
        for wave in itertools.count():
            while not (self.over.is_set() or await self._ready()):
                await self._passes(0.5)
            if self.over.is_set():
                return
            runs = [
                Task(f"{wave}-{order}-{n}", f"Where is my order {order}?", f"{self._at(wave, order, n)}/v1")
                for order in itertools.islice(itertools.cycle(self.orders), ORDERS * wave, ORDERS * (wave + 1))
                for n in range(ATTEMPTS)
            ]
            await asyncio.gather(*map(self._one, runs))
            await asyncio.sleep(0.5)  # a wave that fails at once must not cause a flood of requests

    def _at(self, wave: int, order: str, n: int) -> str:
        return f"{self.stack.proxy_url}/g/{wave}-{order}/t/{n}"

    async def _one(self, run: Task) -> None:
        try:
            await agent.run(run)
            async with httpx.AsyncClient(timeout=30) as http:
                address = run.base_url.removesuffix("/v1")
                (await http.post(f"{address}/hone/v1/done", json={})).raise_for_status()
        except (OpenAIError, httpx.HTTPError, ConnectionError):
            self.asked["failed"] += 1
        else:
            self.asked["answered"] += 1

    async def _ready(self) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            async with httpx.AsyncClient(timeout=10) as http:
                return (await http.get(f"{self.stack.proxy_url}/readyz")).is_success
        return False

    async def kills(self, name: str, every_s: float, chance: random.Random) -> None:
        """Kill a program repeatedly; the process in run.json is only its parent."""
        while not await self._passes(chance.uniform(0.5, 1.5) * every_s):
            with contextlib.suppress(psutil.NoSuchProcess, KeyError, OSError, ValueError):
                for child in psutil.Process(self.stack.pid(name)).children():
                    child.send_signal(signal.SIGKILL)
                self.killed[name] += 1

    async def sampling(self) -> None:
        """Sample all figures repeatedly."""
        while not await self._passes(SAMPLE_EVERY_S):
            self.samples.append(await self._sample())

    async def _sample(self) -> dict[str, float]:
        data = self.stack.data
        wal = data / "hone.db-wal"
        programs = []
        for process in self.up.children(recursive=True):
            with contextlib.suppress(psutil.Error):
                programs.append((process.memory_info().rss, process.num_fds()))
        return {
            "memory_mb": sum(rss for rss, _ in programs) / 2**20,
            "open_files": float(sum(files for _, files in programs)),
            "wal_mb": wal.stat().st_size / 2**20 if wal.exists() else 0.0,
            "adapters_on_disk": _folders(data / "adapters"),
            "checkpoints_on_disk": _folders(data / "checkpoints"),
            "adapters_loaded": await self._loaded(),
        }

    async def _loaded(self) -> float:
        """Return how many adapters the engine holds; None while it is down."""
        with contextlib.suppress(httpx.HTTPError, ValueError, KeyError, OSError):
            run, key = self.stack.run_file(), (self.stack.data / "engine.key").read_text().strip()
            async with httpx.AsyncClient(timeout=10) as http:
                answer = await http.get(f"{run['engine_url']}/v1/models", headers={"authorization": f"Bearer {key}"})
                return float(sum("@" in model["id"] for model in answer.json()["data"]))
        return 0.0

    async def _passes(self, seconds: float) -> bool:
        """Whether the soak ends within this many seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.over.wait()
        return self.over.is_set()


def _folders(parent: Path) -> float:
    return float(sum(1 for one in parent.iterdir() if one.is_dir())) if parent.is_dir() else 0.0


@contextlib.contextmanager
def running(data: Path) -> Iterator[Soak]:
    """Run everything until the block ends."""
    data.mkdir(parents=True)
    config, log = data / "hone.toml", data / "up.log"
    config.write_text(SETTINGS)
    with surroundings(data) as (files, found), log.open("wb") as out:
        os.environ["HELPDESK_MCP_URL"] = found["HELPDESK_MCP_URL"]
        environment = os.environ | found | ENVIRONMENT | {"PYTHONPATH": f"{SMALL_CACHES}{os.pathsep}{ROOT}"}
        command = [sys.executable, "-m", "proxy.cli", "up", "--data", str(data), "--config", str(config)]
        up = subprocess.Popen(command, stdout=out, stderr=out, env=environment, cwd=ROOT)
        try:
            wait_for("hone up", lambda: up.poll() is not None or "Ready" in log.read_text())
            if up.poll() is not None:
                raise SystemExit(log.read_text())
            orders = [order.order_id for order in read_database(files.database).train]
            url = f"http://127.0.0.1:{found['HONE_PROXY__PORT']}"
            yield Soak(Stack(data, config, url, "", "", RecorderSettings()), orders, psutil.Process(up.pid))
        finally:
            up.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                up.wait(90)
            up.kill()
            up.wait()


async def soak(one: Soak, minutes: float, times: float) -> None:
    """Run traffic and kills for this long, then wait until all interrupted work is taken over."""
    watching = asyncio.create_task(one.sampling())
    trouble = Soak(one.stack, one.orders, one.up, asked=one.asked, killed=one.killed)
    troubling = [
        asyncio.create_task(trouble.traffic()),
        *(
            asyncio.create_task(trouble.kills(name, times * lives_s, random.Random(name)))
            for name, lives_s in LIVES_S.items()
        ),
    ]
    await asyncio.sleep(60 * minutes)
    trouble.over.set()
    await asyncio.gather(*troubling)
    await asyncio.sleep(SETTLE_S)
    one.over.set()
    await watching


def flatness(samples: Sequence[dict[str, float]]) -> dict[str, dict[str, Any]]:
    """Return each figure early (second quarter, after warm-up) and late (last quarter), and whether it grew."""
    quarter = max(1, len(samples) // 4)
    told = {}
    for name, (factor, floor) in MAY_GROW.items():
        values = [sample[name] for sample in samples]
        early, late = median(values[quarter : 2 * quarter] or values), median(values[-quarter:])
        grew = late > max(early * factor, floor)
        told[name] = {"early": round(early, 1), "late": round(late, 1), "most": round(max(values), 1), "grew": grew}
    return told


def versions_of(stack: Stack) -> Counter[str]:
    """Return the number of versions by state."""
    return Counter(one["state"] for one in json.loads(stack.hone("versions", "--json")))


def main() -> None:
    """Run, print a table, and write summary.json. The exit status is 1 if a figure grew or an invariant is broken."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--lives", type=float, default=1.0, help=f"factor for the lifetimes of programs: {LIVES_S} s")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / f"soak-{int(time.time())}")
    asked = parser.parse_args()
    about = {"machine": machine(), "minutes": asked.minutes, "keep_versions": KEEP}
    with running(asked.out.resolve()) as one:
        asyncio.run(soak(one, asked.minutes, asked.lives))
    states = versions_of(one.stack)
    figures, broken = flatness(one.samples), violations(one.stack)
    found = {**about, "runs": one.asked, "kills": one.killed, "versions": states, "figures": figures}
    summary = json.dumps({**found, "violations": broken}, indent=1) + "\n"
    (asked.out / "summary.json").write_text(summary)
    if asked.save:
        RESULTS.write_text(summary)
    print(f"runs {dict(one.asked)}  kills {dict(one.killed)}  versions {dict(states)}")
    print(f"{'':20} {'early':>9} {'late':>9} {'most':>9}")
    for name, told in figures.items():
        print(
            f"{name:20} {told['early']:9.1f} {told['late']:9.1f} {told['most']:9.1f} {'GREW' if told['grew'] else ''}"
        )
    print(*broken or ["hone db check: no broken rule"], sep="\n")
    learned = states["retired"] + states["live"] > 1
    if broken or not learned or any(told["grew"] for told in figures.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""The kinds of faults. Each injects one, and returns when it is over: what runs next is work after the fault."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Final

from benchmarks.faults.ring import DATABASE, Ring, StoreKind

BOTH: Final = 0.2  # the share of kills that hit both workers
_AWAY_S: Final = (0.2, 3.0)  # how long something stands still or is away

Injection = Callable[[Ring, random.Random], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A fault, the stores that can have it, and how often each seed injects it.

    `title` is what the table calls it. `between_s`: the shortest and longest time of work before the next one.
    """

    title: str
    inject: Injection
    stores: Mapping[StoreKind, tuple[int, int]]  # store → (seeds, times a seed)
    between_s: tuple[float, float] = (0.05, 0.6)


async def _kill_workers(ring: Ring, chance: random.Random) -> None:
    hit = ring.workers if chance.random() < BOTH else [chance.choice(ring.workers)]
    await asyncio.gather(*(one.kill() for one in hit))
    await asyncio.gather(*(one.start() for one in hit))


async def _stop_a_worker(ring: Ring, chance: random.Random) -> None:
    """A worker stands still, as one whose machine swaps: its leases may run out."""
    hit = chance.choice(ring.workers)
    os.kill(hit.pid, signal.SIGSTOP)
    await asyncio.sleep(chance.uniform(*_AWAY_S))
    os.kill(hit.pid, signal.SIGCONT)
    await hit.until_ready()


async def _kill_engine(ring: Ring, chance: random.Random) -> None:
    await ring.engine.kill()
    await asyncio.sleep(chance.uniform(0, 1))
    await ring.engine.start()


async def _hang_engine(ring: Ring, chance: random.Random) -> None:
    os.kill(ring.engine.pid, signal.SIGSTOP)
    await asyncio.sleep(chance.uniform(*_AWAY_S))
    os.kill(ring.engine.pid, signal.SIGCONT)


async def _cut_store(ring: Ring, _: random.Random) -> None:
    assert ring.server is not None
    await asyncio.to_thread(ring.server.cut, DATABASE)


async def _hang_store(ring: Ring, chance: random.Random) -> None:
    assert ring.server is not None
    with ring.server.hung():
        await asyncio.sleep(chance.uniform(*_AWAY_S))


async def _restart_store(ring: Ring, chance: random.Random) -> None:
    assert ring.server is not None
    await asyncio.to_thread(ring.server.halt, chance.choice(["fast", "immediate"]))
    await asyncio.sleep(chance.uniform(0, 1))
    await asyncio.to_thread(ring.server.start)


KINDS: Final[Mapping[str, FaultKind]] = {
    "proxy-killed": FaultKind(
        "a worker of the proxy is killed, or both", _kill_workers, {"sqlite": (10, 100), "postgresql": (2, 100)}
    ),
    "proxy-stopped": FaultKind(
        "a worker of the proxy stands still for up to 3 s", _stop_a_worker, {"sqlite": (1, 20), "postgresql": (1, 20)}
    ),
    "engine-killed": FaultKind(
        "the engine is killed, and restarts empty (a stand-in)", _kill_engine, {"sqlite": (1, 50)}, (0.5, 2.0)
    ),
    "engine-hangs": FaultKind(
        "the engine stands still for up to 3 s (a stand-in)", _hang_engine, {"sqlite": (1, 20)}, (0.2, 1.0)
    ),
    "store-cut": FaultKind("all connections to the store are cut", _cut_store, {"postgresql": (1, 50)}, (0.2, 1.0)),
    "store-hangs": FaultKind("the store stands still for up to 3 s", _hang_store, {"postgresql": (1, 20)}, (0.5, 1.5)),
    "store-restarts": FaultKind(
        "the store's server restarts, in order or as after a crash", _restart_store, {"postgresql": (1, 20)}, (0.5, 1.5)
    ),
}

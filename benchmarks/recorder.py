"""The cost of recording a call: microseconds of one process, through the recorder, into a SQLite file and PostgreSQL.

    python -m benchmarks.recorder --save        writes benchmarks/results/recorder.json

Each case commits calls of known trajectories (an agent's second and later calls), `at_once` of them together, as
proxies do under load; the time is that of `Recorder.commit` from call to acknowledgement, divided by the number of
calls. "SQL alone" is the transaction of rows made beforehand, which is the lower bound. On a shared machine, p10 and
the ratio to "SQL alone" are more reliable than p50. PostgreSQL runs on the same machine, on a socket; its commits are
flushed to disk (`fsync`), or soon after (`synchronous_commit = off`); its CPU time is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import resource
import sqlite3
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

from sqlalchemy import text

from recorder.capture.batch import Batch, BatchCall, write_batch
from recorder.capture.cache import CaptureCache
from recorder.capture.recorder import Recorder
from recorder.capture.rows import prepare_call
from recorder.messages.calls import Address, RecordedCall, SampledChoice, TrajectoryRef
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Store
from recorder.store.write_backends import StoreBackend, WriteBackend, choose_backend
from tests.postgres import Postgres, program
from tests.recorder import talk

RESULTS = Path(__file__).parent / "results" / "recorder.json"
PROJECT = "default"
GROUP_SIZE = RecorderSettings().group_size


@dataclass(frozen=True)
class Case:
    """One measurement."""

    name: str
    at_once: int  # calls committed together
    rounds: int
    prompt_ids: int = 60
    sampled_ids: int = 30
    tools_bytes: int = 0
    lane: str = "fastest"
    durability: str = "process"
    synchronous_commit: str | None = None  # synchronous_commit of PostgreSQL; None: SQLite


CASES = (
    Case("short, one at a time", 1, 2000),
    Case("short, batches of 8", 8, 400),
    Case("short, batches of 32", 32, 200),
    Case("short, batches of 32, SQL alone", 32, 200, lane="sql alone"),
    Case("short, batches of 64", 64, 100),
    Case("4,000 prompt ids, 300 sampled, 4 KB of tools, batches of 32", 32, 60, 4000, 300, 4096),
    Case("short, batches of 32, through SQLAlchemy", 32, 100, lane="store"),
    Case("short, one at a time, through SQLAlchemy", 1, 400, lane="store"),
    Case("short, batches of 32, power durability", 32, 60, durability="power"),
    Case("PostgreSQL, short, one at a time", 1, 400, synchronous_commit="on"),
    Case("PostgreSQL, short, batches of 8", 8, 150, synchronous_commit="on"),
    Case("PostgreSQL, short, batches of 32", 32, 80, synchronous_commit="on"),
    Case("PostgreSQL, short, batches of 64", 64, 40, synchronous_commit="on"),
    Case("PostgreSQL, short, one at a time, soon durable", 1, 400, synchronous_commit="off"),
    Case("PostgreSQL, short, batches of 32, soon durable", 32, 80, synchronous_commit="off"),
)


def turns_of(case: Case, refs: list[TrajectoryRef], round_number: int) -> list[RecordedCall]:
    """Return the calls of one round: each trajectory's next one."""
    tools = [{"type": "function", "function": {"name": "f", "description": "x" * case.tools_bytes}}]
    return [turn(case, ref, f"{round_number}.{n}", tools if case.tools_bytes else None) for n, ref in enumerate(refs)]


def turn(case: Case, ref: TrajectoryRef, name: str, tools: Any) -> RecordedCall:
    """Return one call with a history of two turns."""
    messages = [
        {"role": "system", "content": "You are a helpful agent that answers questions about orders."},
        {"role": "user", "content": f"Where is my order {name}? I have been waiting for a week."},
    ]
    said = {"role": "assistant", "content": f"Your order {name} arrives on Tuesday."}
    sampled = list(range(case.sampled_ids))
    body_hash = blake2b(name.encode(), digest_size=16).digest()
    rest = {"temperature": 1.0, "max_tokens": 64}
    return talk.turn(
        ref,
        talk.request(messages, tools=tools, rest=rest, body_hash=body_hash),
        [SampledChoice(0, said, sampled, [-0.25] * case.sampled_ids, "stop")],
        address=Address(trajectory=ref.external_id),
        base_fingerprint="0" * 64,
        prompt_token_ids=list(range(case.prompt_ids)),
        usage={"prompt_tokens": case.prompt_ids, "completion_tokens": case.sampled_ids},
    )


def lane_of(case: Case, store: Store) -> WriteBackend:
    """Return the case's way to the store."""
    return (
        StoreBackend(store)
        if case.lane == "store"
        else choose_backend(store, "power" if case.durability == "power" else "process")
    )


@contextmanager
def database(case: Case) -> Iterator[str | None]:
    """Yield the case's database; None: a SQLite file."""
    if case.synchronous_commit is None:
        yield None
        return
    server = Postgres(synchronous_commit=case.synchronous_commit, fsync="on", full_page_writes="on", autovacuum="on")
    try:
        server.create("hone")
        yield server.url("hone")
    finally:
        server.stop()


async def measure(case: Case, folder: Path, url: str | None) -> dict[str, Any]:
    """Commit the case's calls; return quantiles over its rounds."""
    settings = RecorderSettings.model_validate({"durability": case.durability, "url": url})
    store = await open_store(folder, settings, migrate=True)
    lane = lane_of(case, store)
    recorder = Recorder(store, settings, lane)
    await recorder.start()
    first = turn(case, TrajectoryRef("", None), "first", None)
    refs = [
        await recorder.trajectory_at(PROJECT, None, Address(trajectory=f"t{n}"), first.request, None)
        for n in range(case.at_once)
    ]
    times, cpu = [], []
    for number in range(case.rounds):
        work = prepared(case, turns_of(case, refs, number), recorder, lane)
        began, cpu_began = time.perf_counter(), time.process_time()
        await work()
        times.append((time.perf_counter() - began) / case.at_once)
        cpu.append((time.process_time() - cpu_began) / case.at_once)
    assert recorder.stats().unrecorded_turns == 0
    await recorder.stop()
    size_bytes = await size_of(store, folder)
    await store.close()
    return {
        "case": case.name,
        "us_a_call_p10": round(statistics.quantiles(times, n=10)[0] * 1e6, 1),
        "us_a_call_p50": round(statistics.median(times) * 1e6, 1),
        "us_a_call_p90": round(statistics.quantiles(times, n=10)[-1] * 1e6, 1),
        "cpu_us_a_call": round(statistics.median(cpu) * 1e6, 1),
        "turns": case.at_once * case.rounds,
        "bytes_a_call": round(size_bytes / (case.at_once * case.rounds)),
    }


async def size_of(store: Store, folder: Path) -> int:
    """Return the size of the database, indexes included."""
    if store.is_sqlite:
        return await asyncio.to_thread(lambda: (folder / "hone.db").stat().st_size)
    async with store.read() as conn:
        return int((await conn.execute(text("select pg_database_size(current_database())"))).scalar_one())


def prepared(
    case: Case, turns: list[RecordedCall], recorder: Recorder, lane: WriteBackend
) -> Callable[[], Awaitable[object]]:
    """Return the timed part of one round."""
    if case.lane == "sql alone":
        memory = CaptureCache()
        rows = [BatchCall(prepare_call(t, b"k" * 32, memory), b"", None, False, False) for t in turns]
        return lambda: lane.write(lambda ex: write_batch(ex, Batch(GROUP_SIZE, rows)))
    if case.at_once == 1:
        return lambda: recorder.commit(turns[0])
    return lambda: asyncio.gather(*(recorder.commit(t) for t in turns))


def postgresql_version() -> str:
    return subprocess.check_output([program("postgres"), "--version"], text=True).split()[-1]


async def main() -> None:
    """Measure all cases and print them; with `--save`, save them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    asked = parser.parse_args()
    rows = []
    for case in CASES:
        if asked.only in case.name:
            with tempfile.TemporaryDirectory() as folder, database(case) as url:
                rows.append(await measure(case, Path(folder), url))
            figures = "p10 {us_a_call_p10:7} p50 {us_a_call_p50:7} p90 {us_a_call_p90:7} cpu {cpu_us_a_call:7} us"
            print(f"{case.name:60} {figures.format_map(rows[-1])}")
    load_1min = os.getloadavg()[0]  # of other programs too: it shows a busy machine
    if asked.save:
        machine = {
            "cores": os.cpu_count(),
            "load_1min": load_1min,
            "python": platform.python_version(),
            "sqlite": sqlite3.sqlite_version,
            "postgresql": postgresql_version(),
        }
        machine["max_rss_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps({"machine": machine, "cases": rows}, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(main())

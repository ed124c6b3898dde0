"""The cost of pages where a proxy serves them: time and bytes of each, and how ten open pages slow calls.

    python -m benchmarks.pages FOLDER --served [--save NAME]       on a store that `benchmarks.stores` made

Owns: the address of each page on that store, the times of an otherwise idle server, and calls a second of a proxy with
`OPEN_PAGES` live pages open (each reads its stream, and reloads every `RELOAD_S`) against one with none, in
alternation. Refuses: a browser's drawing time.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final

import httpx
from litestar.handlers import HTTPRouteHandler
from sqlalchemy import func, select

from benchmarks import load
from benchmarks.formats import formats, upstream_answers
from benchmarks.proxy import run_proxy
from proxy.dashboard.pages.lists import SEARCH
from proxy.dashboard.routes import HANDLERS
from recorder.queue import leases
from recorder.search.indexer import index_calls
from recorder.store.bootstrap import DEFAULT_PROJECT
from recorder.store.database import Project, Store
from recorder.store.schema import calls, groups, trajectories
from recorder.store.write_backends import choose_backend
from recorder.totals.follower import LEASE, count_calls

TIMES: Final = 100  # requests per page: its p99 is the second slowest
MOST_BYTES: Final = 300_000
MOST_P99_MS: Final = 150.0
OPEN_PAGES: Final = 10
RELOAD_S: Final = 5.0
CONNECTIONS: Final = 32
_NO_PAGES: Final = ("/static/", "/charts/", "/traffic/charts/", "/sign-", "/sessions/")
# Lists with common filters, besides their first page.
_NARROWED: Final = {
    "/trajectories": (
        f"?{SEARCH}=order",
        f'?{SEARCH}="arrives in 3 days"',
        "?state=completed&purpose=train",
        "?tool_error=yes",
        "?reward_from=0.9",
        "?tag=nobody",
        "?source=lineage",
        "?before={deep}",
        "?finish_reason=stop",
        "?error=any",
        "?tokens_from=1000000",
        "?sort=tokens",
        "?sort=cost",
        "?sort=reward",
    ),
    "/traffic": ("?range=30d", "?range=30d&split=version", "?range=30d&split=tag"),
    "/groups": ("?state=scored", "?state=ready", "?spread_from=0.9"),
}


@dataclass(frozen=True, slots=True)
class There:
    """The objects whose pages are opened: one of each kind, from the middle of its list."""

    run: str
    call: str
    group: str


async def find(store: Store) -> There:
    """Find a trajectory of several turns, one of its calls, and its group."""
    async with store.read() as conn:
        middle = (await conn.execute(select(func.count()).select_from(trajectories))).scalar_one() // 2
        newest = select(trajectories.c.id, trajectories.c.group_id).order_by(trajectories.c.id.desc())
        found = (await conn.execute(newest.where(trajectories.c.call_count > 1).offset(middle).limit(1))).first()
        run, group = found or (await conn.execute(newest.limit(1))).one()
        call = (await conn.execute(select(calls.c.id).where(calls.c.trajectory_id == run).limit(1))).scalar_one()
        group = group or (await conn.execute(select(groups.c.id).limit(1))).scalar_one()
    return There(str(run), str(call), str(group))


def addresses(there: There) -> Iterator[str]:
    """Return every page that has content in this store."""
    places = {
        "{trajectory:str}": there.run,
        "{call:str}": there.call,
        "{group:str}": there.group,
        "{name:path}": "helpdesk@0",
    }
    for handler in HANDLERS:
        assert isinstance(handler, HTTPRouteHandler)
        for path in sorted(handler.paths) if "GET" in handler.http_methods else ():
            if path.startswith(_NO_PAGES):
                continue
            for place, value in places.items():
                path = path.replace(place, value)
            if "{" not in path:
                yield from (f"/hone{path}{more.format(deep=there.run)}" for more in ("", *_NARROWED.get(path, ())))


# --- each page by itself


async def measure_pages(url: str, there: There) -> list[dict[str, Any]]:
    """Return a row for each page: its p50 and p99 on loopback, and its bytes."""
    rows = []
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        for address in addresses(there):
            row = await _page(http, address)
            if row["status"] != 200:  # the page needs more than its address, or this store has no such object
                continue
            rows.append(row)
            over = row["bytes"] > MOST_BYTES or row["ms_p99"] > MOST_P99_MS
            shown = address.replace(there.run, "RUN").replace(there.call, "CALL").replace(there.group, "GROUP")
            row["page"] = shown
            line = f"{shown:55} {row['status']} p50 {row['ms_p50']:8.1f} ms  p99 {row['ms_p99']:8.1f} ms"
            print(f"{line}  {row['bytes']:9,} bytes{'  OVER' if over else ''}", flush=True)
    return rows


async def _page(http: httpx.AsyncClient, address: str) -> dict[str, Any]:
    times, answer = [], await http.get(address)  # the first request fills the caches
    for _ in range(TIMES if answer.status_code == 200 else 1):
        began = time.perf_counter()
        answer = await http.get(address)
        times.append((time.perf_counter() - began) * 1e3)
    times.sort()
    return {
        "page": address,
        "status": answer.status_code,
        "ms_p50": round(statistics.median(times), 1),
        "ms_p99": round(times[max(0, int(len(times) * 0.99) - 1)], 1),
        "bytes": len(answer.content),
    }


# --- calls beside open pages


def measure_beside(port: int, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure calls a second with no page open and with ten, in alternation."""
    [chat] = [one for one in formats() if one.path == "/v1/chat/completions"]
    found: dict[str, list[load.Load]] = {"none open": [], f"{OPEN_PAGES} open": []}
    for _ in range(rounds):
        for name, rates in found.items():
            with _pages_open(port) if rates is not found["none open"] else contextlib.nullcontext():
                rates.append(load.drive(port, chat.path, chat.request(stream=False), CONNECTIONS, seconds))
            last = rates[-1]
            assert not last.failures, last.first_failure
            print(f"{name:10} {last.requests / last.seconds:8.0f} calls/s, p99 {last.p99_ms:.1f} ms", flush=True)
    per_s = {name: statistics.median(one.requests / one.seconds for one in rates) for name, rates in found.items()}
    p99_ms = {name: statistics.median(one.p99_ms for one in rates) for name, rates in found.items()}
    return {
        "calls_per_s": {k: round(v) for k, v in per_s.items()},
        "p99_ms": {k: round(v, 1) for k, v in p99_ms.items()},
    }


@contextlib.contextmanager
def _pages_open(port: int) -> Iterator[None]:
    """Keep ten pages open in another process until the block ends; begin the block when all are open."""
    context = get_context("spawn")
    ready = context.Event()
    process = context.Process(target=_stay_open, args=(port, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(60):
            raise RuntimeError("the pages did not open within 60 s")
        yield
    finally:
        process.terminate()
        process.join(10)


def _stay_open(port: int, ready: Any) -> None:
    asyncio.run(_all_open(f"http://127.0.0.1:{port}", ready))


async def _all_open(url: str, ready: Any) -> None:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=None, limits=limits) as http:
        first = [asyncio.Event() for _ in range(OPEN_PAGES)]
        open_ = [asyncio.ensure_future(_open(http, event)) for event in first]
        await asyncio.gather(*(event.wait() for event in first))
        ready.set()
        await asyncio.gather(*open_)


async def _open(http: httpx.AsyncClient, opened: asyncio.Event) -> None:
    """Keep one page open as a browser does: load it, read its stream, and reload it."""
    async with asyncio.TaskGroup() as both:
        both.create_task(_listen(http))
        while True:
            (await http.get("/hone/")).raise_for_status()
            opened.set()
            await asyncio.sleep(RELOAD_S)


async def _listen(http: httpx.AsyncClient) -> None:
    async with http.stream("GET", "/hone/live") as answer:
        answer.raise_for_status()
        async for _ in answer.aiter_bytes():
            pass


@contextlib.asynccontextmanager
async def _served(folder: Path, store_url: str | None) -> AsyncIterator[int]:
    upstream_port, port = load.free_port(), load.free_port()
    with (
        load.child(load.run_upstream, upstream_port, upstream_answers()),
        load.child(run_proxy, port, upstream_port, str(folder), False, store_url),
    ):
        yield port


async def _index(store: Store) -> None:
    """Complete the search index and the totals, as a running proxy has done."""
    lane = choose_backend(store, "process")
    await lane.start()
    try:
        while await index_calls(Project(store, DEFAULT_PROJECT), lane):
            pass
    finally:
        await lane.stop()
    lease = await leases.acquire_lease(Project(store, DEFAULT_PROJECT), LEASE, "benchmark", 3600)
    assert lease is not None
    while await count_calls(Project(store, DEFAULT_PROJECT), lease):
        pass
    await leases.release_lease(store, lease)


async def measure(store: Store, folder: Path, store_url: str | None, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure everything through one proxy on the store. This adds calls to the store."""
    there = await find(store)
    await _index(store)
    async with _served(folder, store_url) as port:
        pages = await measure_pages(f"http://127.0.0.1:{port}", there)
        beside = await asyncio.to_thread(measure_beside, port, rounds, seconds)
    return {"served": pages, "beside_calls": beside}

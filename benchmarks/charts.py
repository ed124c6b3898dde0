"""How the first view of the Training page slows calls: a proxy's slowest answer while its charts are drawn.

    python -m benchmarks.charts

A proxy (a process of its own) serves a store with `STEPS` steps. One connection requests `/healthz` without a pause:
first with nothing else running, then while Training and its charts are opened for the first time, then once more from
the cached charts. Reported for each: the slowest answer, the 99th percentile, and the duration of the page view.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import httpx

from benchmarks import load
from benchmarks.formats import upstream_answers
from benchmarks.proxy import run_proxy
from recorder.registry.aliases import ensure_alias
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import DEFAULT_PROJECT, open_store
from recorder.store.database import Project
from tests.recorder.learning import Learned

STEPS: Final = 20
IDLE_S: Final = 3.0
_CHART: Final = re.compile(r'<img class="chart" src="([^"]+)"')


async def fill(folder: Path) -> None:
    """Write steps as a trainer and a controller do."""
    store = await open_store(folder, RecorderSettings(), migrate=True)
    try:
        alias = await ensure_alias(Project(store, DEFAULT_PROJECT), "helpdesk", "bench", "f")
        learned = Learned(store, alias.id)
        for number in range(1, STEPS + 1):
            await learned.accepted(number)
    finally:
        await store.close()


async def look(http: httpx.AsyncClient) -> None:
    """Open Training as a browser does: the page, then all its pictures at once."""
    page = (await http.get("/hone/training")).raise_for_status().text
    charts = [address.replace("&amp;", "&") for address in _CHART.findall(page)]
    assert charts
    for answer in await asyncio.gather(*(http.get(address) for address in charts)):
        answer.raise_for_status()


async def beside(http: httpx.AsyncClient, name: str, deed: Callable[[], Awaitable[None]]) -> None:
    """Do this while requests run, and print how slowly the proxy answered."""
    doing, times, began = asyncio.ensure_future(deed()), [], time.perf_counter()
    while not doing.done():
        asked = time.perf_counter()
        (await http.get("/healthz")).raise_for_status()
        times.append((time.perf_counter() - asked) * 1e3)
    await doing
    took_s, times = time.perf_counter() - began, sorted(times)
    p99 = times[int(len(times) * 0.99)]
    print(
        f"{name:24} slowest {times[-1]:7.1f} ms  p99 {p99:6.1f} ms  {len(times):6} answers in {took_s:5.1f} s",
        flush=True,
    )


async def measure(port: int) -> None:
    """Measure all three cases in sequence."""
    url = f"http://127.0.0.1:{port}"
    async with (
        httpx.AsyncClient(base_url=url, timeout=60) as asking,
        httpx.AsyncClient(base_url=url, timeout=60) as page,
    ):
        await beside(asking, "nothing else", lambda: asyncio.sleep(IDLE_S))
        await beside(asking, "Training, first opened", lambda: look(page))
        await beside(asking, "Training, once more", lambda: look(page))


def main() -> None:
    """Measure on a separate store."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(fill(Path(folder)))
        upstream_port, port = load.free_port(), load.free_port()
        with (
            load.child(load.run_upstream, upstream_port, upstream_answers()),
            load.child(run_proxy, port, upstream_port, folder),
        ):
            asyncio.run(measure(port))


if __name__ == "__main__":
    main()

"""How long the event loop stands still: a test of hostile input asserts that others are served meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

GAP_S = 0.1  # the longest that a request may keep the loop busy
_TICK_S = 0.002


@dataclass(slots=True)
class LoopGaps:
    """The longest gap between two turns of the loop, in CPU seconds of the loop's thread and by the clock.

    The first does not count what other processes of the machine do, but counts what the loop's own thread computes. A
    thread that holds the interpreter shows only in the second.
    """

    busy_s: float = 0.0
    clock_s: float = 0.0


@contextlib.asynccontextmanager
async def loop_gaps() -> AsyncIterator[LoopGaps]:
    """Measure the gaps of the running event loop while the block runs."""
    gaps = LoopGaps()

    async def tick() -> None:
        busy, clock = time.thread_time(), time.perf_counter()
        while True:
            await asyncio.sleep(_TICK_S)
            now_busy, now_clock = time.thread_time(), time.perf_counter()
            gaps.busy_s = max(gaps.busy_s, now_busy - busy)
            gaps.clock_s = max(gaps.clock_s, now_clock - clock - _TICK_S)
            busy, clock = now_busy, now_clock

    ticking = asyncio.create_task(tick())
    try:
        await asyncio.sleep(2 * _TICK_S)
        yield gaps
        await asyncio.sleep(2 * _TICK_S)
    finally:
        ticking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ticking


def assert_loop_runs(gaps: LoopGaps) -> None:
    """Assert that no gap was longer than `GAP_S`."""
    assert gaps.busy_s <= GAP_S, f"the loop computed for {gaps.busy_s:.3f} s"
    assert gaps.clock_s <= GAP_S, f"the loop stood still for {gaps.clock_s:.3f} s"

"""Filling the index for as long as a process runs, by one process of a project at a time.

Owns: when a step is taken, the claim under which that happens, and when words of deleted runs are merged out behind the
sweep's deletions. Refuses: what a step does (`recorder.search.filling`, `recorder.search.erasing`).

A call counts up no topic when it is written (`recorder.store.changes`), so the queue is asked once a second: a look at
one index, and what was said is found within 2 s. Whoever fills keeps its lease, so that nobody is woken by taking it.
A step writes in transactions of some milliseconds, and where more waits the next comes after a rest as long as it took:
turns that are being recorded come in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import LeaseLost, StoreError
from recorder.holding import holders, leases
from recorder.holding.leases import Lease
from recorder.search.erasing import Merge
from recorder.search.filling import CALLS, fill
from recorder.search.queue import waiting
from recorder.store.checkpoint import empty_log
from recorder.store.lanes import lane_for
from recorder.store.project import Project

LEASE: Final = "index"
LEASE_S: Final = 30.0  # two that fill at once do no harm: what one took from the queue the other does not find
LOOK_S: Final = 1.0
MERGE_EVERY_S: Final = 60.0
MERGE_S: Final = 0.5  # at once: what is said meanwhile is found within 2 s all the same
MERGE_SHARE: Final = 0.02  # of the time: a merge writes the whole index anew, and retention deletes all day

log = logging.getLogger(__name__)


class Filler:
    """Fills one project's index: `async with filler.running(): …`. `owner` names this process."""

    def __init__(self, project: Project, owner: str) -> None:
        self._project = project
        self._owner = owner
        self._lane = lane_for(project.store, "process")  # a power cut takes both, what was indexed and that it was
        self._lease: Lease | None = None
        self._renew_at = 0.0
        self._stop = asyncio.Event()
        self._failing = RateLimitedLog(log)
        self._merge: Merge | None = None
        self._merged_s = 0.0  # what the merge under way has taken
        self._merge_at = float("-inf")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Fill until the block ends."""
        await self._lane.start()
        task = asyncio.create_task(self._run(), name="index what was said")
        try:
            yield
        finally:
            self._stop.set()
            await task  # not cancelled: a statement that is cut off leaves its connection's thread behind
            await self._lane.stop()

    async def _run(self) -> None:
        rest_s = 0.0
        while not self._stop.is_set():
            try:
                rest_s = await self._look()
            except (StoreError, LeaseLost) as e:
                self._failing(logging.WARNING, "what was said is not indexed, and tried again: %s", e)
                self._lease, rest_s = None, LOOK_S
            except Exception as e:  # noqa: BLE001 - a bug of ours must not end it for good; the log has it
                self._failing(logging.ERROR, "what was said could not be indexed", error=e)
                rest_s = LOOK_S
            await self._rest(rest_s)
        if self._lease is not None:
            with contextlib.suppress(StoreError):
                await leases.release(self._project.store, self._lease)

    async def _rest(self, rest_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(rest_s):
                await self._stop.wait()

    async def _look(self) -> float:
        """Index some of what waits; in how many seconds to look again."""
        began = time.monotonic()
        merge = began >= self._merge_at
        if not merge and not await waiting(self._project, most=1):
            return LOOK_S
        if not await self._holds():
            return LOOK_S
        done = await fill(self._project, self._lane)
        took_s = time.monotonic() - began
        if merge:
            await self._merge_some()
        return took_s if done >= CALLS or self._merge is not None else LOOK_S

    async def _holds(self) -> bool:
        """Whether the lease is ours; taken where nobody has it."""
        if self._lease is None:
            await holders.release_dead(self._project, LEASE)
            self._lease = await leases.acquire(self._project, LEASE, self._owner, LEASE_S)
            self._renew_at = time.monotonic() + LEASE_S / 3
        elif time.monotonic() >= self._renew_at:
            self._lease = await leases.renew(self._project.store, self._lease, LEASE_S)
            self._renew_at = time.monotonic() + LEASE_S / 3
        return self._lease is not None

    async def _merge_some(self) -> None:
        """Merge out what the sweep deleted, a little at a time; the next merge is far off where this one took long."""
        began = time.monotonic()
        merge = self._merge = self._merge or Merge(self._project.store)
        done = await merge.go_on(MERGE_S)
        self._merged_s += time.monotonic() - began
        if done:
            if merge.took_any:
                await empty_log(self._project.store)
            self._merge_at = time.monotonic() + max(MERGE_EVERY_S, self._merged_s / MERGE_SHARE)
            self._merge, self._merged_s = None, 0.0

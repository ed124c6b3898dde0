"""A background task that works as long as its process lives, under a lease that one process of a project holds.

Owns: when the work runs again, acquiring and renewing the lease, and what a failure does. Refuses: the work.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import LeaseLost, StoreError
from recorder.queue import leases
from recorder.queue.leases import Lease
from recorder.store.database import Project

log = logging.getLogger(__name__)


class LeasedLoop:
    """Calls `work` again and again: `async with loop.running(): …`. `work` returns the seconds until the next call.

    `name`: of the lease, and of the work in log messages. The lease is acquired when the work asks for it (`lease`),
    because taking it would wake other processes.
    """

    def __init__(
        self, project: Project, name: str, owner: str, work: Callable[[], Awaitable[float]], *, lease_s: float,
        retry_s: float,
    ) -> None:  # fmt: skip
        self._project = project
        self._name = name
        self._owner = owner
        self._work = work
        self._lease_s = lease_s
        self._retry_s = retry_s
        self._lease: Lease | None = None
        self._renew_at = 0.0
        self._stop = asyncio.Event()
        self._failing = RateLimitedLog(log)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work until the block ends."""
        task = asyncio.create_task(self._run(), name=self._name)
        try:
            yield
        finally:
            self.stop()
            await task  # not cancelled: an interrupted statement leaks its connection's thread

    def stop(self) -> None:
        """End after the current work, and release the lease."""
        self._stop.set()

    async def lease(self) -> Lease | None:
        """Return the lease if this process holds it or it is free; None: another process works."""
        if self._lease is None:
            await leases.release_dead(self._project, self._name)
            self._lease = await leases.acquire_lease(self._project, self._name, self._owner, self._lease_s)
            self._renew_at = time.monotonic() + self._lease_s / 3
        elif time.monotonic() >= self._renew_at:
            self._lease = await leases.renew_lease(self._project.store, self._lease, self._lease_s)
            self._renew_at = time.monotonic() + self._lease_s / 3
        return self._lease

    async def _run(self) -> None:
        rest_s = 0.0
        while not self._stop.is_set():
            try:
                rest_s = await self._work()
            except (StoreError, LeaseLost) as e:
                self._failing(logging.WARNING, "the work %r failed and is retried: %s", self._name, e)
                self._lease, rest_s = None, self._retry_s
            except Exception as e:  # noqa: BLE001 - a bug of ours must not end it for good; the log has it
                self._failing(logging.ERROR, "the work %r failed", self._name, error=e)
                rest_s = self._retry_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(rest_s):
                    await self._stop.wait()
        if self._lease is not None:
            with contextlib.suppress(StoreError):
                await leases.release_lease(self._project.store, self._lease)

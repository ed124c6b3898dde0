"""The trainer's half of a GPU that it shares with an engine: take it, wait until the engine sleeps, give it back.

Owns: the lease `gpu` while a trainer computes, in the protocol of `recorder.queue.training.gpu_pauses`. Refuses:
pausing engines (`proxy.versions.pauses`), and how tensors move (`trainer.step.state.residence`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from recorder.errors import LeaseLost
from recorder.queue import leases
from recorder.queue.leases import GPU, Lease
from recorder.queue.training import gpu_pauses
from recorder.store.changes import Topic
from recorder.store.database import Project
from trainer.errors import StepInterrupted
from trainer.step.lease_renewer import LeaseRenewer

log = logging.getLogger(__name__)

TELL_AFTER_S: Final = 30.0  # a pause takes seconds


class GpuShare:
    """Uses of the GPU by one trainer. With `share` "split" the GPU is its own, and nothing is waited for."""

    def __init__(self, project: Project, share: str, owner: str, lease_s: float) -> None:
        self._project = project
        self._owner = owner
        self._lease_s = lease_s
        self._renewer: LeaseRenewer | None = None
        self.is_shared = share != "split"

    def is_lost(self) -> bool:
        """Whether the lease was lost during a use: the work must end. Any thread may ask."""
        renewer = self._renewer
        return renewer is not None and renewer.lost.is_set()

    @asynccontextmanager
    async def using(
        self, enter: Callable[[], Awaitable[None]], leave: Callable[[], Awaitable[bool]]
    ) -> AsyncIterator[None]:
        """Within: the engine is asleep, and the GPU is this trainer's. `enter` moves in, `leave` moves out.

        If `leave` fails, or cannot say that nothing is left (False), the lease is left to expire: an engine that woke
        into memory that is not free would die. Raises `LeaseLost` if the lease is lost.
        """
        if not self.is_shared:
            yield
            return
        renewer = LeaseRenewer(self._project.store, await self._acquire(), self._lease_s)
        self._renewer = renewer
        try:
            async with renewer.running():
                await self._until_asleep(renewer)
                renewer.releases = False
                try:
                    await enter()
                    yield
                except StepInterrupted as e:
                    if renewer.lost.is_set():
                        raise LeaseLost("the lease on the GPU was lost, so the step was stopped") from e
                    raise
                finally:
                    renewer.releases = await asyncio.shield(leave())
        finally:
            self._renewer = None

    async def _acquire(self) -> Lease:
        """Take the lease once it is free. An expired one is not: its holder's memory may still be there."""
        with self._project.store.watch.on(Topic.LEASES) as news:
            while True:
                owner = self._owner
                lease = await leases.acquire_lease(self._project, GPU, owner, self._lease_s, take_expired=False)
                if lease is not None:
                    return lease
                await news.wait(gpu_pauses.LOOK_S)

    async def _until_asleep(self, renewer: LeaseRenewer) -> None:
        """Wait until every engine is asleep for this use; log after a while what is waited for."""
        waited_s, reported = 0.0, False
        with self._project.store.watch.on(Topic.ENGINES) as news:
            while waiting := await gpu_pauses.list_awake_engines(self._project, renewer.lease):
                if waited_s >= TELL_AFTER_S and not reported:
                    log.warning("training waits until the engine on its GPU is asleep: %s", "; ".join(waiting))
                    reported = True
                began = asyncio.get_running_loop().time()
                await news.wait(1.0)
                waited_s += asyncio.get_running_loop().time() - began
        await renewer.renew_now()  # a process that was stopped meanwhile must not move in late

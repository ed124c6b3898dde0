"""Showing in the store that a process runs: a lease under its own name, renewed for as long as it does.

Owns: how such leases are called, and keeping one. Refuses: what depends on a process being there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

from recorder.errors import LeaseLost, StoreError
from recorder.holding import leases
from recorder.holding.leases import Lease
from recorder.store.project import Project

JUDGE: Final = "judge:"  # and the holder's name
PROXY: Final = "proxy:"
_RENEWALS_A_LEASE: Final = 3

log = logging.getLogger(__name__)


@asynccontextmanager
async def present(project: Project, kind: str, owner: str, lease_s: float) -> AsyncIterator[None]:
    """Show that `owner` runs, until the block ends. Where the store is away, it is shown again when it is back."""
    held: list[Lease] = []

    async def show() -> None:
        if held:
            held[:] = [await leases.renew(project.store, held[0], lease_s)]
        else:
            lease = await leases.acquire(project, kind + owner, owner, lease_s)
            held.extend([lease] if lease else [])

    over = asyncio.Event()
    keeper = asyncio.create_task(_keep(show, held, lease_s, over), name=f"show {kind}{owner}")
    try:
        yield
    finally:
        over.set()
        await keeper  # not cancelled: it may be about to take the lease
        with suppress(StoreError):  # then it runs out by itself
            for lease in held:
                await leases.release(project.store, lease)


async def _keep(show: Callable[[], Awaitable[None]], held: list[Lease], lease_s: float, over: asyncio.Event) -> None:
    while not over.is_set():
        try:
            await show()
        except LeaseLost:
            held.clear()  # it ran out while the store was away
            continue
        except StoreError as e:
            log.warning("this process cannot show that it runs: %s", e)
        with suppress(TimeoutError):
            async with asyncio.timeout(lease_s / _RENEWALS_A_LEASE):
                await over.wait()

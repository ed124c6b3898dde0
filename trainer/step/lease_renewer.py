"""Renew the trainer's lease on an alias, and its claims of groups, for as long as a step uses them.

Owns: the renewal, and noticing a lost lease or claim. Refuses: taking leases and claims, and the reaction to a loss.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress

from recorder.errors import LeaseLost, StoreUnavailable
from recorder.queue import claims, leases
from recorder.queue.claims import GroupClaim
from recorder.queue.leases import Lease
from recorder.store.database import Store

_RENEWALS_A_LEASE = 3  # two may fail before a lease expires


class LeaseRenewer:
    """Renews from a task of the event loop, so the work itself must be in a thread."""

    def __init__(self, store: Store, lease: Lease, lease_s: float) -> None:
        self.lease = lease
        self.lost = threading.Event()  # read by the working thread too
        self._store = store
        self._lease_s = lease_s
        self._claims: Sequence[GroupClaim] = ()
        self.releases = True  # whether the lease is released at the end, or left to expire

    @asynccontextmanager
    async def running(self) -> AsyncIterator[LeaseRenewer]:
        """Renew the lease inside the block, and release it at the end."""
        task = asyncio.create_task(self._renew(), name=f"keep {self.lease.name}")
        try:
            yield self
        finally:
            task.cancel()
            try:
                with suppress(asyncio.CancelledError, LeaseLost):
                    await task
            finally:
                if self.releases:
                    await leases.release_lease(self._store, self.lease)

    @contextmanager
    def keeping(self, held: Sequence[GroupClaim]) -> Iterator[None]:
        """Renew these claims too, inside the block. Claims may be released meanwhile with `drop`."""
        self._claims = list(held)
        try:
            yield
        finally:
            self._claims = ()

    def drop(self, given_up: GroupClaim) -> None:
        """Stop renewing a claim that was released on purpose."""
        self._claims = [claim for claim in self._claims if claim is not given_up]

    async def _renew(self) -> None:
        try:
            while True:
                await asyncio.sleep(self._lease_s / _RENEWALS_A_LEASE)
                with suppress(StoreUnavailable):  # the next renewal may still be in time
                    await self.renew_now()
        finally:  # however this ended, renewal has stopped
            self.lost.set()

    async def renew_now(self) -> None:
        """Renew everything once. Raises LeaseLost if another process has the alias.

        A lost claim is only dropped: it may just have been released, and a step that still needs it is refused when it
        finishes.
        """
        self.lease = await leases.renew_lease(self._store, self.lease, self._lease_s)
        for claim in self._claims:
            try:
                await claims.renew_claim(self._store, claim, self._lease_s)
            except LeaseLost:
                self.drop(claim)

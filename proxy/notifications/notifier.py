"""Send the notifications of a project: one process of all proxies does, the holder of the lease "notifier".

Owns: when events are read and conditions looked at, the lease, and noting what became of each POST. Refuses: what is
told (`recorder.views.notices`), the pace (`recorder.queue.notifications`), and the store's own trouble
(`proxy.notifications.store_trouble`).

Delivery is at least once: a notification is noted as sent after its POST, so one that ended in between is sent again,
with the same id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from dataclasses import dataclass, replace
from typing import Final

from proxy.notifications.delivery import post_notification
from proxy.notifications.target import Target
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import LeaseLost, StoreError
from recorder.queue import leases, notifications
from recorder.queue.groups.disputes import list_disputed_groups
from recorder.queue.leases import Lease
from recorder.queue.notifications import NOTIFIER, Notification
from recorder.store import sql
from recorder.store.changes import Topic
from recorder.store.database import Project
from recorder.views.notices.conditions import begun_notices, list_conditions
from recorder.views.notices.ledger_events import read_decisions
from recorder.views.status.project import Status

log = logging.getLogger(__name__)

LEASE_S: Final = 60.0  # longer than a POST, before which it is renewed
RENEW_EVERY_S: Final = 15.0
STOP_S: Final = 5.0  # for a POST that runs at the end


@dataclass(frozen=True, slots=True)
class Pace:
    """How often the notifier does what, in seconds. Tests hurry it."""

    look_s: float = 5.0  # the ledger is read; decisions wake it earlier
    conditions_s: float = 60.0  # alarms, pauses and reviews: reading them costs as much as a page
    interval_s: float = notifications.INTERVAL_S
    removal_s: float = 3600.0


class Notifier:
    """Runs inside a proxy: `async with notifier.running(): …`.

    `load_status`: reads the status. `by_hand`: returns the aliases whose versions wait for a person now.
    """

    def __init__(
        self,
        project: Project,
        target: Target,
        owner: str,
        load_status: Callable[[], Awaitable[Status]],
        by_hand: Callable[[], Collection[str]] = tuple,
        pace: Pace | None = None,
    ) -> None:
        self.rounds = 0  # that this process did as the holder of the lease
        self._project = project
        self._target = target
        self._owner = owner
        self._load_status = load_status
        self._by_hand = by_hand
        self._pace = pace or Pace()
        self._lease: Lease | None = None
        self._written: set[str] = set()  # events that this process has written
        self._conditions_at = self._removal_at = self._renewal_at = 0.0  # by the monotonic clock: when they are due
        self._failing, self._broken, self._refused = RateLimitedLog(log), RateLimitedLog(log), RateLimitedLog(log)
        self._stopping = False

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Send until the block ends."""
        with self._project.store.watch.on(Topic.SERVICE, Topic.CAMPAIGNS) as changed:

            async def run() -> None:
                while not self._stopping:
                    await changed.wait(self._pace.look_s)
                    if not self._stopping:
                        await self._round()

            task = asyncio.create_task(run(), name="notifier")
            try:
                yield
            finally:
                self._stopping = True
                changed.tell()
                _, slow = await asyncio.wait({task}, timeout=STOP_S)
                if slow:
                    task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await self._release()

    async def _release(self) -> None:
        if self._lease is not None:
            with contextlib.suppress(StoreError):  # otherwise it expires by itself
                await leases.release_lease(self._project.store, self._lease)

    async def _round(self) -> None:
        try:
            if await self._hold_lease():
                await self._read_events()
                await self._send_due()
                self.rounds += 1
        except LeaseLost:
            self._lease = None
        except StoreError as e:  # the next round reads the store again
            self._failing(logging.WARNING, "notifications cannot be read or written: %s", e)
        except Exception as e:  # noqa: BLE001 - a bug in one round must not end the notifier
            self._broken(logging.ERROR, "a round of the notifier failed", error=e)

    async def _hold_lease(self) -> bool:
        if self._lease is not None:
            if time.monotonic() >= self._renewal_at:
                await self._renew(self._lease)
            return True
        self._lease = await leases.acquire_lease(self._project, NOTIFIER, self._owner, LEASE_S)
        if self._lease is None:
            await leases.release_dead(self._project, NOTIFIER)
            return False
        # an alarm of the first seconds is often of a program that still starts
        self._conditions_at = time.monotonic() + self._pace.conditions_s
        return True

    async def _renew(self, lease: Lease) -> None:
        self._lease = await leases.renew_lease(self._project.store, lease, LEASE_S)
        self._renewal_at = time.monotonic() + RENEW_EVERY_S

    async def _read_events(self) -> None:
        assert self._lease is not None
        before = await notifications.load_cursor(self._project)
        notices, cursor = await read_decisions(self._project, before, frozenset(self._by_hand()))
        if time.monotonic() >= self._conditions_at:
            self._conditions_at = time.monotonic() + self._pace.conditions_s
            conditions = list_conditions(await self._load_status(), await list_disputed_groups(self._project))
            begun, present = begun_notices(conditions, cursor.present, await self._now())
            notices += begun
            cursor = replace(cursor, present=present)
        new = [one for one in notices if one.event not in self._written and one.kind in self._target.kinds]
        if new or cursor != before:
            await notifications.write_notices(self._project, self._lease, new, cursor)
        # rows that are not settled are read again
        self._written = {one.event for one in notices}

    async def _send_due(self) -> None:
        assert self._lease is not None
        if await notifications.has_waiting(self._project):
            for one in await notifications.claim_due(self._project, self._lease, self._pace.interval_s):
                await self._renew(self._lease)
                await self._send(one)
        if time.monotonic() >= self._removal_at:
            self._removal_at = time.monotonic() + self._pace.removal_s
            await notifications.remove_old(self._project, await self._now())

    async def _send(self, one: Notification) -> None:
        outcome = await post_notification(self._target, self._project.id, one)
        if outcome.error is None:
            await notifications.note_sent(self._project, one)
            return
        self._refused(logging.WARNING, "a notification (%s) was not sent: %s", one.kind, outcome.error)
        await notifications.note_failure(self._project, one, outcome.error, final=outcome.final)

    async def _now(self) -> float:
        async with self._project.store.read() as conn:
            return await sql.current_time(conn)

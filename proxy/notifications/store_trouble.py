"""Tell that calls cannot be recorded, while the store that has all other notifications is away.

Owns: following the health that this process observes (`recorder.store.health_monitor`), one message when it fails and
one when it works again, further tries from memory, and writing what was sent into the store afterwards. Refuses: what
the health is, and any other notification.

Every process observes the store by itself, and none can ask another through it. The workers of one `hone serve` share a
folder, in which the first one that sends leaves a mark, so they send once. Proxies on several machines each send.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from proxy.notifications.delivery import Delivery, post_notification
from proxy.notifications.target import Target
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import StoreError
from recorder.queue.notifications import (
    INTERVAL_S,
    MOST_TRIES,
    NoticeKind,
    Notification,
    add_sent,
    new_notification_id,
    retry_wait_s,
)
from recorder.states import NotificationState
from recorder.store.database import Project

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
MARK: Final = "store-trouble"  # the file that workers share
_REMEMBERED: Final = 50  # messages that wait for the store


@dataclass(slots=True)
class _Message:
    """A message that is sent from memory. `due`: when it is tried, by the monotonic clock."""

    row: Notification
    due: float
    ended: bool = False


@dataclass(frozen=True, slots=True)
class TroubleWatch:
    """What is observed: why the store takes no calls (None: it does), and how many could not be recorded so far."""

    trouble: Callable[[], str | None]
    unrecorded: Callable[[], int]


@dataclass(slots=True)
class _Episode:
    """One time without the store. `told`: this process said so, and says when it ends."""

    began: float  # unix seconds
    unrecorded: int
    told: bool = False


@dataclass(slots=True)
class StoreTroubleReporter:
    """Runs inside a proxy: `async with reporter.running(): …`. `where`: this proxy. `folder`: its workers'."""

    project: Project
    target: Target
    where: str
    watch: TroubleWatch
    folder: Path | None = None
    look_s: float = LOOK_S
    interval_s: float = INTERVAL_S
    _episode: _Episode | None = None
    _waiting: list[_Message] = field(default_factory=list)
    _ended: deque[Notification] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _last: float = float("-inf")  # the last try of this process, by the monotonic clock
    _failing: RateLimitedLog = field(default_factory=lambda: RateLimitedLog(log))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow the store's health until the block ends."""
        over = asyncio.Event()

        async def run() -> None:
            while not over.is_set():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self.look_s):
                        await over.wait()
                if not over.is_set():
                    await self._look()

        task = asyncio.create_task(run(), name="store trouble")
        try:
            yield
        finally:
            over.set()
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _look(self) -> None:
        try:
            self._note_health(self.watch.trouble() is not None)
            await self._send_due()
            if self._episode is None and self._ended:
                await self._write_ended()
        except Exception as e:  # noqa: BLE001 - a bug in one look must not end the reporter
            self._failing(logging.ERROR, "a notification about the store failed", error=e)

    def _note_health(self, failing: bool) -> None:
        if failing and self._episode is None:
            self._episode = _Episode(time.time(), self.watch.unrecorded())
            self._episode.told = may_send(self.folder, self.interval_s)
            if self._episode.told:
                self._put("Calls cannot be recorded: the store takes no writes. /readyz and the log say why.", {})
        elif not failing and self._episode is not None:
            episode, self._episode = self._episode, None
            if episode.told:
                lost = self.watch.unrecorded() - episode.unrecorded
                figures = {"for_s": round(time.time() - episode.began, 1), "unrecorded_calls": float(lost)}
                self._put("Calls are recorded again.", figures)

    def _put(self, what: str, figures: dict[str, float]) -> None:
        """Add a message. One that waits is not sent any more: it is counted in the new one."""
        at = time.time()
        row = Notification(
            new_notification_id(), NoticeKind.STORE_TROUBLE, f"{self.where}: {what}", "/hone/", figures, at,
            NotificationState.WAITING, 0, None, 0, None, None, None, None,
        )  # fmt: skip
        counted = [one for one in self._waiting if not one.row.tries]
        for one in counted:
            self._ended.append(replace(one.row, state=NotificationState.COUNTED, counted_in=row.id))
        self._waiting = [one for one in self._waiting if one.row.tries]
        row = replace(row, omitted=len(counted))
        self._waiting.append(_Message(row, max(time.monotonic(), self._last + self.interval_s)))

    async def _send_due(self) -> None:
        now = time.monotonic()
        due = next((one for one in self._waiting if one.due <= now), None)
        if due is None or now < self._last + self.interval_s:
            return
        self._last = now
        due.row = replace(due.row, tries=due.row.tries + 1, tried_at=time.time())
        outcome = await post_notification(self.target, self.project.id, due.row)
        self._note_outcome(due, outcome)
        self._waiting = [one for one in self._waiting if not one.ended]

    def _note_outcome(self, one: _Message, outcome: Delivery) -> None:
        row = one.row
        if outcome.error is None:
            self._end(one, replace(row, state=NotificationState.SENT, sent_at=time.time(), error=None))
            return
        log.warning("a notification (%s) was not sent: %s", row.kind, outcome.error)
        one.row = replace(row, error=outcome.error)
        if outcome.final or row.tries >= MOST_TRIES:
            self._end(one, replace(one.row, state=NotificationState.FAILED))
        one.due = time.monotonic() + retry_wait_s(row.tries)

    def _end(self, one: _Message, row: Notification) -> None:
        one.ended = True
        self._ended.append(row)

    async def _write_ended(self) -> None:
        """Write what was sent meanwhile into the store, so that lists show it."""
        try:
            while self._ended:
                await add_sent(self.project, self._ended[0])
                self._ended.popleft()
        except StoreError as e:
            self._failing(logging.WARNING, "notifications about the store cannot be listed yet: %s", e)


def may_send(folder: Path | None, interval_s: float) -> bool:
    """Return whether this process may send now: no worker that shares the folder did within `interval_s`.

    Where the folder cannot be used, it may: twice is better than never.
    """
    if folder is None:
        return True
    try:
        handle = os.open(folder / MARK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        last = os.pread(handle, 64, 0).decode("ascii", "replace")
        at = time.time()
        if last and last.replace(".", "", 1).isdigit() and abs(at - float(last)) < interval_s:
            return False
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{at:.3f}".encode(), 0)
    except BlockingIOError:
        return False  # another worker is sending
    except OSError:
        return True
    else:
        return True
    finally:
        os.close(handle)

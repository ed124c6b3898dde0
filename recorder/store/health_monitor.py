"""Whether calls can be recorded now, and why not.

Owns: detecting failed and hanging commits and a store that was removed or replaced; alarms, and detecting recovery.
Refuses: what follows (`recorder.on_failure`, `/readyz`).

The monitor itself probes a failing store, because a proxy that reports itself as not ready receives no more calls.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from sqlalchemy import update

from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import StoreUnavailable
from recorder.store.schema import projects
from recorder.store.statement import Statement
from recorder.store.write_backends import Executor, WriteBackend

log = logging.getLogger(__name__)

LOOK_EVERY_S: Final = 1.0
# A write that changes nothing, but needs everything that a commit needs.
_TOUCH: Final = Statement(update(projects).values(created_at=projects.c.created_at))


class _NotedCommit:
    """The context of every commit. One object and no generator: 20 function calls less for each commit."""

    def __init__(self, monitor: StoreHealthMonitor) -> None:
        self._monitor = monitor

    async def __aenter__(self) -> None:
        await self._monitor.begin()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._monitor.end(error)


class StoreHealthMonitor:
    """The health of the store as one process observes it. `start()` it after the write backend."""

    def __init__(self, backend: WriteBackend, patience_s: float, look_every_s: float = LOOK_EVERY_S) -> None:
        self._backend = backend
        self._patience_s = patience_s
        self._look_every_s = look_every_s
        self._failed: str | None = None
        self._writing_since: float | None = None
        self._one = asyncio.Lock()
        self._noted = _NotedCommit(self)
        self._told: str | None = None
        self._alarm = RateLimitedLog(log)
        self._task: asyncio.Task[None] | None = None
        self._stopping = asyncio.Event()
        self.away = False  # it was failing at the last look, and nothing was committed since
        self.on_return: Callable[[], None] = lambda: None  # called when it works again
        self.alarms = 0  # how often it was found failing

    def start(self) -> None:
        """Start checking the store periodically."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name="recorder-standing")

    async def stop(self) -> None:
        """Stop checking."""
        self._stopping.set()
        if self._task is not None:
            await self._task

    def why(self) -> str | None:
        """Why nothing can be recorded now; None if no problem is known."""
        gone = self._backend.trouble()
        if gone is not None:
            return gone
        if self._writing_since is not None:
            waits_s = time.monotonic() - self._writing_since
            if waits_s > self._patience_s:
                return f"a commit has waited for {waits_s:.0f} s: another program locks the store, or its disk hangs"
        return self._failed

    def writing(self) -> _NotedCommit:
        """A context around one commit: its duration and outcome are noted. Only one commit runs at a time."""
        return self._noted

    async def begin(self) -> None:
        """Wait for the end of another commit, and begin one."""
        await self._one.acquire()
        self._writing_since = time.monotonic()

    def end(self, error: BaseException | None) -> None:
        """End a commit."""
        if error is None:
            self._failed, self.away = None, False
        elif isinstance(error, StoreUnavailable):
            self._failed = str(error)
        self._writing_since = None
        self._one.release()

    async def _run(self) -> None:
        while not self._stopping.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._look_every_s):
                    await self._stopping.wait()
            self._look()
            if self._failed is not None and self._writing_since is None and not self._stopping.is_set():
                await self._ask_again()

    def _look(self) -> None:
        why = self.why()
        self.away = why is not None
        if why is not None and self._told is None:
            self.alarms += 1
        if why is not None:
            self._alarm(logging.ERROR, "NOTHING CAN BE RECORDED: %s", why)
        elif self._told is not None:
            log.warning("calls are recorded again")
            self.on_return()
        self._told = why

    async def _ask_again(self) -> None:
        with contextlib.suppress(StoreUnavailable):
            async with self.writing():
                await self._backend.write(_touch)


def _touch(ex: Executor) -> None:
    ex.many(_TOUCH, [()])

"""The one thread that owns torch, so that the event loop can renew leases and request a stop.

Torch's thread pool and settings belong to the thread that first used them. Refuses: what runs on it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class TorchThread:
    """Runs one job at a time, in order."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()  # a second job must not undo the request to stop the first one
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        self._cancelled = threading.Event()
        self._closing = threading.Event()

    def stopped(self) -> bool:
        """Whether the job should end early: its awaiter was cancelled, or the thread closes."""
        return self._cancelled.is_set() or self._closing.is_set()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the job in the thread. If cancelled, ask it to stop, and wait until it has stopped."""
        async with self._turn:
            self._cancelled.clear()
            future = asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *args, **kwargs))
            try:
                return await asyncio.shield(future)
            except asyncio.CancelledError:
                self._cancelled.set()
                await asyncio.wait([future])
                raise

    async def close(self) -> None:
        """Ask a running job to stop, wait for it, end the thread."""
        self._closing.set()
        await asyncio.to_thread(self._executor.shutdown)

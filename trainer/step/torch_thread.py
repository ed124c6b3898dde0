"""The one thread that owns torch.

Owns: running blocking work there so that the event loop goes on renewing leases, and asking it to stop.
Refuses: what the work is. (Torch's thread pool and its settings belong to the thread that first used them.)
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
    """Runs one piece of work at a time, in order."""

    def __init__(self) -> None:
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="torch")
        self._cancelled = threading.Event()
        self._closing = threading.Event()

    def stopped(self) -> bool:
        """Whether the work should end early: its awaiter was cancelled, or the thread is to close."""
        return self._cancelled.is_set() or self._closing.is_set()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do the work in the thread. When cancelled, ask it to stop and wait until it did: it is never left behind."""
        self._cancelled.clear()
        future = asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._cancelled.set()
            await asyncio.wait([future])
            raise

    async def close(self) -> None:
        """Ask running work to stop, wait for it, end the thread."""
        self._closing.set()
        await asyncio.to_thread(self._executor.shutdown)

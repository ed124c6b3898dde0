"""Stop signals (SIGINT from Ctrl-C, SIGTERM) as Hone's programs receive them. Refuses: what a program does then."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def call_on_stop(stop: Callable[[], object]) -> Iterator[None]:
    """Call `stop` in the running event loop on each stop signal, until the context is left."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)

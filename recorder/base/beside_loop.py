"""Long work about one request, in threads beside the event loop.

Owns: the threads, and how many work at once. Refuses: which work is long (`RecordedRequest.is_large`).

Only Python's own steps let the loop run meanwhile: a single call into C keeps the interpreter until it returns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_threads = ThreadPoolExecutor(2, thread_name_prefix="beside-loop")


async def run_beside_loop(work: Callable[[], T], *, large: bool = True) -> T:
    """Return or raise what `work` does. If it is not `large`, it is called at once."""
    return await asyncio.get_running_loop().run_in_executor(_threads, work) if large else work()

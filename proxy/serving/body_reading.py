"""Reading and writing request bodies: with the limits of the settings, and large ones in threads.

Owns: which bodies are read or written in a thread, and how many at once. Refuses: the limits themselves
(`proxy.dialects.engine_fields`), and receiving bodies (`proxy.http.asgi`).

The limits bound how long the parser holds the interpreter. Everything else about a body is Python, which lets the event
loop run every few milliseconds if it runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from proxy.dialects.base import DialectRules
from proxy.settings.sections import ProxySettings
from recorder.messages.calls import RecordedRequest

T = TypeVar("T")

_AT_ONCE_BYTES: Final = 1 << 16  # read in at most 5 ms, whatever they are
_threads = ThreadPoolExecutor(2, thread_name_prefix="bodies")


def dialect_rules(settings: ProxySettings) -> DialectRules:
    """Return what the dialects need of the settings."""
    return DialectRules(
        defaults=settings.defaults,
        media_hosts=frozenset(settings.allowed_media_hosts),
        strict_tools=settings.strict_tools,
        forced_tools=settings.forced_tools,
        max_messages=settings.max_messages,
        max_values=settings.max_body_values,
    )


async def work_beside_loop(size_bytes: int, work: Callable[[], T]) -> T:
    """Return or raise what `work` does with a body of this size; a large one is read or written in a thread."""
    if size_bytes <= _AT_ONCE_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_threads, work)


async def write_beside_loop(request: RecordedRequest, write: Callable[[], bytes]) -> bytes:
    """Return the body that `write` returns for a request; that of a large one is written in a thread."""
    if not request.is_large:
        return write()
    return await asyncio.get_running_loop().run_in_executor(_threads, write)

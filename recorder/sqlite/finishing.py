"""Waits that are cancelled, and end no earlier for it.

Owns: seeing what was begun to its end before a cancellation goes on. Refuses: knowing what it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

R = TypeVar("R")


async def finished(awaitable: Awaitable[R]) -> R:
    """Wait for the end, however often this is cancelled meanwhile; then let the cancellation through.

    What the awaitable raises then is told nobody.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            try:
                await asyncio.wait([task])
            except asyncio.CancelledError:
                continue
        if not task.cancelled():
            task.exception()
        raise

"""Waiting for what other processes and tasks do: by looking, with a deadline, never by a fixed sleep."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(look: Callable[[], T | Awaitable[T]], within_s: float = 20.0) -> T:
    """Return the first true answer of `look`; fail when there is none in time."""
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        answer = await found if inspect.isawaitable(found) else found
        if answer:
            return answer
        assert time.monotonic() < deadline, f"never came true: {inspect.getsource(look).strip()}"
        await asyncio.sleep(0.01)

"""Waiting for what other processes and tasks do: by looking, with a deadline, never by a fixed sleep."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, overload

T = TypeVar("T")


@overload
async def until(look: Callable[[], Coroutine[Any, Any, T | None]], within_s: float = 20.0) -> T: ...
@overload
async def until(look: Callable[[], T | None], within_s: float = 20.0) -> T: ...
async def until(look: Callable[[], Any], within_s: float = 20.0) -> Any:
    """Return the first true answer of `look`; fail when there is none in time."""
    deadline = time.monotonic() + within_s
    while True:
        found = look()
        answer = await found if inspect.isawaitable(found) else found
        if answer:
            return answer
        assert time.monotonic() < deadline, f"never came true: {inspect.getsource(look).strip()}"
        await asyncio.sleep(0.01)

"""Waiting for what other processes and tasks do: by looking, with a deadline, never by a fixed sleep."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar, overload

T = TypeVar("T")

_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 0.1  # a program takes seconds to start, and to look takes time from it


@overload
async def until(look: Callable[[], Coroutine[Any, Any, T | None]], within_s: float = 20.0) -> T: ...
@overload
async def until(look: Callable[[], T | None], within_s: float = 20.0) -> T: ...
async def until(look: Callable[[], Any], within_s: float = 20.0) -> Any:
    """Return the first true answer of `look`; fail when there is none in time."""
    deadline = time.monotonic() + within_s
    pause_s = _FIRST_PAUSE_S
    while True:
        found = look()
        answer = await found if inspect.isawaitable(found) else found
        if answer:
            return answer
        assert time.monotonic() < deadline, f"never came true: {inspect.getsource(look).strip()}"
        await asyncio.sleep(pause_s)
        pause_s = min(1.2 * pause_s, _LONGEST_PAUSE_S)

"""Views of a whole store that take long on a large one: asked for once however many want them, the last one meanwhile.

Owns: when one is asked for anew, and how long anybody waits for it. Refuses: what is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

T = TypeVar("T")

PATIENCE_S: Final = 0.1  # a page may take 150 ms; of 100,000 runs the whole status takes most of a second
SLOW_S: Final = 0.5  # what takes longer is not asked for at once again
RESTS: Final = 10.0  # but when it has rested for so many times as long, so that it takes a tenth of a core at most
STALE_S: Final = 30.0  # what was found longer ago is shown to nobody


@dataclass(frozen=True, slots=True)
class _Found(Generic[T]):
    view: T
    at: float  # by the loop's clock
    took_s: float


class Kept(Generic[T]):
    """One view."""

    def __init__(self, ask: Callable[[], Awaitable[T]]) -> None:
        self._ask = ask
        self._asking: asyncio.Task[_Found[T]] | None = None
        self._last: _Found[T] | None = None

    async def now(self) -> T:
        """The view as it is, or where that takes long as it was shortly before. Raises what asking raises."""
        loop = asyncio.get_running_loop()
        last = self._last if self._last is not None and loop.time() - self._last.at < STALE_S else None
        if last is not None and last.took_s > SLOW_S and loop.time() - last.at < RESTS * last.took_s:
            return last.view
        asking = self._asked()
        if last is not None:
            done, _ = await asyncio.wait({asking}, timeout=PATIENCE_S)
            if not done:
                return last.view
        return (await asyncio.shield(asking)).view

    def _asked(self) -> asyncio.Task[_Found[T]]:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._find(), name="a kept view")
            self._asking.add_done_callback(_heard)
        return self._asking

    async def _find(self) -> _Found[T]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        view = await self._ask()
        self._last = _Found(view, loop.time(), loop.time() - began)
        return self._last


def _heard(asked: asyncio.Task[_Found[T]]) -> None:
    """An error is told to who waits; where nobody does, the next one asks again."""
    if not asked.cancelled():
        asked.exception()

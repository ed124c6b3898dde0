"""Work in batches that form by themselves: what comes while one batch is worked on is the next.

Owns: collecting items, and giving each its result. Refuses: waiting for a batch to fill: a lone item goes at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Batcher(Generic[T, R]):
    """Calls `work` with a list of items; it returns their results in the same order."""

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._work = work
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._worker: asyncio.Task[None] | None = None

    async def do(self, item: T) -> R:
        """The item's result. An exception of `work` is raised for every item of its batch."""
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._drain())
        return await result

    async def idle(self) -> None:
        """Wait until nothing is being worked on."""
        if self._worker is not None:
            await asyncio.gather(self._worker, return_exceptions=True)

    async def _drain(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                results: Sequence[R | Exception] = await self._work([item for item, _ in batch])
            except Exception as e:  # noqa: BLE001 - boundary: it is raised where each item is waited for
                results = [e] * len(batch)
            for (_, future), result in zip(batch, results, strict=True):
                _settle(future, result)


def _settle(future: asyncio.Future[R], result: R | Exception) -> None:
    if future.done():  # nobody waits any more
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)

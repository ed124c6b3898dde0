"""Running calls; those that run long are written to the store as open.

Owns: which calls have begun and not ended, and when a call has run long enough to be written. Refuses: the row itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

from recorder.messages.calls import RecordedCall


class OpenCalls:
    """The running calls of this process. It calls `show` with each call that runs longer than `after_s`."""

    def __init__(self, after_s: float, show: Callable[[RecordedCall], Awaitable[None]]) -> None:
        self._after_s = after_s
        self._show = show
        self._turns: dict[str, RecordedCall] = {}
        self._due: deque[tuple[float, str]] = deque()  # in order of time, because every call waits equally long
        self._some = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def __contains__(self, call_id: str) -> bool:
        return call_id in self._turns

    def start(self) -> None:
        """Start watching."""
        self._task = asyncio.get_running_loop().create_task(self._watch(), name="recorder-open-rows")

    async def stop(self) -> None:
        """Stop watching; rows of running calls are not changed."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def turns(self) -> Iterator[RecordedCall]:
        """Yield the running calls, as they were when they began."""
        return iter(tuple(self._turns.values()))

    def begin(self, turn: RecordedCall) -> None:
        """Note that a call began."""
        self._turns[turn.call_id] = turn
        self._due.append((asyncio.get_running_loop().time() + self._after_s, turn.call_id))
        self._some.set()

    def end(self, call_id: str) -> None:
        """Note that a call ended."""
        self._turns.pop(call_id, None)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            while self._due and (self._due[0][0] <= loop.time() or self._due[0][1] not in self._turns):
                turn = self._turns.get(self._due.popleft()[1])
                if turn is not None:
                    await self._show(turn)
            if self._due:
                await asyncio.sleep(self._due[0][0] - loop.time())
            else:
                self._some.clear()
                await self._some.wait()

"""Comments on a silent event stream, so that nothing between engine and agent takes it for dead.

Owns: one timer a stream. Refuses: what is streamed.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from proxy.http.asgi import Send
from proxy.http.sse import KEEP_ALIVE

EVERY_S = 15.0


class Pulse:
    """`with Pulse(send) as pulse: await pulse.send(events)`: a comment follows every `every_s` without one."""

    __slots__ = ("_beating", "_busy", "_every_s", "_loop", "_send", "_sent_at", "_timer")

    def __init__(self, send: Send, every_s: float = EVERY_S) -> None:
        self._send = send
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._busy = False
        self._beating: asyncio.Task[None] | None = None

    def __enter__(self) -> Pulse:
        self._sent_at = self._loop.time()
        self._timer = self._loop.call_later(self._every_s, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()

    async def send(self, events: bytes) -> None:
        """Send events; a slow reader makes this wait, and the engine with it."""
        self._busy = True
        await self._send({"type": "http.response.body", "body": events, "more_body": True})
        self._busy = False
        self._sent_at = self._loop.time()

    def _look(self) -> None:
        """Come again when the silence could be long enough; say something where it is."""
        left_s = self._sent_at + self._every_s - self._loop.time()
        if left_s <= 0.001:
            if not self._busy:
                self._beating = self._loop.create_task(self.send(KEEP_ALIVE))
            left_s = self._every_s
        self._timer = self._loop.call_later(left_s, self._look)

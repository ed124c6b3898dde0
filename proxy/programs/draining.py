"""Ending the requests that run, and answering those that still come.

Owns: which requests run, refusing new ones while the server stops, and ending in words what does not end by itself.
Refuses: sockets and signals (`proxy.programs.server`), and how a call ends that is cut (`proxy.serving.calls`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Final

from proxy.admission.admission import unaddressed
from proxy.admission.replies import say
from proxy.http.asgi import App, Message, Receive, Scope, Send, discard
from proxy.http.stopping import Stop, Stopping

log = logging.getLogger(__name__)

END_S: Final = 3.0  # for a call that was cut to commit its row and to tell its client, longer than a commit may take
CANCEL_S: Final = 1.0
BODY_S: Final = 1.0  # for the body of a refused request to arrive: a client that still sends reads no answer
_POLL_S: Final = 0.05
_CLOSE: Final = (b"connection", b"close")


class Draining:
    """Wraps the whole app."""

    def __init__(self, app: App, stop: Stop) -> None:
        self._app = app
        self._stop = stop
        self._running: set[asyncio.Task[object]] = set()
        self._refusing = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or say that none is served any more."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._refusing:
            await _refuse(scope, receive, send)
        else:
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            try:
                await self._serve(scope, receive, send, task)
            finally:
                self._running.discard(task)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, task: asyncio.Task[object]) -> None:
        began = False

        async def told(message: Message) -> None:
            nonlocal began
            if message["type"] == "http.response.start":
                began = True
                if self._refusing:  # this connection takes no other request
                    message = {**message, "headers": [*message["headers"], _CLOSE]}
            await send(message)

        try:
            await self._app(scope, receive, told)
        except asyncio.CancelledError:
            if not self._stop.over or began:
                raise
            task.uncancel()
            await say(told, _path(scope), _stopping())

    async def drain(self, patience_s: float, hurry: Callable[[], bool]) -> None:
        """Refuse what comes, wait for what runs, and end what runs for longer than `patience_s`, or until `hurry`."""
        self._refusing = True
        await self._until_idle(patience_s, hurry)
        if not self._running:
            return
        log.warning("ending %d requests that run for longer than the stop may take", len(self._running))
        self._stop.cut()
        await self._until_idle(END_S)
        left = list(self._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CANCEL_S)

    async def _until_idle(self, limit_s: float, hurry: Callable[[], bool] = lambda: False) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while self._running and not hurry():
                    await asyncio.wait(self._running, timeout=_POLL_S)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BODY_S):
            await discard(receive)
    await say(send, _path(scope), _stopping(), [_CLOSE])


def _path(scope: Scope) -> str:
    return unaddressed(scope.get("raw_path") or scope["path"].encode())


def _stopping() -> Stopping:
    return Stopping("this proxy is stopping: ask again in a moment.")

"""Drain a stopping server: finish running requests, refuse new ones with 503, and close the socket without resets.

Refuses: signals and when to stop (`proxy.supervision.serve`), and how an interrupted call ends (`proxy.serving.calls`).

The kernel accepts connections to a listening socket before the program sees them, and resets the unseen ones when the
socket closes. Therefore new connections are dropped first: their clients retry a second later and get an orderly
refusal.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import socket
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Final

from proxy.admission.middleware import strip_address
from proxy.admission.replies import send_error
from proxy.http.asgi import App, Message, Receive, Scope, Send, discard_body
from proxy.http.shutdown import REQUEST, RunningRequest, Shutdown, ShuttingDown

log = logging.getLogger(__name__)

END_S: Final = 3.0  # for an interrupted call to commit its row and answer its client; longer than a commit takes
CANCEL_S: Final = 1.0
BODY_S: Final = 1.0  # for reading the body of a refused request: a client that still sends does not read the answer
_POLL_S: Final = 0.05
_CLOSE: Final = (b"connection", b"close")


class DrainMiddleware:
    """Middleware around the whole app."""

    def __init__(self, app: App, stop: Shutdown) -> None:
        self._app = app
        self._stop = stop
        self._running: dict[asyncio.Task[object], RunningRequest] = {}
        self._refusing = False
        self._ending = False  # cancellations are from `drain` now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or answer 503 while draining."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif self._refusing:
            await _refuse(scope, receive, send)
        else:
            task = asyncio.current_task()
            assert task is not None
            self._running[task] = scope[REQUEST] = RunningRequest()
            try:
                await self._serve(scope, receive, send, task)
            finally:
                del self._running[task]

    async def _serve(self, scope: Scope, receive: Receive, send: Send, task: asyncio.Task[object]) -> None:
        running = scope[REQUEST]

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                running.answered = True
                if self._refusing:  # the connection ends after this answer
                    message = {**message, "headers": [*message["headers"], _CLOSE]}
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except asyncio.CancelledError:
            if not self._ending:
                raise
            task.uncancel()
            if not running.answered:
                await send_error(send_noted, _path(scope), _stopping())
            elif running.listens:
                await send({"type": "http.response.body"})
            else:
                raise

    async def drain(self, patience_s: float, hurry: Callable[[], bool]) -> None:
        """Refuse new requests, wait `patience_s` or until `hurry()` for running ones, then interrupt the rest."""
        self._refusing = True
        await self._until_idle(patience_s, hurry)
        if working := self._working():
            log.warning("interrupting %d requests that did not end within the stop timeout", len(working))
            self._stop.cut()
            await self._until_idle(END_S)
        self._ending = True
        left = list(self._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CANCEL_S)

    def _working(self) -> list[asyncio.Task[object]]:
        """The running requests that end by themselves, unlike event streams."""
        return [task for task, request in self._running.items() if not request.listens]

    async def _until_idle(self, limit_s: float, hurry: Callable[[], bool] = lambda: False) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while (working := self._working()) and not hurry():
                    await asyncio.wait(working, timeout=_POLL_S)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(BODY_S):
            await discard_body(receive)
    await send_error(send, _path(scope), _stopping(), [_CLOSE])


def _path(scope: Scope) -> str:
    return strip_address(scope.get("raw_path") or scope["path"].encode())


def _stopping() -> ShuttingDown:
    return ShuttingDown("this proxy is stopping: retry in a moment.")


LINGER_S: Final = 0.05  # for accepting connections that exist already
SILENT_S: Final = 1.0  # for a new connection to send its request; longer than a busy client needs
_LOOKS: Final = 100

# Linux's socket filter (SO_ATTACH_FILTER, linux/filter.h) sees the TCP header: connection requests are dropped.
_ATTACH_FILTER: Final = 26
_NO_SYN: Final = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, 13),  # load the flags byte
        (0x45, 0, 1, 0x02),  # is SYN set?
        (0x06, 0, 0, 0),  # yes: drop the packet
        (0x06, 0, 0, 0xFFFFFFFF),  # no: keep it
    )
)


async def close_listener(sockets: Iterable[socket.socket]) -> None:
    """Stop accepting connections; returns after existing ones were accepted."""
    for sock in sockets:
        sock.listen(0)  # without the filter, the kernel queues at most one
        if sys.platform == "linux":
            _drop_new(sock)
    await asyncio.sleep(LINGER_S)


def _drop_new(sock: socket.socket) -> None:
    code = ctypes.create_string_buffer(_NO_SYN)
    program = struct.pack("HP", len(_NO_SYN) // 8, ctypes.addressof(code))
    with contextlib.suppress(OSError):  # not supported here: the short queue has to suffice
        sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)


async def wait_for_requests(silent: Callable[[], bool]) -> None:
    """Wait up to `SILENT_S` until every connection has sent a request."""
    for _ in range(_LOOKS):
        if not silent():
            return
        await asyncio.sleep(SILENT_S / _LOOKS)

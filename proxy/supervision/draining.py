"""Ending the requests that run, and answering those that still come.

Owns: which requests run, refusing new ones while the server stops, and ending in words what does not end by itself.
Refuses: sockets and signals (`proxy.supervision.serve`), and how a call ends that is cut (`proxy.serving.calls`).

The end of a listening socket, without a reset for who comes just then.

Owns: turning away who is not connected yet, and waiting for what those who are have to say. Refuses: what they are told
(`proxy.supervision.draining`), and when (`proxy.supervision.serve`).

The kernel connects clients to a socket that listens before the program hears of them, and resets those whom it has not
heard of when the socket is closed. Who is turned away first tries again a second later, and is refused in order.
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

END_S: Final = 3.0  # for a call that was cut to commit its row and to tell its client, longer than a commit may take
CANCEL_S: Final = 1.0
BODY_S: Final = 1.0  # for the body of a refused request to arrive: a client that still sends reads no answer
_POLL_S: Final = 0.05
_CLOSE: Final = (b"connection", b"close")


class DrainMiddleware:
    """Wraps the whole app."""

    def __init__(self, app: App, stop: Shutdown) -> None:
        self._app = app
        self._stop = stop
        self._running: dict[asyncio.Task[object], RunningRequest] = {}
        self._refusing = False
        self._ending = False  # who is cancelled now is cancelled by us

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, or say that none is served any more."""
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
            if not self._ending:
                raise
            task.uncancel()
            if not began:
                await send_error(told, _path(scope), _stopping())
            elif scope[REQUEST].listens:
                await send({"type": "http.response.body"})
            else:
                raise

    async def drain(self, patience_s: float, hurry: Callable[[], bool]) -> None:
        """Refuse what comes, wait for what runs, and end what runs for longer than `patience_s`, or until `hurry`."""
        self._refusing = True
        await self._until_idle(patience_s, hurry)
        if working := self._working():
            log.warning("ending %d requests that run for longer than the stop may take", len(working))
            self._stop.cut()
            await self._until_idle(END_S)
        self._ending = True
        left = list(self._running)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=CANCEL_S)

    def _working(self) -> list[asyncio.Task[object]]:
        """Requests that come to an end by themselves."""
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
    return ShuttingDown("this proxy is stopping: ask again in a moment.")


LINGER_S: Final = 0.05  # for connections that were made already to be accepted
SILENT_S: Final = 1.0  # for who connected to begin a request; longer than a busy client needs
_LOOKS: Final = 100

# Linux's socket filter (SO_ATTACH_FILTER, linux/filter.h), which sees TCP's header: what asks to connect is dropped.
_ATTACH_FILTER: Final = 26
_NO_SYN: Final = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, 13),  # load the byte of the flags
        (0x45, 0, 1, 0x02),  # is SYN among them?
        (0x06, 0, 0, 0),  # then drop it,
        (0x06, 0, 0, 0xFFFFFFFF),  # else keep it whole
    )
)


async def close_listener(sockets: Iterable[socket.socket]) -> None:
    """Let nobody connect any more; returns when those who had connected were accepted."""
    for sock in sockets:
        sock.listen(0)  # where there is no filter, the kernel queues one at most
        if sys.platform == "linux":
            _drop_new(sock)
    await asyncio.sleep(LINGER_S)


def _drop_new(sock: socket.socket) -> None:
    code = ctypes.create_string_buffer(_NO_SYN)
    program = struct.pack("HP", len(_NO_SYN) // 8, ctypes.addressof(code))
    with contextlib.suppress(OSError):  # a kernel or a sandbox without: the short queue has to do
        sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)


async def wait_for_requests(silent: Callable[[], bool]) -> None:
    """Wait until every connection has begun a request, though not long for one that says nothing."""
    for _ in range(_LOOKS):
        if not silent():
            return
        await asyncio.sleep(SILENT_S / _LOOKS)

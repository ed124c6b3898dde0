"""Raw ASGI in small pieces: reading a body, answering, noticing that the client hung up.

Owns: the ASGI messages. Refuses: knowing what is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from types import TracebackType
from typing import Any

from proxy.errors import BadRequest, ClientDisconnected, TooLarge
from proxy.http.shutdown import Shutdown, ShuttingDown

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]
RawHeaders = list[tuple[bytes, bytes]]

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream; charset=utf-8"


async def read_body(headers: dict[bytes, bytes], receive: Receive, limit_bytes: int) -> bytes:
    """The whole request body. Raises TooLarge, and ClientGone where the client left while sending."""
    declared = headers.get(b"content-length", b"0")
    if not declared.isdigit():
        raise BadRequest("the header content-length is not a number")
    if int(declared) > limit_bytes:
        raise _too_large(int(declared), limit_bytes)
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        return _bounded(body, limit_bytes)
    parts, size = [body], len(body)
    while message["type"] == "http.request" and message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > limit_bytes:
            raise _too_large(size, limit_bytes)
    if message["type"] == "http.disconnect":
        raise ClientDisconnected("the client hung up while it sent its request")
    return b"".join(parts)


def _bounded(body: bytes, limit_bytes: int) -> bytes:
    if len(body) > limit_bytes:
        raise _too_large(len(body), limit_bytes)
    return body


def _too_large(size: int, limit_bytes: int) -> TooLarge:
    return TooLarge(
        f"the body has {size} bytes or more, at most {limit_bytes} are read: shorten the conversation, or raise "
        "`max_body_bytes` in the [proxy] section of hone.toml."
    )


async def respond(
    send: Send, status: int, body: bytes, content_type: bytes = JSON, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send a whole answer."""
    raw = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


async def begin_stream(send: Send, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send the head of an event stream."""
    raw = [(b"content-type", EVENT_STREAM), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": raw})


class DisconnectWatch:
    """`async with Connected(receive, stop):` cancels the block when the client hangs up; ClientGone is raised after it.

    So it does with Stopping when this process has no more time. The cancellation is taken back, so that what follows
    the block (recording what was sampled) runs undisturbed.
    """

    def __init__(self, receive: Receive, stop: Shutdown) -> None:
        self._receive = receive
        self._stop = stop
        self._why: ClientDisconnected | ShuttingDown | None = None

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._task = task
        self._watch = asyncio.ensure_future(self._until_gone())
        self._stop.wait_with(self._cut)

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._end(ClientDisconnected("the client hung up before its answer was whole"))

    def _cut(self) -> None:
        self._end(ShuttingDown("this proxy is stopping, and the call was cut before its answer was whole: ask again."))

    def _end(self, why: ClientDisconnected | ShuttingDown) -> None:
        if self._why is None:
            self._why = why
            self._task.cancel()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._watch.cancel()
        self._stop.forget(self._cut)
        if self._why is None:
            return
        # Ours, unless somebody else asked for it too (the server stops): then it stays cancelled.
        if self._task.uncancel() == 0 and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise self._why from None


async def discard_body(receive: Receive) -> None:
    """Read a request body to its end and drop it, so that the connection can be used again."""
    while (await receive()).get("more_body"):
        pass

"""Raw ASGI helpers: read a body, send an answer, notice that the client hung up.

Refuses: knowledge of what is served.
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
    """Return the whole request body.

    Raises BadRequest for an invalid content-length, TooLarge, and ClientDisconnected where the client hung up while
    sending.
    """
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
        raise ClientDisconnected("the client hung up while sending its request")
    return b"".join(parts)


def _bounded(body: bytes, limit_bytes: int) -> bytes:
    if len(body) > limit_bytes:
        raise _too_large(len(body), limit_bytes)
    return body


def _too_large(size: int, limit_bytes: int) -> TooLarge:
    return TooLarge(
        f"the body has {size} bytes or more; the limit is {limit_bytes}: shorten the conversation, or raise "
        "`max_body_bytes` in the [proxy] section of hone.toml."
    )


async def respond(
    send: Send, status: int, body: bytes, content_type: bytes = JSON, headers: Iterable[tuple[bytes, bytes]] = ()
) -> None:
    """Send a complete answer."""
    raw = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *headers]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body})


async def begin_stream(send: Send, headers: Iterable[tuple[bytes, bytes]] = ()) -> None:
    """Send status 200 and the headers of an event stream."""
    raw = [(b"content-type", EVENT_STREAM), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"), *headers]
    await send({"type": "http.response.start", "status": 200, "headers": raw})


class DisconnectWatch:
    """Cancel a block when the client hangs up: `async with DisconnectWatch(receive, stop):`.

    Raises ClientDisconnected after the block, or ShuttingDown where this process stops. The cancellation is taken back,
    so that the code after the block, which records the sampled tokens, runs undisturbed.
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
        self._end(ClientDisconnected("the client hung up before its answer was complete"))

    def _cut(self) -> None:
        self._end(
            ShuttingDown(
                "this proxy is stopping and ended the call before its answer was complete: send the request again."
            )
        )

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
        # If something else cancelled the task too (the server stops), it stays cancelled.
        if self._task.uncancel() == 0 and (kind is None or issubclass(kind, asyncio.CancelledError)):
            raise self._why from None


async def discard_body(receive: Receive) -> None:
    """Read a request body to its end and drop it, so that the connection can be reused."""
    while (await receive()).get("more_body"):
        pass

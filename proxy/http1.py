"""A small HTTP/1.1 client for the hot path: keep-alive connections, one request at a time each, on httptools' parser.

Owns: connections to engines, what is done about stale ones, and that a request which is given up is aborted at once.
Refuses: redirects, cookies, compression, HTTP/2: no engine needs them. Everything that is not hot uses httpx.

Why not a library: measured in front of the same upstream (benchmarks/upstream.py), aiohttp costs about twice the CPU
time a request, and does not tell whether a failed connection was a reused one; pyreqwest goes on with a request that
was cancelled before its answer began, so that an engine would work on for a client that is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from types import TracebackType
from typing import cast
from urllib.parse import urlsplit

import httptools

from proxy.errors import EngineBroke, EngineUnreachable

IDLE_S = 4.0  # engines (uvicorn) close an idle connection after 5 s: ours is given up before
HIGH_WATER_BYTES = 256 * 1024  # unread answer at which the engine is made to wait


class Stale(Exception):
    """A reused connection was closed before one byte of the answer came."""


class Origin:
    """A server: how to connect to it, and the connections that wait for use."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise EngineUnreachable(f"{url!r} is no URL of an engine: write it as http://host:port")
        self.url = url
        self.host = parts.hostname
        self.ssl = ssl.create_default_context() if parts.scheme == "https" else None
        self.port = parts.port or (80 if self.ssl is None else 443)
        self.prefix = parts.path.rstrip("/")
        self.netloc = parts.netloc.rpartition("@")[2]
        self.idle: list[Connection] = []


class Connection(asyncio.Protocol):
    """One connection and the answer it is reading."""

    def __init__(self, origin: Origin, read_timeout_s: float) -> None:
        self._origin = origin
        self._read_timeout_s = read_timeout_s
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._transport: asyncio.Transport
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._error: Exception | None = None
        self._busy = False
        self._heard_at = 0.0
        self.idle_since = 0.0
        self.closed = False
        self._forget()

    def _forget(self) -> None:
        """Make ready for the next answer."""
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self._heard = False
        self._head_complete = False
        self._complete = False
        self._reusable = False
        self._parts: list[bytes] = []
        self._unread_bytes = 0
        self._paused = False

    # --- what the loop tells us

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport (uvloop's does not inherit from asyncio's)."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Parse; what is sent while nothing was asked is an error."""
        if not self._busy:
            self.abort()
            return
        self._heard = True
        self._heard_at = self._loop.time()
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as e:
            self._fail(EngineBroke(f"the engine at {self._origin.url} sent what is no HTTP answer: {e}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """The server, or we, closed the connection."""
        self.closed = True
        if self in self._origin.idle:
            self._origin.idle.remove(self)
        if self._complete or not self._busy:
            return
        if self._head_complete and not {b"content-length", b"transfer-encoding"} & self.headers.keys() and exc is None:
            self.on_message_complete()  # such a body ends where the connection does
        elif self._heard:
            self._fail(EngineBroke(f"the engine at {self._origin.url} broke off in the middle of its answer"))
        else:
            self._fail(Stale(f"the engine at {self._origin.url} closed the connection without an answer"))

    # --- what the parser tells us

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header; names in lower case."""
        self.headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        """The head is whole. An informational one (1xx) only precedes the answer."""
        self.status = self._parser.get_status_code()
        if self.status >= 200:
            self._head_complete = True
            self._wake()

    def on_body(self, body: bytes) -> None:
        """Keep what came; a reader that is far behind makes the engine wait."""
        self._parts.append(body)
        self._unread_bytes += len(body)
        if self._unread_bytes > HIGH_WATER_BYTES and not self._paused:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if not self._head_complete:
            self.headers.clear()
            return
        self._complete = True
        self._reusable = not self.closed and self._parser.should_keep_alive()
        self._wake()

    # --- what the caller does

    async def send(self, request: bytes) -> None:
        """Send a request and wait for the head of its answer. Raises Stale, EngineBroke."""
        self._forget()
        self._busy = True
        self._heard_at = self._loop.time()
        self._transport.write(request)
        while not self._head_complete:
            await self._wait()

    async def chunk(self) -> bytes:
        """What came of the body since the last call, waiting for more where nothing did; b"" at its end."""
        while not self._parts and not self._complete:
            await self._wait()
        data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._unread_bytes = 0
        if self._paused and not self.closed:
            self._paused = False
            self._transport.resume_reading()
        return data

    async def body(self) -> bytes:
        """The whole body."""
        parts = []
        while data := await self.chunk():
            parts.append(data)
        return b"".join(parts)

    def done(self) -> None:
        """Give the connection back; abort it, and the engine's work, where the answer was not read to its end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._reusable or self.closed:
            self.abort()
            return
        self._busy = False
        self.idle_since = self._loop.time()
        self._origin.idle.append(self)

    def abort(self) -> None:
        """Close the connection at once."""
        self.closed = True
        self._transport.abort()

    async def _wait(self) -> None:
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        if self._timer is None:
            self._timer = self._loop.call_later(self._read_timeout_s, self._check_silence)
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        self._error = error
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)

    def _check_silence(self) -> None:
        """One timer a request: it looks when the engine was last heard, and comes again for what is left."""
        left_s = self._heard_at + self._read_timeout_s - self._loop.time()
        if left_s > 0.001 or self._waiter is None:  # with no waiter it is the client who is slow
            self._timer = self._loop.call_later(max(left_s, 1.0), self._check_silence)
            return
        self._timer = None
        self._fail(EngineBroke(f"the engine at {self._origin.url} sent nothing for {self._read_timeout_s:g} s"))


class Reply:
    """An answer whose head is there. `async with` it: what is not read to the end is aborted."""

    __slots__ = ("_connection", "headers", "status")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.status = connection.status
        self.headers: Mapping[bytes, bytes] = connection.headers

    async def __aenter__(self) -> Reply:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._connection.done()

    async def chunk(self) -> bytes:
        """The next bytes of the body as they come; b"" at its end. Raises EngineBroke."""
        return await self._connection.chunk()

    async def body(self) -> bytes:
        """The whole body. Raises EngineBroke."""
        return await self._connection.body()


class Client:
    """Sends requests to engines. One a process; `close()` it."""

    def __init__(self, *, connect_timeout_s: float, read_timeout_s: float, idle_s: float = IDLE_S) -> None:
        self._connect_timeout_s = connect_timeout_s
        self._read_timeout_s = read_timeout_s
        self._idle_s = idle_s
        self._origins: dict[str, Origin] = {}

    async def send(
        self, url: str, path: str, body: bytes | None = None, *, key: str | None = None, method: str = "POST"
    ) -> Reply:
        """Send JSON (`body` as bytes) to `path` of the server at `url`; returns when the head of the answer is there.

        A kept connection that the server closed before a byte of the answer came costs one more try on a new one. No
        other failure is tried again: a request that stopped an engine must not be sent to the next. Raises
        EngineUnreachable, EngineBroke.
        """
        origin = self._origins.get(url)
        if origin is None:
            origin = self._origins[url] = Origin(url)
        request = _encode(origin, method, path, body, key)
        kept = self._kept(origin)
        if kept is not None:
            with contextlib.suppress(Stale):  # a new connection tells whether it still serves
                return await _send(kept, request)
        connection = await self._connect(origin)
        try:
            return await _send(connection, request)
        except Stale as e:
            raise EngineBroke(str(e)) from e

    def _kept(self, origin: Origin) -> Connection | None:
        """The connection that was used last, as long as the server will not have closed it."""
        now = asyncio.get_running_loop().time()
        while origin.idle:
            connection = origin.idle.pop()
            if not connection.closed and now - connection.idle_since < self._idle_s:
                return connection
            connection.abort()
        return None

    async def _connect(self, origin: Origin) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                _, connection = await loop.create_connection(
                    lambda: Connection(origin, self._read_timeout_s), origin.host, origin.port, ssl=origin.ssl
                )
        except (OSError, TimeoutError) as e:
            why = str(e) or f"no connection within {self._connect_timeout_s:g} s"
            raise EngineUnreachable(f"the engine at {origin.url} cannot be reached: {why}") from e
        return connection

    async def close(self) -> None:
        """Close the connections that wait."""
        for origin in self._origins.values():
            while origin.idle:
                origin.idle.pop().abort()
        await asyncio.sleep(0)  # an aborted transport closes its socket in the loop's next turn


async def _send(connection: Connection, request: bytes) -> Reply:
    try:
        await connection.send(request)
    except BaseException:
        connection.abort()
        raise
    return Reply(connection)


def _encode(origin: Origin, method: str, path: str, body: bytes | None, key: str | None) -> bytes:
    head = f"{method} {origin.prefix}{path} HTTP/1.1\r\nhost: {origin.netloc}\r\naccept-encoding: identity\r\n"
    if key is not None:
        head += f"authorization: Bearer {key}\r\n"
    if body is None:
        return head.encode() + b"\r\n"
    return head.encode() + b"content-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body) + body

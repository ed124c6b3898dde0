"""Requests to engines over aiohttp, the fastest client that also aborts a request on demand.

Owns: connections to engines, retries on stale ones, the limits of silence and size of an answer, which stand still
while an engine is asleep for a trainer, and aborting an answer that is not read to its end at the engine. Refuses:
which engine, and what a body means.

Chosen by measurement (benchmarks/upstream.py): pyreqwest needs half the CPU time per request, but does not abort a
request that is cancelled before its answer begins: an engine would continue to work for a disconnected client.

aiohttp's own read timeout is not enough: when its parser rejects the framing of chunks, it closes the connection and
drops the timeout without an error, so that the reader of the body would wait for ever. `BodyReader` adds a limit.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from types import TracebackType

import aiohttp
from yarl import URL

from proxy.errors import EngineError, EngineFailed, EngineUnreachable
from recorder.base.connection_failures import describe_failure, without_class_names

LOOK_S = 1.0  # between two checks: a lost connection is noticed within this time
IsPaused = Callable[[], bool]


def never_paused() -> bool:
    """Return False: the answers of a sender never stand still."""
    return False


class BodyReader:
    """Reads one body. `close()` it.

    A stream has hundreds of waits, and a timeout for each would cost 4 µs. Here each wait only sets a deadline, which
    costs a tenth of that, and one timer checks them.
    """

    __slots__ = ("_content", "_is_paused", "_limit_s", "_loop", "_protocol", "_timer", "_until")

    def __init__(self, response: aiohttp.ClientResponse, limit_s: float, is_paused: IsPaused = never_paused) -> None:
        """`is_paused`: whether the sender's answers stand still; the limit does not run meanwhile."""
        self._content = response.content
        self._is_paused = is_paused
        self._protocol = response.connection.protocol if response.connection is not None else None
        self._limit_s = limit_s
        self._until = math.inf  # deadline of the current wait; infinite: nothing waits
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(min(limit_s, LOOK_S), self._look)

    async def chunk(self) -> bytes:
        """Return the next bytes as they come; b"" at the end. Raises TimeoutError, OSError, aiohttp.ClientError."""
        self._until = self._loop.time() + self._limit_s
        try:
            return await self._content.readany()
        except RuntimeError as e:  # the connection was lost before the wait
            raise _gone() from e
        finally:
            self._until = math.inf

    def close(self) -> None:
        """Stop the timer."""
        self._timer.cancel()

    def _look(self) -> None:
        """End a wait that is past its deadline or has lost its connection; set the timer for the next check."""
        if self._until < math.inf and self._is_paused():
            self._until = self._loop.time() + self._limit_s
        left_s = self._until - self._loop.time()
        if left_s <= 0:
            self._content.set_exception(TimeoutError())
        elif left_s < math.inf and self._is_lost():
            self._content.set_exception(_gone())
        else:
            self._timer = self._loop.call_later(min(left_s, self._limit_s, LOOK_S), self._look)

    def _is_lost(self) -> bool:
        """Whether the connection is lost before the end of the body."""
        return self._protocol is not None and not self._protocol.connected and not self._content.is_eof()


def _gone() -> aiohttp.ClientPayloadError:
    return aiohttp.ClientPayloadError("the connection was closed in the middle of a body")


def pausable_timeout(limit_s: float, is_paused: IsPaused) -> AbstractAsyncContextManager[object]:
    """Limit a block to so many seconds, as `asyncio.timeout` does; they begin again at the end of a pause."""
    return asyncio.timeout(limit_s) if is_paused is never_paused else _with_pauses(limit_s, is_paused)


@asynccontextmanager
async def _with_pauses(limit_s: float, is_paused: IsPaused) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle | None = None
    async with asyncio.timeout(limit_s) as running:

        def look() -> None:
            nonlocal timer
            if is_paused():
                running.reschedule(loop.time() + limit_s)
            timer = loop.call_later(min(limit_s / 2, LOOK_S), look)

        look()
        try:
            yield
        finally:
            if timer is not None:
                timer.cancel()


IDLE_S = 4.0  # engines (uvicorn) close an idle connection after 5 s: ours is closed before
READ_BUFFER_BYTES = 256 * 1024  # unread bytes at which the engine has to wait
# The limit of a whole answer. The largest that an engine has reason to send are 2,048 embeddings of 4,096 numbers
# (170 MB) and 128 choices of 16,000 tokens with their logprobs (220 MB); a stream is bounded by its events.
MAX_BODY_BYTES = 256 * 1024 * 1024


class EngineReply:
    """An answer of which the headers have arrived. `async with` it: an answer that is not read to its end is
    aborted.
    """

    __slots__ = ("_error_mapper", "_is_paused", "_response", "_waiting", "headers", "status")

    def __init__(
        self, response: aiohttp.ClientResponse, error_mapper: EngineErrorMapper, is_paused: IsPaused = never_paused
    ) -> None:
        self._response = response
        self._is_paused = is_paused
        self._error_mapper = error_mapper
        self._waiting: BodyReader
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def __aenter__(self) -> EngineReply:
        self._waiting = BodyReader(self._response, self._error_mapper.read_timeout_s, self._is_paused)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._waiting.close()
        if self._response.connection is not None:  # it was not read to its end, or violated HTTP
            self._response.close()

    async def chunk(self) -> bytes:
        """Return the next bytes of the body as they come; b"" at its end. Raises EngineFailed."""
        try:
            return await self._waiting.chunk()
        except (TimeoutError, aiohttp.ClientError, OSError) as e:
            raise self._error_mapper.broke(e) from e

    async def body(self) -> bytes:
        """Return the whole body. Raises EngineFailed, also for more than MAX_BODY_BYTES."""
        parts: list[bytes] = []
        read_bytes = 0
        while chunk := await self.chunk():
            parts.append(chunk)
            read_bytes += len(chunk)
            if read_bytes > MAX_BODY_BYTES:
                raise self._error_mapper.too_large(MAX_BODY_BYTES)
        return b"".join(parts)


class EngineErrorMapper:
    """Translates aiohttp's errors about one engine into ours."""

    __slots__ = ("_url", "read_timeout_s")

    def __init__(self, url: str, read_timeout_s: float) -> None:
        self._url = url
        self.read_timeout_s = read_timeout_s

    def broke(self, error: Exception) -> EngineFailed:
        """Return the error for an answer that broke off."""
        if isinstance(error, TimeoutError):
            return EngineFailed(f"the engine at {self._url} sent nothing for {self.read_timeout_s:g} s")
        return EngineFailed(f"the engine at {self._url} broke off in the middle of its answer")

    def too_large(self, most_bytes: int) -> EngineFailed:
        """Return the error for an answer beyond the limit."""
        return EngineFailed(f"the engine at {self._url} sent an answer of more than {most_bytes} bytes")

    def failed(self, error: Exception) -> EngineError:
        """Return the error for a request without an answer."""
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
            return EngineUnreachable(f"the engine at {self._url} cannot be reached: {describe_failure(error)}")
        if isinstance(error, TimeoutError):
            return self.broke(error)
        if isinstance(error, aiohttp.ServerDisconnectedError | OSError):
            return EngineFailed(f"the engine at {self._url} closed the connection without an answer")
        why = without_class_names(str(error)) or "no reason given"
        return EngineFailed(f"the engine at {self._url} sent an answer that is not valid HTTP: {why}")


class Client:
    """Sends requests to engines. One per process; `close()` it."""

    def __init__(
        self,
        *,
        connect_timeout_s: float,
        read_timeout_s: float,
        idle_s: float = IDLE_S,
        is_paused: Callable[[str], bool] | None = None,
    ) -> None:
        """`is_paused`: whether the engine at a URL is asleep for a trainer, so that no time limit runs; None: never."""
        self._is_paused = is_paused
        own_limit_s = read_timeout_s if is_paused is None else None  # aiohttp's limit cannot stand still; ours can
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s, sock_read=own_limit_s)
        self._read_timeout_s = read_timeout_s
        self._head_timeout_s = connect_timeout_s + read_timeout_s  # our own limit in addition to aiohttp's
        self._idle_s = idle_s
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[tuple[str, str], URL] = {}
        self._error_mappers: dict[str, EngineErrorMapper] = {}

    async def send(
        self, url: str, path: str, body: bytes | None = None, *, key: str | None = None, method: str = "POST"
    ) -> EngineReply:
        """Send JSON (`body` as bytes) to `path` of the server at `url`; return when the headers of the answer have
        arrived.

        If the connection breaks before the first byte of the answer, the request is retried once: mostly the server had
        just closed an idle connection, and sampling twice is harmless. Raises EngineUnreachable, EngineFailed.
        """
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        error_mapper = self._error_mappers.setdefault(url, EngineErrorMapper(url, self._read_timeout_s))
        where = self._url(url, path)
        is_paused = never_paused if self._is_paused is None else partial(self._is_paused, url)
        try:
            try:
                response = await self._request(method, where, body, headers, is_paused)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as e:
                if isinstance(e, aiohttp.ClientConnectorError):  # no connection was made: the engine is unreachable
                    raise
                response = await self._request(method, where, body, headers, is_paused)
        except (TimeoutError, aiohttp.ClientError, OSError) as e:
            raise error_mapper.failed(e) from e
        return EngineReply(response, error_mapper, is_paused)

    async def _request(
        self, method: str, url: URL, body: bytes | None, headers: Mapping[str, str], is_paused: IsPaused
    ) -> aiohttp.ClientResponse:
        session = self._session or self._open()
        async with pausable_timeout(self._head_timeout_s, is_paused):
            return await session.request(method, url, data=body, headers=headers, allow_redirects=False)

    def _url(self, url: str, path: str) -> URL:
        known = self._urls.get((url, path))
        if known is None:
            known = self._urls[url, path] = URL(url + path, encoded=True)
        return known

    def _open(self) -> aiohttp.ClientSession:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=self._idle_s),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=self._timeout,
            auto_decompress=False,
            read_bufsize=READ_BUFFER_BYTES,
        )
        return self._session

    async def close(self) -> None:
        """Close the idle connections."""
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # a transport closes its socket in the loop's next iteration

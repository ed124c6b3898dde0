"""Waiting for the next bytes of an answer's body, with a bound of ours.

Owns: how long an engine may be silent inside a body, and noticing that its connection is gone. Refuses: the head of an
answer, and what is told of a body that came to a bad end (`proxy.engine.client`).

aiohttp's own read timeout is not enough: where its parser dislikes the framing of chunks, it closes the connection,
takes the timeout down with it and tells nobody, so that whoever reads the body waits for ever.

Requests to engines, through aiohttp's own API: the fastest client that also gives up what it is told to give up.

Owns: connections to engines, what is done about stale ones, and that an answer which is not read to its end is aborted
at the engine; how large one may be, and what is told of one that came to a bad end. Refuses: which engine, and what a
body means.

Chosen by measurement (benchmarks/upstream.py): pyreqwest needs half the CPU time a request, but goes on with one that
was cancelled before its answer began, so that an engine would work on for a client that is gone.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping
from types import TracebackType

import aiohttp
from yarl import URL

from proxy.errors import EngineError, EngineFailed, EngineUnreachable

LOOK_S = 1.0  # how often a wait is looked at: so long may a connection be gone before its reader is told


class BodyReader:
    """One body while it is read. `close()` it.

    A stream is hundreds of waits, and a timeout for each would cost 4 µs. Here each says only until when it may last,
    which costs a tenth of that, and one timer for all of them looks.
    """

    __slots__ = ("_content", "_limit_s", "_loop", "_protocol", "_timer", "_until")

    def __init__(self, response: aiohttp.ClientResponse, limit_s: float) -> None:
        self._content = response.content
        self._protocol = response.connection.protocol if response.connection is not None else None
        self._limit_s = limit_s
        self._until = math.inf  # when the wait that lasts now is over; without end: nobody waits
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(min(limit_s, LOOK_S), self._look)

    async def chunk(self) -> bytes:
        """The next bytes as they come; b"" at the end. Raises TimeoutError, OSError, aiohttp.ClientError."""
        self._until = self._loop.time() + self._limit_s
        try:
            return await self._content.readany()
        except RuntimeError as e:  # the connection was gone before anybody waited
            raise _gone() from e
        finally:
            self._until = math.inf

    def close(self) -> None:
        """Nobody waits any more."""
        self._timer.cancel()

    def _look(self) -> None:
        """End the wait that lasts too long, or that nothing can end; come again."""
        left_s = self._until - self._loop.time()
        if left_s <= 0:
            self._content.set_exception(TimeoutError())
        elif left_s < math.inf and self._is_lost():
            self._content.set_exception(_gone())
        else:
            self._timer = self._loop.call_later(min(left_s, self._limit_s, LOOK_S), self._look)

    def _is_lost(self) -> bool:
        """Whether the connection is gone, and the body did not end with it."""
        return self._protocol is not None and not self._protocol.connected and not self._content.is_eof()


def _gone() -> aiohttp.ClientPayloadError:
    return aiohttp.ClientPayloadError("the connection was closed in the middle of a body")


IDLE_S = 4.0  # engines (uvicorn) close an idle connection after 5 s: ours is given up before
READ_BUFFER_BYTES = 256 * 1024  # unread answer at which the engine is made to wait
# The largest whole answer. The largest that an engine has reason to give are 2,048 embeddings of 4,096 numbers (170 MB)
# and 128 choices of 16,000 tokens with their logprobs (220 MB); one in a stream is bounded by its events.
MAX_BODY_BYTES = 256 * 1024 * 1024


class EngineReply:
    """An answer whose head is there. `async with` it: what is not read to the end is aborted."""

    __slots__ = ("_response", "_told", "_waiting", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, told: EngineErrorMapper) -> None:
        self._response = response
        self._told = told
        self._waiting: BodyReader
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def __aenter__(self) -> EngineReply:
        self._waiting = BodyReader(self._response, self._told.read_timeout_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._waiting.close()
        if self._response.connection is not None:  # it was not read to its end, or left HTTP
            self._response.close()

    async def chunk(self) -> bytes:
        """The next bytes of the body as they come; b"" at its end. Raises EngineBroke."""
        try:
            return await self._waiting.chunk()
        except (TimeoutError, aiohttp.ClientError, OSError) as e:
            raise self._told.broke(e) from e

    async def body(self) -> bytes:
        """The whole body. Raises EngineBroke, also for one of more than MAX_BODY_BYTES."""
        parts: list[bytes] = []
        read_bytes = 0
        while chunk := await self.chunk():
            parts.append(chunk)
            read_bytes += len(chunk)
            if read_bytes > MAX_BODY_BYTES:
                raise self._told.too_large(MAX_BODY_BYTES)
        return b"".join(parts)


class EngineErrorMapper:
    """aiohttp's errors about one engine, told as ours."""

    __slots__ = ("_url", "read_timeout_s")

    def __init__(self, url: str, read_timeout_s: float) -> None:
        self._url = url
        self.read_timeout_s = read_timeout_s

    def broke(self, error: Exception) -> EngineFailed:
        """An answer that had begun came to a bad end."""
        if isinstance(error, TimeoutError):
            return EngineFailed(f"the engine at {self._url} sent nothing for {self.read_timeout_s:g} s")
        return EngineFailed(f"the engine at {self._url} broke off in the middle of its answer")

    def too_large(self, most_bytes: int) -> EngineFailed:
        """An answer that is larger than any that an engine has reason to give."""
        return EngineFailed(f"the engine at {self._url} sent an answer of more than {most_bytes} bytes")

    def failed(self, error: Exception) -> EngineError:
        """No answer began."""
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError | aiohttp.InvalidURL):
            return EngineUnreachable(f"the engine at {self._url} cannot be reached: {error}")
        if isinstance(error, TimeoutError):
            return self.broke(error)
        if isinstance(error, aiohttp.ServerDisconnectedError | OSError):
            return EngineFailed(f"the engine at {self._url} closed the connection without an answer")
        return EngineFailed(f"the engine at {self._url} sent what is no HTTP answer: {error}")


class Client:
    """Sends requests to engines. One a process; `close()` it."""

    def __init__(self, *, connect_timeout_s: float, read_timeout_s: float, idle_s: float = IDLE_S) -> None:
        self._timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_timeout_s, sock_read=read_timeout_s)
        self._read_timeout_s = read_timeout_s
        self._head_timeout_s = connect_timeout_s + read_timeout_s  # of ours, whatever aiohttp's own come to
        self._idle_s = idle_s
        self._session: aiohttp.ClientSession | None = None
        self._urls: dict[tuple[str, str], URL] = {}
        self._told: dict[str, EngineErrorMapper] = {}

    async def send(
        self, url: str, path: str, body: bytes | None = None, *, key: str | None = None, method: str = "POST"
    ) -> EngineReply:
        """Send JSON (`body` as bytes) to `path` of the server at `url`; returns when the head of the answer is there.

        A connection that breaks before a byte of the answer came costs one more try: it was mostly a kept one that the
        server had just closed, and sampling twice changes nothing. Raises EngineUnreachable, EngineBroke.
        """
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        told = self._told.setdefault(url, EngineErrorMapper(url, self._read_timeout_s))
        where = self._url(url, path)
        try:
            try:
                return EngineReply(await self._request(method, where, body, headers), told)
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as e:
                if isinstance(e, aiohttp.ClientConnectorError):  # there was no connection: nobody is there
                    raise
                return EngineReply(await self._request(method, where, body, headers), told)
        except (TimeoutError, aiohttp.ClientError, OSError) as e:
            raise told.failed(e) from e

    async def _request(
        self, method: str, url: URL, body: bytes | None, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        session = self._session or self._open()
        async with asyncio.timeout(self._head_timeout_s):
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
        """Close the connections that wait."""
        if self._session is not None:
            await self._session.close()
            await asyncio.sleep(0)  # a transport closes its socket in the loop's next turn

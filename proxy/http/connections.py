"""A client's connection: what uvicorn's protocol lacks before a proxy that strangers may reach.

Owns: the limits of a request's head, of a silent body, of pipelined requests and of open connections; upgrades that are
not taken; errors of HTTP itself, in the caller's format. Refuses: routes, keys and bodies (`proxy.admission`,
`proxy.serving`).

An `Upgrade` that a server does not take is ignored (RFC 9110, 7.8): every stock JDK client sends `Upgrade: h2c`. The
parser stops at an upgrade, so the head is parsed again without it.

No timer runs for a connection: once a second, `ConnectionTable.end_late` compares when each one last did something.
"""

from __future__ import annotations

import asyncio
import resource
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from proxy.errors import BadRequest, CallerError, HeadTooLarge, RequestTimeout, Unavailable, WrongMethod

KEEP_ALIVE_S: Final = 75  # longer than agents' clients keep idle connections, so that the clients close them
LINGER_S: Final = 2.0  # for a refused client to read its answer: a closed socket with unread bytes resets it
RESERVED_FILES: Final = 256  # of the store, the engine's connections, the logs
PIECE_BYTES: Final = 2048  # parsed at once where several requests may be in it: at most some hundred
MAX_TRAILERS: Final = 100  # header lines behind a chunked body
_STALE_HEAD_S: Final = 1.0  # at the limit, a head older than this makes room
_UPGRADE: Final = frozenset({b"upgrade", b"http2-settings"})

# `(path, error)` → body and content type of the error in the format of a caller of that path
RenderError = Callable[[str, CallerError], tuple[bytes, bytes]]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What clients may take. `connections`: None is what the limit of open files leaves."""

    head_bytes: int = 64 * 1024
    head_timeout_s: float = 20.0
    body_timeout_s: float = 30.0
    pipelined: int = 16
    connections: int | None = None


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; return how many connections it leaves room for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    if soft == resource.RLIM_INFINITY:
        return 1_000_000
    return max(soft - RESERVED_FILES, soft // 2)


class _Phase(Enum):
    """What a connection waits for."""

    IDLE = auto()  # a request
    HEAD = auto()  # the rest of a head
    BODY = auto()  # the rest of a body
    ANSWER = auto()  # our answer: no limit here
    REFUSED = auto()  # the client, which reads why


class ConnectionTable:
    """The open connections of one process."""

    def __init__(self, limits: ConnectionLimits, render: RenderError) -> None:
        self.limits = limits
        self.render = render
        self._most = limits.connections or raise_file_limit()
        self._open: set[HttpConnection] = set()
        self.idle: OrderedDict[HttpConnection, None] = OrderedDict()  # the longest idle one first
        self.heads: OrderedDict[HttpConnection, None] = OrderedDict()  # with half a head

    def admit(self, connection: HttpConnection) -> bool:
        """Whether there is room for a new connection. At the limit, one that no request is served on makes room."""
        if len(self._open) >= self._most and not self._make_room(connection.loop.time()):
            return False
        self._open.add(connection)
        return True

    def _make_room(self, now: float) -> bool:
        oldest = next(iter(self.idle), None)
        if oldest is None:
            oldest = next(iter(self.heads), None)
            if oldest is None or now - oldest.since < _STALE_HEAD_S:
                return False
        oldest.drop()
        return True

    def has(self, connection: HttpConnection) -> bool:
        """Whether a connection was admitted and not closed."""
        return connection in self._open

    def forget(self, connection: HttpConnection) -> None:
        """A connection was closed."""
        self._open.discard(connection)
        self.idle.pop(connection, None)
        self.heads.pop(connection, None)

    def end_late(self, now: float) -> None:
        """End the connections that exceed a time limit. `now`: the event loop's time in seconds."""
        for connection in list(self._open):
            connection.end_if_late(now)


class _Flow(FlowControl):
    """Reading pauses also while too many pipelined requests wait; a request that reads its body cannot resume it."""

    held = False

    def hold(self) -> None:
        self.held = True
        self.pause_reading()

    def release(self) -> None:
        self.held = False
        self.resume_reading()

    def resume_reading(self) -> None:
        if not self.held:
            super().resume_reading()


class HttpConnection(HttpToolsProtocol):
    """One client's connection."""

    flow: _Flow

    def __init__(
        self,
        table: ConnectionTable,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.url = b""
        self._table = table
        self._limits = table.limits
        self._phase = _Phase.IDLE
        self.since = 0.0  # when the phase began; in a body, when its last byte came
        self._head_bytes = 0
        self._body_left = 0  # of a body with a declared length
        self._unread = b""  # behind the pipelined requests that wait
        self._refusal: CallerError | None = None  # sent after the answers that are under way

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's own
        """Accept a connection, or refuse it where there is no room."""
        super().connection_made(transport)
        self.flow = _Flow(transport)
        self.since = self.loop.time()
        if self._table.admit(self):
            self._table.idle[self] = None
        else:
            self._send_refusal(Unavailable("this proxy has all the connections that it may have: retry in a moment."))

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection ended."""
        self._unread = b""
        self._table.forget(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse what came, as far as requests may wait."""
        self._unset_keepalive_if_required()
        if self._phase is _Phase.REFUSED or self._refusal is not None:
            return
        if self._unread or self.flow.held:
            self._unread += data  # read before the pause took effect
        else:
            self._parse(data)

    def _parse(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if len(self.pipeline) >= self._limits.pipelined:
                self._unread = data[at:]
                self.flow.hold()
                return
            end = at + max(self._body_left, PIECE_BYTES)
            if not self._feed(data[at:end]):
                return
            at = end
        if self._phase is _Phase.HEAD:
            self._table.heads.setdefault(self)

    def _feed(self, piece: bytes) -> bool:
        """Give bytes to the parser. Return whether the connection goes on."""
        if self._phase is _Phase.HEAD:
            self._head_bytes += len(piece)
        while piece:
            try:
                self.parser.feed_data(piece)
                piece = b""
            except httptools.HttpParserUpgrade as e:
                if self.parser.get_method() == b"CONNECT":
                    self._refuse(WrongMethod("CONNECT is not served: this is no proxy for other hosts."))
                    return False
                piece = self._head_without_upgrade() + piece[e.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
            except httptools.HttpParserError as e:
                fault = e.__context__
                if not isinstance(fault, CallerError):
                    fault = BadRequest(f"the request is not HTTP/1.1: {e}.", code="invalid_http")
                self._refuse(fault)
                return False
        too_large = (
            self._head_bytes > self._limits.head_bytes
            if self._phase is _Phase.HEAD
            else self._phase is _Phase.BODY and len(self.headers) > MAX_TRAILERS
        )
        if too_large:
            self._refuse(self._head_error())
        return not too_large

    def _head_without_upgrade(self) -> bytes:
        """The head that was parsed, without the upgrade."""
        lines = [b"%b %b HTTP/%b" % (self.parser.get_method(), self.url, self.parser.get_http_version().encode())]
        for name, value in self.headers:
            if name == b"connection":
                kept = [token.strip() for token in value.split(b",") if token.strip().lower() not in _UPGRADE]
                value = b", ".join(kept)
            if name not in _UPGRADE:
                lines.append(name + b": " + value)
        return b"\r\n".join([*lines, b"", b""])

    def _head_error(self) -> HeadTooLarge:
        return HeadTooLarge(
            f"the head of the request (its URL and headers) has more than {self._limits.head_bytes} bytes: send less, "
            "or raise `max_head_bytes` in the [proxy] section of hone.toml."
        )

    def on_message_begin(self) -> None:
        """The first byte of a request came."""
        super().on_message_begin()
        self._phase, self.since, self._head_bytes, self._body_left = _Phase.HEAD, self.loop.time(), 0, 0
        self._table.idle.pop(self, None)

    def on_headers_complete(self) -> None:
        """Start the request. Raises HeadTooLarge, which ends the connection."""
        if self.parser.should_upgrade():
            return
        size, length = len(self.url), 0
        for name, value in self.headers:
            size += len(name) + len(value) + 4
            if name == b"content-length":
                length = int(value)
        if size > self._limits.head_bytes:
            raise self._head_error()
        super().on_headers_complete()
        self._table.heads.pop(self, None)
        self._phase, self.since, self._body_left = _Phase.BODY, self.loop.time(), length
        self.headers = []  # trailers of a chunked body come here, not into the headers that were checked

    def on_body(self, body: bytes) -> None:
        """A part of the body came."""
        self._body_left = max(0, self._body_left - len(body))
        if not self.cycle.response_complete:  # what comes after the answer is read for a while, and dropped
            self.since = self.loop.time()
        super().on_body(body)

    def on_message_complete(self) -> None:
        """A request came to its end."""
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._phase = _Phase.ANSWER
        self._rest_if_answered()

    def on_response_complete(self) -> None:
        """An answer was sent: the next request begins, or the connection is idle."""
        super().on_response_complete()
        if self.transport.is_closing():
            return
        self._rest_if_answered()
        if self._refusal is not None:
            if self.cycle.response_complete:
                self._send_refusal(self._refusal)
        elif self.flow.held and len(self.pipeline) < self._limits.pipelined:
            data, self._unread = self._unread, b""
            self.flow.release()
            self._parse(data)

    def _rest_if_answered(self) -> None:
        if self._phase is _Phase.ANSWER and self.cycle.response_complete:
            self._phase, self.since = _Phase.IDLE, self.loop.time()
            self._table.idle[self] = None

    def end_if_late(self, now: float) -> None:
        """Refuse a head or a body that does not go on, and close what is idle for too long."""
        limits, age = self._limits, now - self.since
        if self._phase is _Phase.ANSWER or self.transport.is_closing():
            return
        if self._phase is _Phase.REFUSED:
            if age > LINGER_S:
                self.drop()
        elif self._phase is _Phase.IDLE:
            if age > (limits.head_timeout_s if self.cycle is None else KEEP_ALIVE_S):
                self.drop()
        elif self.flow.read_paused or self._answers_an_earlier_one():
            self.since = now  # the client cannot go on
        elif self._phase is _Phase.HEAD and age > limits.head_timeout_s:
            self._refuse(
                RequestTimeout(
                    f"the head of the request was not complete after {limits.head_timeout_s:g} s: send it again. "
                    "`head_timeout_s` in the [proxy] section of hone.toml is the limit."
                )
            )
        elif self._phase is _Phase.BODY and age > limits.body_timeout_s:
            self._refuse(
                RequestTimeout(
                    f"no byte of the request's body came for {limits.body_timeout_s:g} s: send it again. "
                    "`body_timeout_s` in the [proxy] section of hone.toml is the limit."
                )
            )

    def _answers_an_earlier_one(self) -> bool:
        if self._phase is _Phase.HEAD:
            return self.cycle is not None and not self.cycle.response_complete
        return bool(self.pipeline)

    def drop(self) -> None:
        """Close without an answer."""
        self._table.forget(self)
        self.transport.close()

    def _refuse(self, error: CallerError) -> None:
        """Answer with an error and end the connection, after the answers that are under way."""
        cycle = self.cycle
        if self._phase is _Phase.BODY:
            if cycle.response_started or self.pipeline:
                self.drop()
                return
            cycle.disconnected = True  # the app's own answer is dropped
            cycle.message_event.set()
        elif cycle is not None and not cycle.response_complete:
            self._refusal = error
            self.flow.hold()
            return
        self._send_refusal(error)

    def _send_refusal(self, error: CallerError) -> None:
        self._phase, self.since = _Phase.REFUSED, self.loop.time()
        path = self.url.partition(b"?")[0][:200].decode("latin-1")
        body, content_type = self._table.render(path, error)
        head = [
            *self.server_state.default_headers,
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        if error.retry_after_s is not None:
            head.append((b"retry-after", b"%d" % error.retry_after_s))
        lines = [name + b": " + value + b"\r\n" for name, value in head]
        self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", body]))
        if self._table.has(self):
            self.flow.release()
            self.transport.write_eof()
        else:
            self.transport.close()

"""The transport to an upstream: streams over HTTP or a child process, and the metadata of each request.

Owns: the transport, in which a broken request fails alone; what became of a request, by what was seen on the way and
not by the words of an SDK; the metadata of a request in either era. Refuses: when to connect, and what is asked
(`proxy.mcp_gateway.servers.link`).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from typing import Any, Final, Literal

import httpx2
import mcp_types as types
import orjson
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext

from proxy.errors import UpstreamDown
from proxy.mcp_gateway.exchange import CURRENT
from proxy.mcp_gateway.servers.answers import (
    AnswerTooLarge,
    EventBound,
    HalfCharacters,
    TooManyValues,
    UnreadableAnswer,
    ValueCount,
    read_body,
    read_slices,
)
from proxy.mcp_gateway.servers.program_lines import LINE_TOO_LARGE, LINE_TOO_MANY, line_encoding
from proxy.settings.mcp import McpServerSettings
from recorder.base.connection_failures import describe_failure
from recorder.base.urls import mask_parameters

_CLOSED: Final = "Connection closed"  # the dispatcher's own error, with CONNECTION_CLOSED
_LARGEST_ERROR_OF_NONE: Final = 64 * 1024  # bytes
# What servers are asked for, whatever else the installed packages could decode: httpx decodes these in small pieces.
_READ_ENCODINGS: Final = ("gzip", "deflate", "br")
_OF_THE_ENCODING: Final = frozenset({b"content-encoding", b"content-length", b"transfer-encoding"})
# Shorter than servers' own limit (uvicorn: 5 s): a request on a connection that they just closed would fail.
_IDLE_S: Final = 2.0
_ENVELOPE: Final = frozenset(
    {
        types.PROTOCOL_VERSION_META_KEY,
        types.CLIENT_INFO_META_KEY,
        types.CLIENT_CAPABILITIES_META_KEY,
        types.LOG_LEVEL_META_KEY,
        "progressToken",
    }
)
CLIENT_INFO: Final = {"name": "hone", "version": "0.1.0"}


@asynccontextmanager
async def open_streams(settings: McpServerSettings) -> AsyncIterator[tuple[Any, Any]]:
    """Open the (read, write) streams of a server. Raises OSError if its command cannot be started."""
    if settings.url is None:
        assert settings.command is not None
        env = {name: value.get_secret_value() for name, value in settings.env.items()}
        program = StdioServerParameters(
            command=settings.command,
            args=settings.args,
            env=env,
            cwd=settings.cwd,
            encoding=line_encoding(settings.max_answer_bytes),
        )
        async with stdio_client(program) as pair:
            yield pair
        return
    headers = httpx2.Headers({name: value.get_secret_value() for name, value in settings.headers.items()})
    headers["accept-encoding"] = ", ".join(_READ_ENCODINGS)
    if settings.token is not None:
        headers["authorization"] = f"Bearer {settings.token.get_secret_value()}"
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_IDLE_S)
    # A response may stay open while a tool works: requests have their own timeouts.
    timeout = httpx2.Timeout(settings.connect_s, read=None, pool=None)
    most_bytes = settings.max_answer_bytes
    transport = _TolerantClient(httpx2.AsyncHTTPTransport(verify=_trusted(), limits=limits, trust_env=True), most_bytes)
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport) as http,
        # `_EventStream` bounds the events
        streamable_http_client(settings.url, http_client=http, max_sse_event_size=None) as pair,
    ):
        yield pair


@cache
def _trusted() -> ssl.SSLContext:
    """The trusted certificates, read once: that takes 40 ms, and every session has its own connection."""
    return httpx2.create_ssl_context()


# --- what became of a request


class DeliveryError(UpstreamDown):
    """The server did not get a request, or its answer broke off."""


class ConnectionEnded(DeliveryError):
    """The server has closed the connection itself, or its program has ended."""


class SessionUnknown(Exception):
    """The server refused a request because it does not know the session. `certain`: its status says nothing else."""

    def __init__(self, refusal: MCPError, *, certain: bool) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal
        self.certain = certain


@dataclass(slots=True)
class _Delivery:
    """What the transport sees of one request. The SDK's errors cannot be told from those of a server otherwise."""

    failure: str | None = None
    fault: UnreadableAnswer | None = None
    session: Literal["known", "doubtful", "unknown"] = "known"


_DELIVERY: ContextVar[_Delivery | None] = ContextVar("hone_mcp_delivery", default=None)


async def send_request(
    dispatcher: JSONRPCDispatcher[TransportContext], method: str, params: Mapping[str, Any] | None, options: CallOptions
) -> dict[str, Any]:
    """Send a request and return its result.

    Raises MCPError with the server's own error, or REQUEST_TIMEOUT if `options` have a timeout; DeliveryError,
    UnreadableAnswer, SessionUnknown.
    """
    seen = _Delivery()
    before = _DELIVERY.set(seen)
    try:
        return await dispatcher.send_raw_request(method, params, options)
    except MCPError as e:
        if seen.fault is not None:
            raise seen.fault from e
        if e.error.message in (LINE_TOO_LARGE, LINE_TOO_MANY):
            raise (TooManyValues() if e.error.message == LINE_TOO_MANY else AnswerTooLarge(LINE_TOO_LARGE)) from e
        if seen.failure is not None:
            raise DeliveryError(seen.failure) from e
        if e.error.code == types.CONNECTION_CLOSED and e.error.message == _CLOSED:
            raise ConnectionEnded("it closed the connection") from e
        if seen.session != "known":
            raise SessionUnknown(e, certain=seen.session == "unknown") from e
        raise
    finally:
        _DELIVERY.reset(before)


class _TolerantClient(httpx2.AsyncBaseTransport):
    """The connections to a server. A broken request, or an answer that is too large, fails alone.

    It answers in place of an unreachable server: the SDK would end the connection with all its requests.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, most_bytes: int) -> None:
        self._inner = inner
        self._most_bytes = most_bytes

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        seen = _DELIVERY.get() or _Delivery()
        try:
            response = await self._inner.handle_async_request(request)
            assert isinstance(response.stream, httpx2.AsyncByteStream)
            if (coding := _unread_encoding(response)) is not None:
                await response.aclose()
                raise UnreadableAnswer(f"its content encoding is {coding!r}, which Hone does not read")
            if _is_event_stream(response):
                seen.failure = None  # of a stream before, which this one resumes
                return _answered(response, request, stream=_EventStream(response, seen, self._most_bytes))
            async with aclosing(response):
                body = await read_body(response, self._most_bytes)
        except UnreadableAnswer as e:
            seen.fault = e
            return _unreachable(request, str(e))
        except httpx2.TransportError as e:
            seen.failure = mask_parameters(describe_failure(e))
            return _unreachable(request, seen.failure)
        if response.is_error and request.method == "GET":
            seen.failure = f"it answered {response.status_code} when its stream was to be resumed"
        elif request.method == "POST" and MCP_SESSION_ID_HEADER in request.headers:
            seen.session = _session_after(response.status_code, request.content, body)
        if response.is_success and _is_error_of_none(body):
            response.status_code = HTTPStatus.BAD_REQUEST  # then the SDK takes it for an error of its request
        return _answered(response, request, content=body)

    async def aclose(self) -> None:
        await self._inner.aclose()


def _unread_encoding(response: httpx2.Response) -> str | None:
    """Return a content encoding that was not asked for, if there is one: the SDK would ignore it."""
    codings = (coding.strip().lower() for coding in response.headers.get_list("content-encoding", split_commas=True))
    return next((coding[:80] for coding in codings if coding not in (*_READ_ENCODINGS, "identity", "")), None)


def _is_event_stream(response: httpx2.Response) -> bool:
    return response.is_success and response.headers.get("content-type", "").lower().startswith("text/event-stream")


def _session_after(status: int, request: bytes, body: bytes) -> Literal["known", "doubtful", "unknown"]:
    """What a status says about the session of its request.

    404 is the protocol's status for a session that the server does not know; with an error of just this request it may
    be for something else that is not found. Some servers answer 400 to an unknown session, and to invalid requests.
    """
    if status == HTTPStatus.BAD_REQUEST:
        return "doubtful"
    if status == HTTPStatus.NOT_FOUND:
        return "doubtful" if _id_of(body) is not None and _id_of(body) == _id_of(request) else "unknown"
    return "known"


def _is_error_of_none(body: bytes) -> bool:
    """Whether it is an error without the id of its request, as for a request that a server could not read."""
    if len(body) > _LARGEST_ERROR_OF_NONE or b'"error"' not in body:
        return False
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        return False
    return isinstance(parsed, dict) and "error" in parsed and parsed.get("id") is None


def _id_of(message: bytes) -> object:
    try:
        parsed = orjson.loads(message)
    except orjson.JSONDecodeError:
        return None
    return parsed.get("id") if isinstance(parsed, dict) else None


def _answered(response: httpx2.Response, request: httpx2.Request, **body: Any) -> httpx2.Response:
    """The response with a body that is decoded already."""
    headers = [(k, v) for k, v in response.headers.raw if k.lower() not in _OF_THE_ENCODING]
    return httpx2.Response(
        response.status_code, headers=headers, request=request, extensions=response.extensions, **body
    )


class _EventStream(httpx2.AsyncByteStream):
    """A stream of events that breaks off as an error of its own request only, in the form that the SDK expects.

    An event that is too large is an error too: the SDK holds each event as a whole.
    """

    def __init__(self, response: httpx2.Response, seen: _Delivery, most_bytes: int) -> None:
        self._response = response
        self._seen = seen
        self._bound = EventBound(most_bytes)
        self._mender = HalfCharacters()
        self._values = ValueCount()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        can_resume = False
        try:
            async for part in read_slices(self._response):
                ended = self._bound.add(part)
                can_resume = can_resume or part.startswith(b"id:") or b"\nid:" in part
                mended = self._mender.mend(part)
                self._values.add(mended, ended=ended)
                yield mended
            yield self._mender.rest()
        except UnreadableAnswer as e:
            self._seen.fault = e
            raise httpx2.SSEError(str(e)) from e  # after any other error, the SDK would resume the stream
        except httpx2.TransportError as e:
            self._seen.failure = f"the connection broke off: {describe_failure(e)}"
            raise httpx2.StreamError(self._seen.failure) from e
        # The SDK stops reading at the response. Here the server closed the stream earlier, and the SDK will return for
        # the rest later: a server holds no connection during long work.
        self._seen.failure = "it ended the stream without an answer"
        exchange = CURRENT.get()
        if can_resume and exchange is not None:
            await exchange.let_go()

    async def aclose(self) -> None:
        await self._response.aclose()


def _unreachable(request: httpx2.Request, why: str) -> httpx2.Response:
    answer = {"jsonrpc": "2.0", "id": None, "error": {"code": types.INTERNAL_ERROR, "message": why}}
    return httpx2.Response(
        503, headers={"content-type": "application/json"}, content=orjson.dumps(answer), request=request
    )


def failure_reason(error: BaseException, settings: McpServerSettings) -> str:
    """Return why a connection could not be opened, or broke: the first leaf of a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, TimeoutError):
        return f"no answer within {settings.connect_s:g} s"
    return mask_parameters(describe_failure(error))


def stamp_request(
    method: str,
    params: Mapping[str, Any] | None,
    version: str,
    *,
    modern: bool,
    capabilities: Mapping[str, Any],
    log_level: str | None,
    schema: Mapping[str, Any] | None,
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a request's params and headers for an upstream of `version`.

    The caller's `_meta` (a traceparent, for example) is passed on without the envelope, which Hone writes: it is the
    upstream's client, with the `capabilities` of its caller.
    """
    sent = dict(params or {})
    meta = {k: v for k, v in (sent.pop("_meta", None) or {}).items() if k not in _ENVELOPE}
    headers = {MCP_PROTOCOL_VERSION_HEADER: version}
    if modern:
        meta[types.PROTOCOL_VERSION_META_KEY] = version
        meta[types.CLIENT_INFO_META_KEY] = CLIENT_INFO
        meta[types.CLIENT_CAPABILITIES_META_KEY] = dict(capabilities)
        if log_level is not None:
            meta[types.LOG_LEVEL_META_KEY] = log_level
        headers |= _routing(method, sent, schema)
    if meta:
        sent["_meta"] = meta
    return sent, headers


def _routing(method: str, params: Mapping[str, Any], schema: Mapping[str, Any] | None) -> dict[str, str]:
    headers = {MCP_METHOD_HEADER: method}
    named = params.get(NAME_BEARING_METHODS.get(method, ""))
    if isinstance(named, str):
        headers[MCP_NAME_HEADER] = encode_header_value(named)
    if schema is not None:
        headers |= mcp_param_headers(x_mcp_header_map(schema), params.get("arguments") or {})
    return headers

"""The transport to an upstream: streams over HTTP or a child process, and the metadata of each request.

Owns: the transport, in which a broken request fails alone; the metadata of a request in either era. Refuses: when to
connect, and what is asked (`proxy.mcp_gateway.servers.link`).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Final

import httpx2
import mcp_types as types
import orjson
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
    mcp_param_headers,
    x_mcp_header_map,
)

from proxy.http.sse import MAX_EVENT_BYTES
from proxy.mcp_gateway.exchange import CURRENT
from proxy.settings.mcp import McpServerSettings
from recorder.base.connection_failures import describe_failure
from recorder.base.urls import mask_parameters

UNREACHABLE: Final = -32099  # our own code: the server did not get, or did not finish, the request
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
MAX_ANSWER_BYTES: Final = MAX_EVENT_BYTES  # of one answer, streamed or whole: the largest prompt that an engine gets
CLIENT_INFO: Final = {"name": "hone", "version": "0.1.0"}


@asynccontextmanager
async def open_streams(settings: McpServerSettings) -> AsyncIterator[tuple[Any, Any]]:
    """Open the (read, write) streams of a server. Raises OSError if its command cannot be started."""
    if settings.url is None:
        assert settings.command is not None
        env = {name: value.get_secret_value() for name, value in settings.env.items()}
        program = StdioServerParameters(command=settings.command, args=settings.args, env=env, cwd=settings.cwd)
        async with stdio_client(program) as pair:
            yield pair
        return
    headers = {name: value.get_secret_value() for name, value in settings.headers.items()}
    if settings.token is not None:
        headers["authorization"] = f"Bearer {settings.token.get_secret_value()}"
    limits = httpx2.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=_IDLE_S)
    # A response may stay open while a tool works: requests have their own timeouts.
    timeout = httpx2.Timeout(settings.connect_s, read=None, pool=None)
    transport = _TolerantClient(httpx2.AsyncHTTPTransport(verify=_trusted(), limits=limits, trust_env=True))
    async with (
        httpx2.AsyncClient(headers=headers, timeout=timeout, transport=transport) as http,
        # results may be large (an image, a table), but the SDK's default limit is 1 MiB
        streamable_http_client(settings.url, http_client=http, max_sse_event_size=MAX_ANSWER_BYTES) as pair,
    ):
        yield pair


@cache
def _trusted() -> ssl.SSLContext:
    """The trusted certificates, read once: that takes 40 ms, and every session has its own connection."""
    return httpx2.create_ssl_context()


class _TolerantClient(httpx2.AsyncBaseTransport):
    """Answers in place of an unreachable server: the SDK would end the connection with all its requests."""

    def __init__(self, inner: httpx2.AsyncBaseTransport) -> None:
        self._inner = inner

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as e:
            return _unreachable(request, e)
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        # an event stream has no end: each of its events is bounded instead
        endless = response.headers.get("content-type", "").startswith("text/event-stream")
        response.stream = _TolerantStream(response.stream, None if endless else MAX_ANSWER_BYTES)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class _TolerantStream(httpx2.AsyncByteStream):
    """A body that breaks off as an error of its own request only, in the form that the SDK expects.

    A body larger than `most_bytes` is an error too: the SDK reads it whole.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, most_bytes: int | None) -> None:
        self._inner = inner
        self._most_bytes = most_bytes

    async def __aiter__(self) -> AsyncIterator[bytes]:
        read_bytes, can_resume = 0, False
        try:
            async for chunk in self._inner:
                read_bytes += len(chunk)
                if self._most_bytes is not None and read_bytes > self._most_bytes:
                    raise httpx2.StreamError(f"the answer has more than {self._most_bytes} bytes")
                can_resume = can_resume or chunk.startswith(b"id:") or b"\nid:" in chunk
                yield chunk
        except httpx2.TransportError as e:
            raise httpx2.StreamError(f"the connection broke off: {describe_failure(e)}") from e
        # The SDK stops reading at the response. Here the server closed the stream earlier, and the SDK will return for
        # the rest later: a server holds no connection during long work.
        exchange = CURRENT.get()
        if can_resume and exchange is not None:
            await exchange.let_go()

    async def aclose(self) -> None:
        await self._inner.aclose()


def _unreachable(request: httpx2.Request, error: Exception) -> httpx2.Response:
    why = mask_parameters(describe_failure(error))
    answer = {"jsonrpc": "2.0", "id": None, "error": {"code": UNREACHABLE, "message": why}}
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

"""The gateway as callers see it: an MCP server of both eras at `/mcp`, composed of several servers.

Owns: the methods of the protocol, and which server each request goes to. Results are passed on unchanged, except for
what belongs to one connection (the server's name, the state of a session). Refuses: connections
(`proxy.mcp_gateway.servers.link`), and recording (`proxy.mcp_gateway.tool_calls`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar

import mcp_types as types
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from proxy.admission.auth import Caller
from proxy.errors import UpstreamDown
from proxy.http import shutdown
from proxy.http.asgi import Receive, Scope, Send
from proxy.mcp_gateway import names
from proxy.mcp_gateway.exchange import (
    RESOURCE_NOT_FOUND,
    CallerRequest,
    Context,
    check_result,
    identify_caller,
    is_modern,
    is_not_found,
    resource_not_found,
    shape_for_era,
    strip_server_name,
)
from proxy.mcp_gateway.facade import Answer, SdkServer
from proxy.mcp_gateway.names import NameScheme
from proxy.mcp_gateway.pending_requests import PendingRequests, drive_questions
from proxy.mcp_gateway.pool import Pool
from proxy.mcp_gateway.replay import EventReplay
from proxy.mcp_gateway.servers.link import Link
from proxy.mcp_gateway.servers.upstream import Upstream
from proxy.mcp_gateway.tool_calls import RunningToolCall, ToolCaller
from proxy.mcp_gateway.write_protection import WriteProtection, is_read_only, unlisted_refusal, write_refusal
from proxy.metrics import Metrics
from proxy.settings.mcp import McpServerSettings

RETRY_MS: Final = 1000  # how long a caller waits before it resumes a broken stream; as in the SDKs
_NOT_FOUND: Final = frozenset({RESOURCE_NOT_FOUND, types.INVALID_PARAMS})
_LISTED: Final[Mapping[str, tuple[str, str]]] = {  # method → kind of list, field of the result
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("templates", "resourceTemplates"),
}

Params = Mapping[str, Any]
T = TypeVar("T")


class Gateway:
    """The app at `/mcp`. `async with gateway.running():` around serving it."""

    def __init__(
        self,
        servers: Mapping[str, McpServerSettings],
        *,
        prefix: bool,
        calling: ToolCaller,
        writes: WriteProtection,
        metrics: Metrics,
        max_body_bytes: int,
        idle_s: float,
    ) -> None:
        naming = NameScheme(None if prefix else next(iter(servers)))
        self.pool = Pool(servers, naming, metrics, idle_s=idle_s, ended=calling.ended)
        self._calling = calling
        self._writes = writes
        self._parking = PendingRequests()
        facade = SdkServer(self._answers(), self.pool)
        self._manager = _Manager(facade, retry_interval=RETRY_MS, max_request_body_size=max_body_bytes)

    def _answers(self) -> Mapping[str, Answer]:
        return {
            **dict.fromkeys(_LISTED, self.list),
            "tools/call": self.call_tool,
            "prompts/get": self.get_prompt,
            "resources/read": self.read_resource,
            "resources/subscribe": self.subscribe,
            "resources/unsubscribe": self.unsubscribe,
            "completion/complete": self.complete,
            "logging/setLevel": self.set_level,
        }

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect to the servers, and serve callers."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._calling.close)
            await stack.enter_async_context(self.pool.running())
            stack.callback(self._parking.close)
            await stack.enter_async_context(self._manager.run())
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one HTTP request, which admission has checked."""
        caller: Caller = scope["hone.caller"]
        if caller.key is not None:  # a session belongs to the key that opened it
            scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=caller.key, scopes=[]))
        if is_endless(scope):
            shutdown.mark_endless(scope)
        if _asks_what_there_is(scope):
            await self.pool.settled()
        await self._manager.handle_request(scope, receive, send)

    # --- lists

    async def list(self, ctx: Context, params: Any) -> dict[str, Any]:
        """Answer one of the four lists."""
        kind, field = _LISTED[ctx.method]
        items, hints = await self.pool.merged(kind, identify_caller(ctx))
        if kind == "tools" and (offered := await self._writes.offered(ctx, items)) is not items:
            items, hints = list(offered), hints | {"cacheScope": "private"}  # other callers are offered more
        try:
            page, following = names.list_page(items, (ctx.params or {}).get("cursor"))
        except ValueError as e:
            raise MCPError(types.INVALID_PARAMS, str(e)) from e
        result = {field: list(page)} | ({"nextCursor": following} if following is not None else {})
        return shape_for_era(ctx, result | hints)

    # --- requests to one server

    async def call_tool(self, ctx: Context, params: Any) -> dict[str, Any]:
        """Answer `tools/call`, and record it."""
        sent = ctx.params or {}
        name, arguments = str(sent.get("name")), sent.get("arguments") or {}
        target = self.pool.tool(name, identify_caller(ctx))
        if target is None:
            called = RunningToolCall(None, name, name, arguments, None)
            return await self._calling.call(ctx, called, partial(self._unknown_tool, name), _nothing_refused)
        upstream, own, known = target
        called = RunningToolCall(upstream.name, name, own, arguments, _mapping(known.get("annotations")))
        forward = partial(self._forward, ctx, upstream, {**sent, "name": own}, schema=self.pool.schema(name))
        refused = partial(self._refused, ctx, called, upstream)
        return shape_for_era(ctx, await self._calling.call(ctx, called, forward, refused))

    async def _refused(self, ctx: Context, called: RunningToolCall, upstream: Upstream) -> str | None:
        """Return why an attempt of a campaign may not call a tool; None if it may."""
        if is_read_only({"annotations": called.annotations}):
            return None
        campaign = await self._writes.barred(ctx, called.joined.trajectory_id)
        if campaign is None:
            return None
        if called.annotations is None:  # its server may not have listed it yet
            listed = (await upstream.listing("tools", identify_caller(ctx))).items.get(called.tool)
            if listed is None:  # mostly a name that a model invented: no such tool was withheld
                return unlisted_refusal(called.name)
            if is_read_only(listed):
                return None
        await self._writes.note(campaign, [called.name])
        return write_refusal(called.name)

    async def _unknown_tool(self, name: str) -> dict[str, Any]:
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {name[:200]}")

    async def get_prompt(self, ctx: Context, params: Any) -> dict[str, Any]:
        """Answer `prompts/get`."""
        sent = ctx.params or {}
        upstream, own = self._prompt(str(sent.get("name")))
        return await self._raise_as_mcp(self._forward(ctx, upstream, {**sent, "name": own}))

    async def read_resource(self, ctx: Context, params: Any) -> dict[str, Any]:
        """Answer `resources/read` from the server that lists the resource; else from the first that knows it."""
        sent = ctx.params or {}
        uri = str(sent.get("uri"))
        refusal: MCPError = resource_not_found(uri, modern=is_modern(ctx))
        for upstream, own in await self.pool.of_uri(uri, identify_caller(ctx)):
            try:
                return await self._raise_as_mcp(self._forward(ctx, upstream, {**sent, "uri": own}))
            except MCPError as e:
                if e.error.code not in _NOT_FOUND:
                    raise
                # each era has its own code for it
                refusal = resource_not_found(uri, modern=is_modern(ctx)) if is_not_found(e) else e
        raise refusal

    async def complete(self, ctx: Context, params: Any) -> dict[str, Any]:
        """Answer `completion/complete`."""
        sent = ctx.params or {}
        ref = dict(sent.get("ref") or {})
        if ref.get("type") == "ref/prompt":
            upstream, ref["name"] = self._prompt(str(ref.get("name")))
        else:
            uri = str(ref.get("uri"))
            candidates = await self.pool.of_uri(uri, identify_caller(ctx))
            if not candidates:
                raise resource_not_found(uri, modern=is_modern(ctx))
            upstream, ref["uri"] = candidates[0]
        ability = upstream.ability(modern=is_modern(ctx))
        if ability is not None and "completions" not in ability:
            return shape_for_era(ctx, {"completion": {"values": []}})  # only another server can
        return await self._raise_as_mcp(self._forward(ctx, upstream, {**sent, "ref": ref}))

    def _prompt(self, name: str) -> tuple[Upstream, str]:
        target = self.pool.tool(name)
        if target is None:
            raise MCPError(types.INVALID_PARAMS, f"Unknown prompt: {name[:200]}")
        return target[0], target[1]

    async def _raise_as_mcp(self, answer: Awaitable[T]) -> T:
        try:
            return await answer
        except UpstreamDown as e:
            raise MCPError(types.INTERNAL_ERROR, str(e)) from e

    async def _forward(
        self, ctx: Context, upstream: Upstream, params: Params, *, schema: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send a request to its server, and return the result, whichever eras the two use."""
        level = None if is_modern(ctx) else self.pool.news.session(ctx).log_level
        exchange = CallerRequest(ctx, level)
        async with upstream.lend(exchange) as link:
            modern = (await link.ready()).modern
            send = partial(self._send, link, ctx.method, exchange, schema)
            if modern and not exchange.modern:
                result = await drive_questions(exchange, params, send)
            elif exchange.modern and not modern and exchange.back_channel():
                caller: Caller = ctx.request.scope["hone.caller"] if ctx.request is not None else Caller(frozenset())
                result = await self._parking.run(exchange, caller.key, ctx.method, params, send)
            else:
                result = await send(params)
        return check_result(ctx, upstream.name, shape_for_era(ctx, strip_server_name(result)))

    @staticmethod
    async def _send(
        link: Link, method: str, exchange: CallerRequest, schema: Mapping[str, Any] | None, params: Params
    ) -> dict[str, Any]:
        with link.working(exchange):  # a pending request outlives its caller's request
            return await link.request(method, params, exchange, schema=schema)

    # --- changes and logs

    async def subscribe(self, ctx: Context, params: types.SubscribeRequestParams) -> dict[str, Any]:
        """Answer `resources/subscribe` of the handshake era."""
        await self._raise_as_mcp(self.pool.news.subscribe(ctx, str(params.uri)))
        return {}

    async def unsubscribe(self, ctx: Context, params: types.UnsubscribeRequestParams) -> dict[str, Any]:
        """Answer `resources/unsubscribe` of the handshake era."""
        await self._raise_as_mcp(self.pool.news.unsubscribe(ctx, str(params.uri)))
        return {}

    async def set_level(self, ctx: Context, params: types.SetLevelRequestParams) -> dict[str, Any]:
        """Answer `logging/setLevel` of the handshake era: for this session."""
        self.pool.news.session(ctx).log_level = params.level
        exchange = CallerRequest(ctx, params.level)
        for upstream in self.pool.upstreams.values():
            await self._raise_as_mcp(upstream.at_level(exchange))
        return {}


class _Manager(StreamableHTTPSessionManager):
    """The SDK's manager, with a separate store of events for each session.

    The SDK would use one store for all sessions, in which request numbers collide.
    """

    _replay: EventReplay | None = None

    @property  # a plain attribute in the SDK, which it reads when it opens a session
    def event_store(self) -> EventStore:
        if self._replay is None:
            self._replay = EventReplay()
        return self._replay.session()

    @event_store.setter
    def event_store(self, store: EventStore | None) -> None:
        pass


def is_endless(scope: Scope) -> bool:
    """Whether a request is a stream of notifications, in either era."""
    headers: Mapping[bytes, bytes] = scope["hone.headers"]
    return scope["method"] == "GET" or headers.get(b"mcp-method") == b"subscriptions/listen"


def _asks_what_there_is(scope: Scope) -> bool:
    """Whether it is a caller's first request. The answer declares the capabilities."""
    headers: Mapping[bytes, bytes] = scope["hone.headers"]
    if headers.get(b"mcp-protocol-version", b"").decode("latin-1") in MODERN_PROTOCOL_VERSIONS:
        return headers.get(b"mcp-method") == b"server/discover"
    return scope["method"] == "POST" and b"mcp-session-id" not in headers


async def _nothing_refused() -> str | None:
    """For a tool that no server has."""
    return None


def _mapping(value: object) -> Mapping[str, Any] | None:
    return value if isinstance(value, Mapping) else None

"""Who a caller is to a server that remembers something: whose state is whose.

Owns: telling callers apart. Refuses: admission (`proxy.admission`), and which run a call belongs to, which is found out
with more evidence and may change (`proxy.mcp_gateway.tool_calls`).

A caller of the handshake era has a session: that is it. The current era has none, and a connection means nothing in it:
clients open several at once, and close them between two requests. What lasts there is the run that the caller stated
(its address, in path, key or header), for a run is what must not meet another's browser or shell. A caller that stated
none is its key. Those without either cannot be told apart, and share.

One request of a caller while it runs: what the caller can do, and the way back to it.

Owns: questions of a server to the caller (elicitation, sampling, roots), progress and log messages, in the way of the
caller's era. Refuses: upstreams.

In the handshake era a server asks by a request of its own, on the stream of the call that it works on. Since 2026-07-28
it ends the call with what it needs to know, and the caller comes again with the answers
(`proxy.mcp_gateway.pending_requests`).

A server's result as the caller's era wants it.

Owns: what is added and taken away on the way back, the words for what is not there, and refusing what a caller could
not read. Refuses: asking for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, get_args

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ConfigDict, ValidationError

from proxy.admission.address import StatedAddress
from proxy.admission.auth import Caller


@dataclass(frozen=True, slots=True)
class TrajectoryAddress:
    """A run's address."""

    group: str
    trajectory: str


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """A caller. At most one of these is not None."""

    session: str | None = None  # of the handshake era
    run: TrajectoryAddress | None = None
    key: str | None = None


def identify_caller(ctx: ServerRequestContext[Any, Any]) -> CallerIdentity:
    """The caller of a request."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return CallerIdentity(session=session_connection(ctx).session_id)
    scope = ctx.request.scope if ctx.request is not None else {}
    stated: StatedAddress | None = scope.get("hone.stated")
    if stated is not None and stated.address.trajectory is not None:
        return CallerIdentity(run=TrajectoryAddress(stated.address.group or "", stated.address.trajectory))
    caller: Caller | None = scope.get("hone.caller")
    return CallerIdentity(key=caller.key if caller is not None else None)


def session_connection(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """What lives as long as a session of the handshake era."""
    connection: Connection = ctx.session._connection  # the SDK has no public name for it
    return connection


Context = ServerRequestContext[Any, Any]

# The capability that a question needs.
NEEDS: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "sampling/createMessage": "sampling",
    "roots/list": "roots",
}
LEVELS: Final[tuple[str, ...]] = get_args(types.LoggingLevel)  # by severity

# The request that a task works for: messages of a server arrive in the context of the request that they belong to.
CURRENT: ContextVar[CallerRequest | None] = ContextVar("hone_mcp_exchange", default=None)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class CallerRequest:
    """A caller's request."""

    def __init__(self, ctx: Context, log_level: str | None = None) -> None:
        self.ctx = ctx
        self.who = identify_caller(ctx)
        self.modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.capabilities = _capabilities(ctx)
        self.stated_level = (
            log_level if not self.modern else _known_level((ctx.meta or {}).get(types.LOG_LEVEL_META_KEY))
        )
        self.over = False
        self.questions: dict[str, _Question] = {}  # of a caller that is to come again
        self.asked = asyncio.Event()

    @property
    def log_level(self) -> str | None:
        """The least level of log messages that the caller wants; None: none."""
        if self.stated_level is None and not self.modern:
            return LEVELS[0]  # as servers of that era do it: everything, until the caller says less
        return self.stated_level

    def standing(self) -> CallerRequest:
        """The way to the same caller when this request is over. Of the handshake era."""
        way = CallerRequest(self.ctx, self.stated_level)
        way.over = True
        return way

    def back_channel(self) -> dict[str, Any]:
        """The capabilities by which a server may ask this caller something."""
        return {name: self.capabilities[name] for name in NEEDS.values() if name in self.capabilities}

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Put a server's question to the caller, and wait for its answer. Raises MCPError."""
        if NEEDS.get(method) not in self.capabilities:
            raise MCPError(types.METHOD_NOT_FOUND, f"the caller did not say that it can answer {method}")
        if self.modern:
            question = _Question(method, params)
            self.questions[f"q{len(self.questions) + 1}"] = question
            self.asked.set()
            return await question.answer
        try:
            request = methods.parse_server_request(method, LATEST_HANDSHAKE_VERSION, params)
            metadata = ServerMessageMetadata(related_request_id=self._stream)
            answer = await self.ctx.session.send_request(request, _Answer, metadata=metadata)  # type: ignore[arg-type]  # the parsed request is one of the union
        except (KeyError, ValidationError) as e:
            raise MCPError(types.INTERNAL_ERROR, f"{method}: question or answer is malformed: {e}") from e
        return answer.model_dump(mode="json", by_alias=True)

    async def let_go(self) -> None:
        """The server closed its stream and works on: the caller's is closed too, if it will come back for the rest."""
        if self.ctx.close_sse_stream is not None:
            await self.ctx.close_sse_stream()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Tell the caller how far its request is, if it asked."""
        await self.ctx.session.report_progress(progress, total, message)

    async def log(self, params: Mapping[str, Any]) -> None:
        """Pass a log message on, if the caller wants its level."""
        level = params.get("level")
        if self.log_level is None or level not in LEVELS or LEVELS.index(level) < LEVELS.index(self.log_level):
            return
        note = types.LoggingMessageNotification(params=types.LoggingMessageNotificationParams.model_validate(params))
        await self.ctx.session.send_notification(note, related_request_id=self._stream)

    @property
    def _stream(self) -> types.RequestId | None:
        """The request whose stream a message goes on; None: that of the session."""
        return None if self.over else self.ctx.request_id


class _Question:
    """A question of a server, for a caller that answers by coming again."""

    def __init__(self, method: str, params: Mapping[str, Any] | None) -> None:
        self.method = method
        self.params = params
        self.answer: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()

    def shown(self) -> dict[str, Any]:
        return {"method": self.method} | ({"params": dict(self.params)} if self.params is not None else {})


def _known_level(level: object) -> str | None:
    return level if isinstance(level, str) and level in LEVELS else None


def _capabilities(ctx: Context) -> dict[str, Any]:
    raw = (ctx.meta or {}).get(types.CLIENT_CAPABILITIES_META_KEY)
    if isinstance(raw, Mapping):
        return dict(raw)
    declared = ctx.session.client_capabilities
    return declared.model_dump(mode="json", by_alias=True, exclude_none=True) if declared is not None else {}


RESOURCE_NOT_FOUND: Final = -32002  # before 2026-07-28; since then invalid params
_BODIES: Final[Mapping[str, str]] = {
    "tools/call": "content",
    "prompts/get": "messages",
    "resources/read": "contents",
}
_CACHED: Final = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)


def is_modern(ctx: Context) -> bool:
    """Whether the caller lives in the current era: since 2026-07-28, without sessions."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def resource_not_found(uri: str, *, modern: bool) -> MCPError:
    """What a caller of either era is told of a resource that nobody has."""
    code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return MCPError(code, f"Resource not found: {uri[:200]}", {"uri": uri})


def says_not_found(error: MCPError) -> bool:
    """Whether a server's refusal, of either era, is that it has no such resource."""
    data = error.error.data
    return error.error.code == RESOURCE_NOT_FOUND or (isinstance(data, Mapping) and "uri" in data)


def strip_server_name(result: dict[str, Any]) -> dict[str, Any]:
    """A server's result without its name: the caller's server is Hone."""
    meta = result.get("_meta")
    if not isinstance(meta, Mapping) or types.SERVER_INFO_META_KEY not in meta:
        return result
    kept = {k: v for k, v in meta.items() if k != types.SERVER_INFO_META_KEY}
    return {**{k: v for k, v in result.items() if k != "_meta"}, **({"_meta": kept} if kept else {})}


def shape_for_era(ctx: Context, result: dict[str, Any]) -> dict[str, Any]:
    """What the caller's era requires of every result, where the server's did not know it."""
    if not is_modern(ctx):
        return result
    kept = {"ttlMs": 0, "cacheScope": "private"} if ctx.method in _CACHED else {}
    if result.get("resultType") == "input_required":
        return result
    return {"resultType": "complete", **kept, **result}


def check_result(ctx: Context, server: str, result: dict[str, Any]) -> dict[str, Any]:
    """The result, unless its caller could not read it. Raises MCPError."""
    try:
        methods.validate_server_result(ctx.method, ctx.protocol_version, result)
        # the SDK takes any complete result of today's era for one that asks for nothing
        body = result[_BODIES[ctx.method]] if result.get("resultType") == "complete" and ctx.method in _BODIES else []
        if not isinstance(body, Sequence):
            raise KeyError(ctx.method)
    except (ValidationError, KeyError) as e:
        raise MCPError(
            types.INTERNAL_ERROR, f"the MCP server {server!r} answered {ctx.method} with what is no result of it"
        ) from e
    return result

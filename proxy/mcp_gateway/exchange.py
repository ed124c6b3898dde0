"""A caller and its request: its identity, the way back to it, and results in the form of its era.

Owns: identifying callers for servers that keep state; questions of a server to the caller (elicitation, sampling,
roots), progress and log messages; what is added to and removed from a result, and refusing results that the caller
could not read. Refuses: admission (`proxy.admission`), attribution of calls (`proxy.mcp_gateway.tool_calls`), and
servers.

Identity: a caller of the handshake era is its session. The current era has no sessions, and clients open and close
several connections at will. A caller of that era is the trajectory that it stated (in path, key or header), because the
browser or shell of one trajectory must never serve another. Without a stated trajectory it is its key. Callers without
either cannot be distinguished, and share one identity.

Questions: in the handshake era a server sends a request of its own on the stream of the call. Since 2026-07-28 it ends
the call with its questions, and the caller retries with the answers (`proxy.mcp_gateway.pending_requests`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
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
    """The address of a trajectory."""

    group: str
    trajectory: str


@dataclass(frozen=True, slots=True)
class CallerIdentity:
    """A caller. At most one field is not None."""

    session: str | None = None  # of the handshake era
    run: TrajectoryAddress | None = None
    key: str | None = None


def identify_caller(ctx: ServerRequestContext[Any, Any]) -> CallerIdentity:
    """Return the identity of a request's caller."""
    if ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return CallerIdentity(session=session_connection(ctx).session_id)
    scope = ctx.request.scope if ctx.request is not None else {}
    stated: StatedAddress | None = scope.get("hone.stated")
    if stated is not None and stated.address.trajectory is not None:
        return CallerIdentity(run=TrajectoryAddress(stated.address.group or "", stated.address.trajectory))
    caller: Caller | None = scope.get("hone.caller")
    return CallerIdentity(key=caller.key if caller is not None else None)


def session_connection(ctx: ServerRequestContext[Any, Any]) -> Connection:
    """Return the SDK's object that lives as long as a session of the handshake era."""
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

# The request that a task works for: a server's messages arrive in the context of their request.
CURRENT: ContextVar[CallerRequest | None] = ContextVar("hone_mcp_exchange", default=None)


class _Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class CallerRequest:
    """A caller's request while it runs."""

    def __init__(self, ctx: Context, log_level: str | None = None) -> None:
        self.ctx = ctx
        self.who = identify_caller(ctx)
        self.modern = ctx.protocol_version in MODERN_PROTOCOL_VERSIONS
        self.capabilities = _capabilities(ctx)
        self.stated_level = (
            log_level if not self.modern else _known_level((ctx.meta or {}).get(types.LOG_LEVEL_META_KEY))
        )
        self.over = False
        self.questions: dict[str, _Question] = {}  # for a caller that will retry with answers
        self.question_event = asyncio.Event()

    @property
    def log_level(self) -> str | None:
        """The lowest level of log messages that the caller wants; None: none."""
        if self.stated_level is None and not self.modern:
            return LEVELS[0]  # as servers of that era do: all messages until the caller sets a level
        return self.stated_level

    def standing(self) -> CallerRequest:
        """Return a way to the same caller that outlives this request. Handshake era only."""
        way = CallerRequest(self.ctx, self.stated_level)
        way.over = True
        return way

    def back_channel(self) -> dict[str, Any]:
        """Return the capabilities that a server may use to question this caller."""
        return {name: self.capabilities[name] for name in NEEDS.values() if name in self.capabilities}

    async def ask(self, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send a server's question to the caller, and return its answer. Raises MCPError."""
        if NEEDS.get(method) not in self.capabilities:
            raise MCPError(types.METHOD_NOT_FOUND, f"the caller has not declared that it can answer {method}")
        if self.modern:
            question = _Question(method, params)
            self.questions[f"q{len(self.questions) + 1}"] = question
            self.question_event.set()
            return await question.answer
        try:
            request = methods.parse_server_request(method, LATEST_HANDSHAKE_VERSION, params)
            metadata = ServerMessageMetadata(related_request_id=self._stream)
            answer = await self.ctx.session.send_request(request, _Answer, metadata=metadata)  # type: ignore[arg-type]  # the parsed request is one of the union
        except (KeyError, ValidationError) as e:
            raise MCPError(types.INTERNAL_ERROR, f"{method}: question or answer is malformed: {e}") from e
        return answer.model_dump(mode="json", by_alias=True)

    async def let_go(self) -> None:
        """Close the caller's stream, if the caller will return for the rest: the server closed its own and continues to
        work.
        """
        if self.ctx.close_sse_stream is not None:
            await self.ctx.close_sse_stream()

    async def progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Send the progress of its request to the caller, if it asked for it."""
        await self.ctx.session.report_progress(progress, total, message)

    async def log(self, params: Mapping[str, Any]) -> None:
        """Relay a log message, if the caller wants its level."""
        level = params.get("level")
        if self.log_level is None or level not in LEVELS or LEVELS.index(level) < LEVELS.index(self.log_level):
            return
        note = types.LoggingMessageNotification(params=types.LoggingMessageNotificationParams.model_validate(params))
        await self.ctx.session.send_notification(note, related_request_id=self._stream)

    @property
    def _stream(self) -> types.RequestId | None:
        """Return the request that a message's stream belongs to; None: the session's stream."""
        return None if self.over else self.ctx.request_id


class _Question:
    """A server's question for a caller that answers by a retry."""

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
# The field of a result that has its body: a list, whose items are the server's affair.
BODIES: Final[Mapping[str, str]] = {
    "tools/call": "content",
    "prompts/get": "messages",
    "resources/read": "contents",
}
_OF_THE_CURRENT_ERA: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
_CACHED: Final = frozenset(
    {"tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}
)


def is_modern(ctx: Context) -> bool:
    """Whether the caller uses the current era: since 2026-07-28, without sessions."""
    return ctx.protocol_version in MODERN_PROTOCOL_VERSIONS


def resource_not_found(uri: str, *, modern: bool) -> MCPError:
    """Return the error of either era for an unknown resource."""
    code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return MCPError(code, f"Resource not found: {uri[:200]}", {"uri": uri})


def is_not_found(error: MCPError) -> bool:
    """Whether a server's refusal, of either era, means that it has no such resource."""
    data = error.error.data
    return error.error.code == RESOURCE_NOT_FOUND or (isinstance(data, Mapping) and "uri" in data)


def strip_server_name(result: dict[str, Any]) -> dict[str, Any]:
    """Return a server's result without its name: for the caller, the server is Hone."""
    meta = result.get("_meta")
    if not isinstance(meta, Mapping) or types.SERVER_INFO_META_KEY not in meta:
        return result
    other_fields = {k: v for k, v in meta.items() if k != types.SERVER_INFO_META_KEY}
    return {**{k: v for k, v in result.items() if k != "_meta"}, **({"_meta": other_fields} if other_fields else {})}


def shape_for_era(ctx: Context, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result with the fields that the caller's era requires, and without those that it does not know."""
    if not is_modern(ctx):
        return {k: v for k, v in result.items() if k not in _OF_THE_CURRENT_ERA}
    if is_question(result):
        return result
    if not isinstance(result.get("resultType"), str):
        result = {k: v for k, v in result.items() if k != "resultType"}
    other_fields = {"ttlMs": 0, "cacheScope": "private"} if ctx.method in _CACHED else {}
    return {"resultType": "complete", **other_fields, **result}


def is_question(result: Mapping[str, Any]) -> bool:
    """Whether a result of the current era asks the caller instead of answering."""
    return result.get("resultType") == "input_required"


def check_result(ctx: Context, server: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the result, with an empty `content` if a tool's result has none. Raises MCPError if it is no result.

    Its parts are passed on as they are, known to this version of the protocol or not.
    """
    field = BODIES.get(ctx.method)
    try:
        if field is None or is_question(result):
            methods.validate_server_result(ctx.method, ctx.protocol_version, result)
            return result
        if is_modern(ctx) and result.get("resultType") != "complete":
            return result  # of an extension, which says what it has
        if ctx.method == "tools/call" and result.get(field) is None:
            result = {**result, field: []}
        if not isinstance(result[field], list):
            raise KeyError(field)
    except (ValidationError, KeyError) as e:
        raise MCPError(
            types.INTERNAL_ERROR, f"the MCP server {server!r} answered {ctx.method} with an invalid result"
        ) from e
    return result

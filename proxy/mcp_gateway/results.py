"""A server's result as the caller's era wants it.

Owns: what is added and taken away on the way back, the words for what is not there, and refusing what a caller could
not read. Refuses: asking for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from proxy.mcp_gateway.exchange import Context

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


def not_found(uri: str, *, modern: bool) -> MCPError:
    """What a caller of either era is told of a resource that nobody has."""
    code = types.INVALID_PARAMS if modern else RESOURCE_NOT_FOUND
    return MCPError(code, f"Resource not found: {uri[:200]}", {"uri": uri})


def says_not_found(error: MCPError) -> bool:
    """Whether a server's refusal, of either era, is that it has no such resource."""
    data = error.error.data
    return error.error.code == RESOURCE_NOT_FOUND or (isinstance(data, Mapping) and "uri" in data)


def of_ours(result: dict[str, Any]) -> dict[str, Any]:
    """A server's result without its name: the caller's server is Hone."""
    meta = result.get("_meta")
    if not isinstance(meta, Mapping) or types.SERVER_INFO_META_KEY not in meta:
        return result
    kept = {k: v for k, v in meta.items() if k != types.SERVER_INFO_META_KEY}
    return {**{k: v for k, v in result.items() if k != "_meta"}, **({"_meta": kept} if kept else {})}


def in_form(ctx: Context, result: dict[str, Any]) -> dict[str, Any]:
    """What the caller's era requires of every result, where the server's did not know it."""
    if not is_modern(ctx):
        return result
    kept = {"ttlMs": 0, "cacheScope": "private"} if ctx.method in _CACHED else {}
    if result.get("resultType") == "input_required":
        return result
    return {"resultType": "complete", **kept, **result}


def checked(ctx: Context, server: str, result: dict[str, Any]) -> dict[str, Any]:
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

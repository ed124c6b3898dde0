"""Agreement with a server on an era of the protocol.

Owns: asking a server for its era and capabilities, and declaring those of Hone and its caller. Refuses: keeping
connections (`proxy.mcp_gateway.servers.link`), and which era to use with which caller
(`proxy.mcp_gateway.servers.upstream`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.transport_context import TransportContext
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)

from proxy.errors import UpstreamDown
from proxy.mcp_gateway.exchange import CallerRequest
from proxy.mcp_gateway.servers import transport
from proxy.settings.mcp import McpServerSettings

log = logging.getLogger(__name__)

Dispatcher = JSONRPCDispatcher[TransportContext]


Ability = frozenset[str]  # names of capabilities, and SUBSCRIBE
SUBSCRIBE: Final = "resources.subscribe"


@dataclass(frozen=True, slots=True)
class AgreedProtocol:
    """The agreed version, and what the server declared."""

    version: str
    modern: bool  # since 2026-07-28: no session, no handshake
    capabilities: Mapping[str, Any]
    instructions: str | None

    @property
    def ability(self) -> Ability:
        """The server's capabilities."""
        names = {name for name, value in self.capabilities.items() if value is not None}
        resources = self.capabilities.get("resources")
        if isinstance(resources, Mapping) and resources.get("subscribe") is True:
            names.add(SUBSCRIBE)
        return frozenset(names)


async def agree(dispatcher: Dispatcher, capabilities: Mapping[str, Any], connect_s: float) -> AgreedProtocol:
    """Discover a server of the current era; a server of the handshake era refuses or does not answer, then shake hands.

    Raises UpstreamDown, MCPError, TimeoutError.
    """
    async with asyncio.timeout(connect_s):
        return await _discover(dispatcher, connect_s / 2) or await _shake_hands(dispatcher, capabilities)


async def discover(dispatcher: Dispatcher, capabilities: Mapping[str, Any], connect_s: float) -> AgreedProtocol:
    """Discover a server that is known to use the current era; its `capabilities` are sent with each request.

    Raises UpstreamDown, MCPError.
    """
    agreed = await _discover(dispatcher, connect_s)
    if agreed is None:
        raise UpstreamDown("it does not declare its capabilities")
    return agreed


async def shake_hands(dispatcher: Dispatcher, capabilities: Mapping[str, Any], connect_s: float) -> AgreedProtocol:
    """Start a session of the handshake era. Raises UpstreamDown, MCPError, TimeoutError."""
    async with asyncio.timeout(connect_s):
        return await _shake_hands(dispatcher, capabilities)


async def probe_handshake(name: str, settings: McpServerSettings) -> AgreedProtocol | None:
    """Ask a server of the current era for the handshake era, over a separate connection; None: it refuses.

    Its `supportedVersions` list the current era only.
    """
    agreed: AgreedProtocol | None = None
    try:
        agreed = await _over_own_connection(settings, shake_hands)
    # A boundary: any failure of a server that may not know the request is a refusal.
    except Exception as e:  # noqa: BLE001
        log.info(
            "the MCP server %s supports only the current era of the protocol: %s",
            name,
            transport.failure_reason(e, settings),
        )
    return agreed


async def greet_server(settings: McpServerSettings) -> AgreedProtocol:
    """Connect to a server, agree with it on an era, and close the connection (`hone doctor`).

    Raises UpstreamDown with the reason.
    """
    try:
        return await _over_own_connection(settings, agree)
    # A boundary: any failure of a server or a transport is the answer.
    except Exception as e:
        raise UpstreamDown(transport.failure_reason(e, settings)) from e


async def _over_own_connection(
    settings: McpServerSettings, ask: Callable[[Dispatcher, Mapping[str, Any], float], Awaitable[AgreedProtocol]]
) -> AgreedProtocol:
    """What a server agrees to over a connection that is closed afterwards."""
    async with transport.open_streams(settings) as (read, write), anyio.create_task_group() as tasks:
        dispatcher: Dispatcher = JSONRPCDispatcher(read, write)
        await tasks.start(dispatcher.run, _no_answer, _no_interest)
        agreed = await ask(dispatcher, {}, settings.connect_s)
        tasks.cancel_scope.cancel()
    return agreed


async def _no_answer(*_: object) -> dict[str, Any]:
    raise MCPError(types.METHOD_NOT_FOUND, "requests are not answered yet")


async def _no_interest(*_: object) -> None:
    pass


async def _discover(dispatcher: Dispatcher, limit_s: float) -> AgreedProtocol | None:
    sent, headers = transport.stamp_request(
        "server/discover", None, LATEST_MODERN_VERSION, modern=True, capabilities={}, log_level=None, schema=None
    )
    options: CallOptions = {"headers": headers, "cancel_on_abandon": False, "timeout": limit_s}
    try:
        reply = await transport.send_request(dispatcher, "server/discover", sent, options)
    except MCPError:
        reply = {}
    versions = reply.get("supportedVersions")
    if isinstance(versions, list) and (mutual := [v for v in MODERN_PROTOCOL_VERSIONS if v in versions]):
        return _agreement(mutual[-1], True, reply)
    return None


async def _shake_hands(dispatcher: Dispatcher, capabilities: Mapping[str, Any]) -> AgreedProtocol:
    request = {
        "protocolVersion": LATEST_HANDSHAKE_VERSION,
        "capabilities": dict(capabilities),
        "clientInfo": transport.CLIENT_INFO,
    }
    reply = await transport.send_request(dispatcher, "initialize", request, {"cancel_on_abandon": False})
    version = reply.get("protocolVersion")
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        raise UpstreamDown(f"it uses version {str(version)[:40]!r} of the protocol, which Hone does not support")
    headers = {MCP_PROTOCOL_VERSION_HEADER: version}
    await dispatcher.notify("notifications/initialized", None, {"headers": headers})
    return _agreement(str(version), False, reply)


def usable_capabilities(exchange: CallerRequest | None) -> Mapping[str, Any]:
    """Return the caller's capabilities for the upstream. A caller of the handshake era can only be asked."""
    if exchange is None:
        return {}
    return exchange.capabilities if exchange.modern else exchange.back_channel()


def _agreement(version: str, modern: bool, reply: Mapping[str, Any]) -> AgreedProtocol:
    capabilities, instructions = reply.get("capabilities"), reply.get("instructions")
    return AgreedProtocol(
        version,
        modern,
        capabilities if isinstance(capabilities, Mapping) else {},
        instructions if isinstance(instructions, str) else None,
    )

"""Checks of the MCP servers in `[mcp]`: whether each can be reached and speaks the protocol.

Refuses: calling tools, and the protocol itself (`proxy.mcp_gateway.servers.handshake`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from proxy.errors import UpstreamDown
from proxy.settings.mcp import McpServerSettings
from recorder.base.findings import Finding, FindingLevel
from recorder.base.urls import mask_parameters

CHECK: Final = "mcp servers"
LIMIT_S: Final = 10.0


async def check_mcp_servers(servers: Mapping[str, McpServerSettings], *, offline: bool = False) -> list[Finding]:
    """One finding for each server, which are asked at the same time; none without servers."""
    if offline and servers:
        return [Finding(CHECK, FindingLevel.SKIPPED, f"{', '.join(servers)}: not called (--offline).")]
    return await asyncio.gather(*(_check(name, server) for name, server in servers.items()))


async def _check(name: str, server: McpServerSettings) -> Finding:
    # Here: the SDK takes more than half a CPU second to import, and `hone up` checks no server where none is set.
    from proxy.mcp_gateway.servers.handshake import greet_server

    where = mask_parameters(server.url) if server.url is not None else f"`{server.command}`"
    try:
        async with asyncio.timeout(LIMIT_S):
            agreed = await greet_server(server)
    except TimeoutError:
        why = f"no answer within {LIMIT_S:.0f} s"
    except UpstreamDown as e:
        why = str(e)
    else:
        return Finding(CHECK, FindingLevel.FINE, f"{name} ({where}) answers in version {agreed.version}.")
    setting = "url" if server.url is not None else "command"
    todo = f"Agents get none of its tools. Start it, or correct {setting} in [mcp.{name}]."
    return Finding(CHECK, FindingLevel.WRONG, f"{name} ({where}) does not answer: {why}.", todo)

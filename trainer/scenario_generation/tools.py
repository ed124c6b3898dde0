"""The tools of an MCP server, for writing tasks that need them.

Owns: listing a server's tools, within limits, and which of them are read-only. Refuses: calling any. A
description is data for a prompt, and its instructions are never followed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

from recorder.base.connection_failures import describe_failure
from trainer.errors import ToolsUnavailable

TIMEOUT_S: Final = 30.0
MOST_PAGES: Final = 20
MOST_TOOLS: Final = 1000
_NAME: Final = re.compile(r"[A-Za-z0-9_./:-]{1,128}")  # no model's provider accepts other names


@dataclass(frozen=True, slots=True)
class ServerTool:
    """A tool as its server describes it. `only_reads`: the server marks it read-only; unmarked tools may write."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    only_reads: bool


async def list_tools(url: str, headers: Mapping[str, str]) -> list[ServerTool]:
    """The tools of a server at `url` (streamable HTTP). Raises `ToolsUnavailable`."""
    try:
        async with asyncio.timeout(TIMEOUT_S):
            listed = await _listed(url, headers)
    except TimeoutError:
        raise ToolsUnavailable(f"the MCP server at {url} did not list its tools within {TIMEOUT_S:g} s") from None
    except Exception as e:
        raise ToolsUnavailable(f"the MCP server at {url} cannot list its tools: {describe_failure(e)}") from e
    tools = [tool for tool in listed if _NAME.fullmatch(tool.name)]
    if not tools:
        raise ToolsUnavailable(f"the MCP server at {url} lists no tool")
    return tools


def filter_offered(tools: Sequence[ServerTool], *, allow_writes: bool) -> list[ServerTool]:
    """The tools that tasks may need: read-only ones, unless writes are allowed.

    Raises `ToolsUnavailable` if none is left.
    """
    found = [tool for tool in tools if allow_writes or tool.only_reads]
    if not found:
        raise ToolsUnavailable(
            f"none of the server's {len(tools)} tools is marked read-only ({_named(tools)}), and others are not "
            "offered in training: let the server set readOnlyHint where it is true, or add --allow-writes"
        )
    return found


async def _listed(url: str, headers: Mapping[str, str]) -> list[ServerTool]:
    import httpx2  # with the SDK half a second to import, which only this command needs
    from mcp.client import Client
    from mcp.client.streamable_http import streamable_http_client

    found: list[ServerTool] = []
    async with AsyncExitStack() as stack:
        http = await stack.enter_async_context(httpx2.AsyncClient(headers=dict(headers), timeout=TIMEOUT_S))
        client = await stack.enter_async_context(Client(streamable_http_client(url, http_client=http)))
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            found += [_tool(tool) for tool in page.tools]
            cursor = page.next_cursor
            if cursor is None or len(found) >= MOST_TOOLS:
                break
    return found[:MOST_TOOLS]


def _tool(tool: Any) -> ServerTool:
    hints = tool.annotations
    only_reads = hints is not None and hints.read_only_hint is True
    return ServerTool(tool.name, tool.description or "", tool.input_schema or {}, only_reads)


def _named(tools: Sequence[ServerTool]) -> str:
    names = [tool.name for tool in tools]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")

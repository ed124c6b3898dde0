"""A plain tool-calling agent: it asks a model over the OpenAI protocol and calls its tools over MCP. It knows nothing of Hone.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 HELPDESK_MCP_URL=http://127.0.0.1:8100/mcp \\
        python examples/helpdesk/agent.py "Where is my order 4821?"

Owns the loop and the connections that concurrent runs share. Refuses to judge what the model does: a malformed call or a
missing argument is answered with what is wrong with it, as any tool would.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import json
import os
from dataclasses import dataclass
from typing import Any, Protocol

from mcp import Client, MCPError
from mcp_types import TextContent
from openai import AsyncOpenAI, DefaultAsyncHttpxClient

SYSTEM = "You tell customers when their order arrives."
MAX_TURNS = 6
MAX_TOKENS = 96
MCP_URL = "http://127.0.0.1:8100/mcp"

Message = dict[str, Any]


class Task(Protocol):
    """One question, and the model that is to answer it."""

    @property
    def id(self) -> str: ...
    @property
    def input(self) -> dict[str, Any] | str: ...
    @property
    def base_url(self) -> str: ...
    @property
    def api_key(self) -> str: ...
    @property
    def model(self) -> str: ...


class Desk:
    """One MCP session and one HTTP connection pool for all runs of an event loop.

    A client a run would cost more time than the run itself, and the MCP session has to be entered and left by the same task, so
    a task of its own holds it until the loop ends.
    """

    def __init__(self, mcp_url: str) -> None:
        loop = asyncio.get_running_loop()
        self._ready: asyncio.Future[tuple[Client, list[dict[str, Any]]]] = loop.create_future()
        self._openai = AsyncOpenAI(base_url="http://unset", api_key="unset", max_retries=2)
        self._holder = loop.create_task(self._hold(mcp_url))

    async def _hold(self, mcp_url: str) -> None:
        try:
            async with self._openai, Client(mcp_url) as client:
                listed = await client.list_tools()
                self._ready.set_result((client, [_as_openai(tool) for tool in listed.tools]))
                await asyncio.Event().wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

"""A plain agent: a model over the OpenAI protocol, and any tools that an MCP server lists.

It knows a base URL: the model is at its ``/v1``, the tools, over MCP, at ``/mcp``. Owns the loop. Refuses to know which
tools there are, and to judge the model's output: it answers a malformed call with an error message.
"""

from __future__ import annotations

import asyncio
import functools
import itertools
import json
import ssl
from typing import Any, Final, Protocol

import httpx
import httpx2
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp_types import TextContent, Tool
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ChatCompletionMessageFunctionToolCall

SYSTEM: Final = "You answer with your tools."
MAX_TURNS: Final = 5
MAX_TOKENS: Final = 200
POOLS: Final = 8  # pools of connections to the model: for every request, httpx scans all connections of a pool
TOOLS_TIMEOUT_S: Final = 60.0

Json = dict[str, Any]


class Task(Protocol):
    """One task, with the address of the model and the tools."""

    @property
    def input(self) -> Json | str:
        """The user's message, or a dict with it under ``question``."""

    @property
    def base_url(self) -> str:
        """The model's base URL, with ``/v1``."""

    @property
    def api_key(self) -> str:
        """The API key."""

    @property
    def model(self) -> str:
        """The model's name."""


async def run(task: Task) -> str:
    """Do the task; return the model's last message.

    Raises:
        openai.OpenAIError: the model could not be reached or refused the request.
        mcp.MCPError: the tools could not be listed.
    """
    said = task.input if isinstance(task.input, str) else str(task.input["question"])
    model = next(_models(asyncio.get_running_loop())).with_options(base_url=task.base_url, api_key=task.api_key)
    url = f"{task.base_url.removesuffix('/v1')}/mcp"
    async with (
        httpx2.AsyncClient(verify=_tls(), timeout=TOOLS_TIMEOUT_S) as http,
        Client(streamable_http_client(url, http_client=http)) as mcp,
    ):
        return await _converse(said, model, task.model, mcp)


async def _converse(said: str, model: AsyncOpenAI, name: str, mcp: Client) -> str:
    messages: list[Json] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": said}]
    tools = [_as_openai(tool) for tool in (await mcp.list_tools()).tools]
    for _ in range(MAX_TURNS):
        reply = await _ask(model, name, messages, tools)
        messages.append(_echo(reply))
        calls = [call for call in reply.tool_calls or () if call.type == "function"]
        if not calls:
            break
        messages += [await _call(mcp, call) for call in calls]
    return str(messages[-1]["content"] or "")


async def _ask(model: AsyncOpenAI, name: str, messages: list[Json], tools: list[Json]) -> ChatCompletionMessage:
    completion: ChatCompletion = await model.chat.completions.create(  # type: ignore[call-overload]  # plain dicts
        model=name, messages=messages, tools=tools, tool_choice="auto", temperature=1.0, max_tokens=MAX_TOKENS
    )
    return completion.choices[0].message


async def _call(mcp: Client, call: ChatCompletionMessageFunctionToolCall) -> Json:
    try:
        arguments = json.loads(call.function.arguments)
        if not isinstance(arguments, dict):
            raise ValueError("the arguments of a call are a JSON object")
        result = await mcp.call_tool(call.function.name, arguments)
        text = "".join(part.text for part in result.content if isinstance(part, TextContent))
    except (ValueError, MCPError) as error:
        text = json.dumps({"error": str(error)})
    return {"role": "tool", "tool_call_id": call.id, "content": text}


def _as_openai(tool: Tool) -> Json:
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _echo(reply: ChatCompletionMessage) -> Json:
    """Return the model's message as the next request contains it."""
    if not reply.tool_calls:
        return {"role": "assistant", "content": reply.content}
    calls = [call.model_dump(include={"id", "type", "function"}) for call in reply.tool_calls]
    return {"role": "assistant", "content": reply.content, "tool_calls": calls}


@functools.cache
def _models(loop: asyncio.AbstractEventLoop) -> itertools.cycle[AsyncOpenAI]:
    """Return a loop's clients, which its attempts share."""
    del loop
    return itertools.cycle(
        [
            AsyncOpenAI(base_url="http://unset", api_key="unset", http_client=DefaultAsyncHttpxClient(verify=_tls()))
            for _ in range(POOLS)
        ]
    )


@functools.cache
def _tls() -> ssl.SSLContext:
    """Return the certificates, read once: reading them is the main cost of a client, and each attempt has its own."""
    return httpx.create_ssl_context()

"""A plain tool-calling agent: a model over the OpenAI protocol, tools over MCP. It knows nothing of Hone.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 HELPDESK_MCP_URL=http://127.0.0.1:8100/mcp \\
        python examples/helpdesk/agent.py "Where is my order 4821?"

Owns the loop and the connections that concurrent runs share. Refuses to judge what the model does: a
malformed call is answered with what is wrong with it, as any tool would answer.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Protocol

import httpx
from mcp import Client, MCPError
from mcp_types import TextContent, Tool
from openai import AsyncOpenAI, DefaultAsyncHttpxClient
from openai.types.chat import ChatCompletion, ChatCompletionMessage, ChatCompletionMessageFunctionToolCall

log = logging.getLogger(__name__)

SYSTEM = "You tell customers when their order arrives."
MAX_TURNS = 6
MAX_TOKENS = 96
# httpx looks at all of a pool's connections, squared, for every request: with 64 runs at a time, eight small pools
# took 7 ms of CPU a run where one large pool took 16.
POOLS = 8
MCP_URL = "http://127.0.0.1:8100/mcp"

Json = dict[str, Any]
Hooks = dict[str, list[Callable[..., Any]]]


class Task(Protocol):
    """One question, and where the model is that shall answer it."""

    @property
    def id(self) -> str:
        """Names the attempt."""

    @property
    def input(self) -> Json | str:
        """The question itself, or a dict with it under ``question``."""

    @property
    def base_url(self) -> str:
        """Where the model is, with its ``/v1``."""

    @property
    def api_key(self) -> str:
        """The key for it."""

    @property
    def model(self) -> str:
        """Its name."""


async def run(task: Task) -> str:
    """Answer the task's question; returns the last thing that the model said.

    Raises:
        openai.OpenAIError: the model could not be reached or refused the request.
        ConnectionError: the tools could not be reached.
    """
    desk = await shared_desk(os.environ.get("HELPDESK_MCP_URL", MCP_URL), SYSTEM)
    question = task.input if isinstance(task.input, str) else task.input["question"]
    return await desk.answer(str(question), task)


@dataclass(frozen=True, slots=True)
class Desk:
    """Connection pools to models and one MCP session, shared by every run of an event loop."""

    models: Iterator[AsyncOpenAI]
    mcp: Client
    tools: list[Json]
    system: str = SYSTEM
    holder: asyncio.Task[None] | None = None  # a loop holds its tasks weakly

    async def answer(self, question: str, task: Task) -> str:
        """The last thing that was said when the model only talks, or no more turns are left."""
        return str((await self.converse(question, task))[-1]["content"] or "")

    async def converse(self, question: str, task: Task) -> list[Json]:
        """The agent's loop: ask the model, call what it wants called, until it only talks. Returns the conversation."""
        model = next(self.models).with_options(base_url=task.base_url, api_key=task.api_key)
        messages: list[Json] = [{"role": "system", "content": self.system}, {"role": "user", "content": question}]
        for _ in range(MAX_TURNS):
            reply = await self._ask(model, task.model, messages)
            messages.append(_echo(reply))
            calls = [call for call in reply.tool_calls or () if call.type == "function"]
            if not calls:
                break
            messages += [await self._call(call) for call in calls]
        return messages

    async def _ask(self, client: AsyncOpenAI, model: str, messages: list[Json]) -> ChatCompletionMessage:
        completion: ChatCompletion = await client.chat.completions.create(  # type: ignore[call-overload]  # plain dicts
            model=model,
            messages=messages,
            tools=self.tools,
            tool_choice="auto",
            temperature=1.0,
            max_tokens=MAX_TOKENS,
        )
        return completion.choices[0].message

    async def _call(self, call: ChatCompletionMessageFunctionToolCall) -> Json:
        try:
            arguments = json.loads(call.function.arguments)
            if not isinstance(arguments, dict):
                raise ValueError("the arguments of a call are a JSON object")
            result = await self.mcp.call_tool(call.function.name, arguments)
            text = "".join(part.text for part in result.content if isinstance(part, TextContent))
        except (ValueError, MCPError) as error:
            text = json.dumps({"error": str(error)})
        return {"role": "tool", "tool_call_id": call.id, "content": text}


def as_openai(tool: Tool) -> Json:
    """An MCP tool as the OpenAI protocol lists it."""
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _echo(reply: ChatCompletionMessage) -> Json:
    """The model's turn as it is sent back to it."""
    if not reply.tool_calls:
        return {"role": "assistant", "content": reply.content}
    calls = [call.model_dump(include={"id", "type", "function"}) for call in reply.tool_calls]
    return {"role": "assistant", "content": reply.content, "tool_calls": calls}


async def shared_desk(mcp_url: str, system: str) -> Desk:
    """The desk that every run of this event loop shares, with these tools and that system message."""
    opened = _desk(asyncio.get_running_loop(), mcp_url, system)
    return await asyncio.shield(opened)  # a run that is cancelled while it waits must not cancel the others' desk


@functools.cache
def _desk(loop: asyncio.AbstractEventLoop, mcp_url: str, system: str) -> asyncio.Future[Desk]:
    """The desk of this loop, opened by the first run: connections of its own cost a run more than its work.

    An MCP session must be left by the task that entered it. So one task holds it until the loop ends and cancels
    what is left; what it hands out is a future.
    """
    opened: asyncio.Future[Desk] = loop.create_future()
    holder = loop.create_task(_hold(mcp_url, system, opened))
    opened.add_done_callback(lambda _: holder)  # keeps a reference until the desk has one
    return opened


async def _hold(mcp_url: str, system: str, opened: asyncio.Future[Desk]) -> None:
    try:
        async with open_desk(mcp_url) as desk:
            opened.set_result(replace(desk, system=system, holder=asyncio.current_task()))
            await asyncio.Event().wait()
    except Exception as error:  # noqa: BLE001 - boundary: whatever stops it is the business of the runs that use it
        _desk.cache_clear()  # the next run opens another
        if opened.done():  # the runs that use it hear of it from their calls; nobody waits for this task
            log.warning("the session with the tools at %s ended: %r", mcp_url, error)
            return
        where = f"no tools at {mcp_url}: start the example's tools_server, or set the variable of its agent"
        opened.set_exception(ConnectionError(f"{where} ({error!r})"))


@asynccontextmanager
async def open_desk(mcp_url: str, hooks: Hooks | None = None) -> AsyncIterator[Desk]:
    """A desk for as long as the block lasts. `hooks` are httpx's, on every request to a model."""
    async with AsyncExitStack() as stack:
        mcp = await stack.enter_async_context(Client(mcp_url))
        models = [await stack.enter_async_context(client) for client in _models(hooks)]
        tools = [as_openai(tool) for tool in (await mcp.list_tools()).tools]
        yield Desk(itertools.cycle(models), mcp, tools)


def _models(hooks: Hooks | None) -> list[AsyncOpenAI]:
    tls = httpx.create_ssl_context()  # the expensive part of a client
    return [
        AsyncOpenAI(
            base_url="http://unset",
            api_key="unset",
            http_client=DefaultAsyncHttpxClient(verify=tls, event_hooks=hooks),
        )
        for _ in range(POOLS)
    ]


@dataclass(frozen=True, slots=True)
class TypedTask:
    """The task that a person types."""

    input: str
    base_url: str
    api_key: str
    model: str
    id: str = "typed"


def main() -> None:
    """Answer one question from the command line."""
    parser = argparse.ArgumentParser(description="Ask the helpdesk.")
    parser.add_argument("question", help='for example "Where is my order 4821?"')
    parser.add_argument("--model", default="helpdesk", help="the model's name (helpdesk)")
    given = parser.parse_args()
    base_url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    key = os.environ.get("OPENAI_API_KEY", "none")
    print(asyncio.run(run(TypedTask(given.question, base_url, key, given.model))))


if __name__ == "__main__":
    main()

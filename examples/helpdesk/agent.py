"""A plain tool-calling agent: a model over the OpenAI protocol, tools over MCP. It knows nothing of Hone.

    OPENAI_BASE_URL=http://127.0.0.1:8000/v1 HELPDESK_MCP_URL=http://127.0.0.1:8100/mcp \\
        python examples/helpdesk/agent.py "Where is my order 4821?"

Owns the loop and the connections that concurrent attempts share. Refuses to judge what the model does: the agent
answers a malformed call with an error message, as any tool would.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
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
# For every request, httpx does work that grows with the square of the pool's connections. With 64 attempts at a time,
# eight small pools took 7 ms of CPU per attempt, and one large pool took 16 ms.
POOLS = 8
MCP_URL = "http://127.0.0.1:8100/mcp"

Json = dict[str, Any]
Hooks = dict[str, list[Callable[..., Any]]]


class Task(Protocol):
    """One question, and the model that answers it."""

    @property
    def id(self) -> str:
        """The attempt's id."""

    @property
    def input(self) -> Json | str:
        """The question itself, or a dict with it under ``question``."""

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
    """Answer the task's question; return the model's last message.

    Raises:
        openai.OpenAIError: the model could not be reached or refused the request.
        ConnectionError: the tools could not be reached.
    """
    desk = await shared_desk(os.environ.get("HELPDESK_MCP_URL", MCP_URL), SYSTEM)
    question = task.input if isinstance(task.input, str) else task.input["question"]
    return await desk.answer(str(question), task)


@dataclass(frozen=True, slots=True)
class Desk:
    """Connection pools to models and one MCP session, shared by all attempts of an event loop."""

    models: Iterator[AsyncOpenAI]
    mcp: Client
    tools: list[Json]
    system: str = SYSTEM
    holder: asyncio.Task[None] | None = None  # a loop holds its tasks weakly

    async def answer(self, question: str, task: Task) -> str:
        """Return the model's last message: the first one without tool calls, or that of the last turn."""
        return str((await self.converse(question, task))[-1]["content"] or "")

    async def converse(self, question: str, task: Task) -> list[Json]:
        """Ask the model and call its tools until it makes no tool call; return the conversation."""
        model = self._model_of(task)
        messages: list[Json] = [{"role": "system", "content": self.system}, {"role": "user", "content": question}]
        for _ in range(MAX_TURNS):
            reply = await self._ask(model, task.model, messages)
            messages.append(_echo(reply))
            calls = [call for call in reply.tool_calls or () if call.type == "function"]
            if not calls:
                break
            messages += [await self._call(call) for call in calls]
        return messages

    async def reply(self, conversation: Sequence[Json], message: str, task: Task) -> Json:
        """Return the model's message to a further message of the user. Its tool calls are not made."""
        messages = [*conversation, {"role": "user", "content": message}]
        return _echo(await self._ask(self._model_of(task), task.model, messages))

    def _model_of(self, task: Task) -> AsyncOpenAI:
        return next(self.models).with_options(base_url=task.base_url, api_key=task.api_key)

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
    """Return an MCP tool in OpenAI's format."""
    function = {"name": tool.name, "description": tool.description or "", "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def _echo(reply: ChatCompletionMessage) -> Json:
    """Return the model's message as the next request contains it."""
    if not reply.tool_calls:
        return {"role": "assistant", "content": reply.content}
    calls = [call.model_dump(include={"id", "type", "function"}) for call in reply.tool_calls]
    return {"role": "assistant", "content": reply.content, "tool_calls": calls}


async def shared_desk(mcp_url: str, system: str) -> Desk:
    """Return the desk that all attempts of this event loop share, for these tools and this system message."""
    opened = _desk(asyncio.get_running_loop(), mcp_url, system)
    return await asyncio.shield(opened)  # an attempt that is cancelled while it waits must not cancel the shared desk


@functools.cache
def _desk(loop: asyncio.AbstractEventLoop, mcp_url: str, system: str) -> asyncio.Future[Desk]:
    """Return the desk of this loop, opened by the first attempt. Own connections would cost more than its work.

    The task that entered an MCP session must also leave it. So one task holds the session until the loop ends and
    cancels it; the attempts wait for a future.
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
    except Exception as raised:  # noqa: BLE001 - boundary: the attempts that use the desk report the error
        error = raised
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        _desk.cache_clear()  # the next attempt opens another
        if opened.done():  # the attempts notice it in their calls; nothing waits for this task
            log.warning("the session with the tools at %s ended: %s", mcp_url, error)
            return
        where = f"no tools at {mcp_url}: start the example's tools_server, or set the variable of its agent"
        opened.set_exception(ConnectionError(f"{where} ({error})"))


@asynccontextmanager
async def open_desk(mcp_url: str, hooks: Hooks | None = None) -> AsyncIterator[Desk]:
    """Yield a desk until the block ends. `hooks`: httpx's event hooks, for every request to a model."""
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
    """The task from the command line."""

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

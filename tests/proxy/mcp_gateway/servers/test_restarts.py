"""A server that restarts between two calls: its callers do not see it, and no call runs twice."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import mcp_types as types
import pytest
from mcp.client import Client

from proxy.settings.mcp import McpServerSettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import WITHOUT_PAGES, serving

MODERN = "2026-07-28"
CALLERS = [("legacy", ""), ("legacy", "/t/run"), (MODERN, ""), (MODERN, "/t/run")]


def text_of(result: types.CallToolResult) -> str:
    assert not result.is_error, result.content
    return "".join(part.text for part in result.content if isinstance(part, types.TextContent))


async def find(client: Client, order: str) -> str:
    return text_of(await client.call_tool("s__find_order", {"order_id": order}))


class Restarting:
    """A server of the official SDK at one port."""

    def __init__(self, everything: Everything, era: str = "handshake") -> None:
        self.everything = everything
        self._era = era
        self._stack = contextlib.AsyncExitStack()
        self._port = 0

    async def start(self) -> str:
        url = await self._stack.enter_async_context(served(self.everything, era=self._era, port=self._port))
        self._port = int(url.split(":")[2].split("/")[0])
        return url

    async def restart(self) -> None:
        await self._stack.aclose()
        await self.start()

    async def stop(self) -> None:
        await self._stack.aclose()


@contextlib.asynccontextmanager
async def restarting(era: str = "handshake") -> AsyncIterator[tuple[Restarting, str]]:
    server = Restarting(Everything("s"), era)
    url = await server.start()
    try:
        yield server, url
    finally:
        await server.stop()


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "address"), CALLERS)
async def test_a_caller_does_not_see_that_a_server_restarted(store: Store, mode: str, address: str) -> None:
    async with (
        restarting() as (server, url),
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
        Client(f"{proxy.url}{address}/mcp", mode=mode) as client,
    ):
        assert await find(client, "1") == "order 1 is on its way"
        tools = {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools}
        for order in ("2", "3"):
            await server.restart()
            assert await find(client, order) == f"order {order} is on its way"
        await server.restart()
        assert {tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools} == tools
        await server.restart()
        assert (await client.get_prompt("s__test_simple_prompt")).messages
        await server.restart()
        assert (await client.read_resource("test://s/own")).contents
        orders = [sent["arguments"]["order_id"] for sent in server.everything.seen]
        assert orders == ["1", "2", "3"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_many_callers_at_once_do_not_see_it_either(store: Store, mode: str) -> None:
    async with (
        restarting() as (server, url),
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
        Client(f"{proxy.url}/mcp", mode=mode) as one,
        Client(f"{proxy.url}/mcp", mode=mode) as two,
    ):
        await asyncio.gather(find(one, "0"), find(two, "0"))
        await server.restart()
        answers = await asyncio.gather(*(find(client, str(n)) for n in range(8) for client in (one, two)))
        assert answers == [f"order {n} is on its way" for n in range(8) for _ in range(2)]
        assert len(server.everything.seen) == 2 + 16


@pytest.mark.slow
async def test_a_level_and_a_subscription_are_in_force_in_the_new_session(store: Store) -> None:
    heard = asyncio.Event()

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.set()

    uri = "test://watched-resource"
    async with (
        restarting() as (server, url),
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
        Client(f"{proxy.url}/mcp", mode="legacy", message_handler=on_message) as client,
    ):
        await client.session.send_request(
            types.SetLevelRequest(params=types.SetLevelRequestParams(level="error")), types.EmptyResult
        )
        await client.session.send_request(
            types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri)), types.EmptyResult
        )
        await find(client, "1")
        await server.restart()
        server.everything.levels.clear()
        await find(client, "2")
        await find(client, "3")
        assert server.everything.levels == ["error"]
        await client.call_tool("s__touch", {"uri": uri})
        await asyncio.wait_for(heard.wait(), 10)


# --- servers of other SDKs, by what they answer to a session that they do not know

Refusal = Callable[[Any], tuple[int, str, bytes]]


def _error(code: int, message: str, id_: Any = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": id_, "error": {"code": code, "message": message}}).encode()


JSON = "application/json"
REFUSALS: dict[str, Refusal] = {
    "python sdk": lambda asked: (404, JSON, _error(-32600, "Session not found", "server-error")),
    "typescript sdk": lambda asked: (404, JSON, _error(-32001, "Session not found")),
    "its own id": lambda asked: (404, JSON, _error(-32600, "no such session", asked.get("id"))),
    "no body": lambda asked: (404, "text/plain", b""),
    "html": lambda asked: (404, "text/html", b"<h1>Not Found</h1>"),
    "typescript example": lambda asked: (400, JSON, _error(-32000, "Bad Request: No valid session ID provided")),
    "text": lambda asked: (400, "text/plain", b"Bad Request: No valid session ID provided"),
}


class Scripted:
    """A server of the handshake era, in raw HTTP. `refuses`: what it says of calls in a session that it knows."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal
        self.session: str | None = None
        self.sessions = 0
        self.ran: list[str] = []
        self.posts = 0
        self.refuses: tuple[int, str, bytes] | None = None
        self.forgets = False  # every session, at once

    def restart(self) -> None:
        self.session = None

    def answer(self, asked: dict[str, Any], session: str | None) -> tuple[int, str, bytes, str]:
        method = asked.get("method")
        if method == "initialize":
            self.sessions += 1
            self.session = f"session-{self.sessions}"
            result: dict[str, Any] = {
                "protocolVersion": "2025-06-18",
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "x", "version": "1"},
            }
        elif session is None:
            return (400, JSON, _error(-32000, "Bad Request: Server not initialized"), "")
        elif session != self.session or (self.forgets and method == "tools/call"):
            return (*self.refusal(asked), "")
        elif "id" not in asked:
            return 202, JSON, b"", ""
        elif method == "tools/list":
            result = {"tools": [{"name": "run", "inputSchema": {"type": "object"}}]}
        elif method == "tools/call":
            self.posts += 1
            if self.refuses is not None:
                return *self.refuses, ""
            self.ran.append(asked["params"]["arguments"]["n"])
            result = {"content": [{"type": "text", "text": "done"}]}
        else:
            result = {}
        body = json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}).encode()
        return 200, JSON, body, f"mcp-session-id: {self.session}\r\n"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                fields = dict(line.split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
                body = await reader.readexactly(int(fields.get("content-length", 0)))
                if head.startswith("post"):
                    status, kind, answer, more = self.answer(json.loads(body), fields.get("mcp-session-id"))
                else:
                    status, kind, answer, more = 405, "text/plain", b"", ""
                about = f"content-type: {kind}\r\n{more}content-length: {len(answer)}\r\n"
                writer.write(f"HTTP/1.1 {status} X\r\n{about}\r\n".encode() + answer)
        writer.close()


@contextlib.asynccontextmanager
async def scripted(store: Store, server: Scripted, mode: str = "legacy") -> AsyncIterator[Client]:
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/mcp"
    async with (
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
        Client(f"{proxy.url}/mcp", mode=mode) as client,
    ):
        yield client
    listening.close()


async def run(client: Client, n: str) -> str:
    return text_of(await client.call_tool("s__run", {"n": n}))


@pytest.mark.parametrize("mode", ["legacy", MODERN])
@pytest.mark.parametrize("refusal", REFUSALS)
async def test_the_status_says_that_a_session_is_unknown(store: Store, refusal: str, mode: str) -> None:
    server = Scripted(REFUSALS[refusal])
    async with scripted(store, server, mode) as client:
        await run(client, "a")
        server.restart()
        await asyncio.gather(run(client, "b"), run(client, "c"))
        assert sorted(server.ran) == ["a", "b", "c"]
        server.restart()
        assert [tool.name for tool in (await client.list_tools(cache_mode="bypass")).tools] == ["s__run"]


@pytest.mark.parametrize(
    "refuses",
    [
        (400, JSON, _error(-32602, "n is no number")),
        (400, JSON, _error(-32000, "busy")),
        (500, JSON, _error(-32603, "Session not found")),
        (200, JSON, _error(-32600, "Session not found")),
    ],
)
async def test_a_call_that_a_known_session_refuses_is_not_sent_again(
    store: Store, refuses: tuple[int, str, bytes]
) -> None:
    server = Scripted(REFUSALS["python sdk"])
    async with scripted(store, server) as client:
        server.refuses = refuses
        sessions = server.sessions
        with contextlib.suppress(Exception):
            await client.call_tool("s__run", {"n": "a"})
        assert server.posts == 1
        server.refuses = None
        await run(client, "b")
        assert server.sessions <= sessions + 1  # the caller's own, which its first call begins


async def test_a_server_that_forgets_every_session_is_asked_twice_and_no_more(store: Store) -> None:
    server = Scripted(REFUSALS["python sdk"])
    async with scripted(store, server) as client:
        await run(client, "a")
        server.forgets, sessions = True, server.sessions
        with pytest.raises(Exception, match="Session not found"):
            await client.call_tool("s__run", {"n": "b"})
        assert server.sessions == sessions + 1
        assert server.ran == ["a"]

"""A server that speaks both eras is spoken to in its caller's; one that speaks one, in that."""

from __future__ import annotations

import json
from typing import Any

import httpx
import mcp_types as types
import pytest
from mcp.client import Client
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from proxy.settings.mcp import McpServerSettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import WITHOUT_PAGES, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow

MODERN = "2026-07-28"
WATCHED = "test://watched-resource"


async def named(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.org"})


async def sampled(context: Any, params: Any) -> types.CreateMessageResult:
    content = types.TextContent(type="text", text="indeed")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


ABLE: dict[str, Any] = {"elicitation_callback": named, "sampling_callback": sampled}


def of_before() -> Everything:
    return Everything(listens=False, asks_today=False)


async def test_a_server_asks_and_tells_in_the_era_that_it_was_written_for(store: Store) -> None:
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        if isinstance(message, types.ResourceUpdatedNotification):
            heard.append(str(message.params.uri))

    async with (
        served(of_before()) as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
        Client(f"{proxy.url}/mcp", mode="legacy", message_handler=on_message, **ABLE) as client,
    ):
        assert "ada@" in str((await client.call_tool("s__test_elicitation", {"message": "who?"})).content)
        assert "indeed" in str((await client.call_tool("s__test_sampling", {"prompt": "so"})).content)
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=WATCHED))
        await client.session.send_request(request, types.EmptyResult)
        await client.call_tool("s__touch", {"uri": WATCHED})
        await until(lambda: heard == [WATCHED])
        async with Client(f"{proxy.url}/mcp", mode=MODERN) as modern:  # over another connection, in another era
            assert not (await modern.call_tool("s__find_order", {"order_id": "1"})).is_error


async def test_a_server_that_refuses_the_handshake_is_asked_for_it_once(store: Store) -> None:
    everything = Everything()
    async with (
        served(everything, era="modern") as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
    ):
        for _ in range(2):
            async with Client(f"{proxy.url}/mcp", mode="legacy", **ABLE) as client:
                assert "ada@" in str((await client.call_tool("s__test_elicitation", {"message": "who?"})).content)
        assert everything.refused == 1
        assert everything.sessions == []


@pytest.mark.parametrize("mode", ["legacy", MODERN])
async def test_a_server_that_closes_its_stream_while_it_works_is_heard_to_the_end(store: Store, mode: str) -> None:
    logged: list[Any] = []

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    async with (
        served(of_before(), polls=True) as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
        Client(f"{proxy.url}/mcp", mode=mode, logging_callback=on_log, log_level="info") as client,
    ):
        result = await client.call_tool("s__test_reconnection")
        assert "reconnected" in str(result.content)
        await until(lambda: logged == ["before", "after"])


def events(text: str) -> list[dict[str, str]]:
    """The fields of each server-sent event."""
    blocks = [block for block in text.replace("\r\n", "\n").split("\n\n") if block and not block.startswith(":")]
    return [{name: value.strip() for name, _, value in (x.partition(":") for x in b.split("\n"))} for b in blocks]


async def test_a_caller_may_come_back_for_what_it_has_not_read(store: Store) -> None:
    async with (
        served(Everything(), era="handshake") as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
    ):
        hello = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        }
        headers = {"accept": "application/json, text/event-stream", "mcp-protocol-version": LATEST_HANDSHAKE_VERSION}

        async def ask(method: str, params: Any, session: str | None = None) -> httpx.Response:
            body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
            more = {"mcp-session-id": session} if session else {}
            return await proxy.http.post("/mcp", json=body, headers=headers | more)

        sessions = [(await ask("initialize", hello)).headers["mcp-session-id"] for _ in range(2)]
        told = {}
        for number, session in enumerate(sessions):  # the same numbers of requests, and not the same answers
            call = {"name": "s__find_order", "arguments": {"order_id": str(number)}}
            primed, answered = events((await ask("tools/call", call, session)).text)
            assert (primed["data"], primed["retry"]) == ("", "1000")
            assert f"order {number}" in answered["data"]
            told[session] = (primed["id"], answered["data"])
        for session, (last, data) in told.items():
            again = headers | {"mcp-session-id": session, "last-event-id": last}
            async with proxy.http.stream("GET", "/mcp", headers=again) as stream:
                async for line in stream.aiter_lines():
                    if line.startswith("data: {"):
                        assert json.loads(line.removeprefix("data: ")) == json.loads(data)
                        break

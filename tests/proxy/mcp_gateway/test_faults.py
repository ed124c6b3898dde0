"""One server's trouble is that server's alone, and the store's trouble is nobody's."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from examples.running.programs import free_ports
from proxy.settings.mcp import McpServerSettings
from proxy.settings.sections import ProxySettings
from recorder.errors import StoreUnavailable
from recorder.maintenance.export import tool_lines
from recorder.registry import keys
from recorder.registry.keys import Scope
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine, Script, tool_call
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import PROJECT, WITHOUT_PAGES, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow  # faults, and processes that end: left out of `make check`

ERA = "auto"


def result_text(result: types.CallToolResult) -> str:
    content = result.content[0]
    assert isinstance(content, types.TextContent)
    return content.text


async def names(client: Client) -> set[str]:
    return {tool.name.partition("__")[0] for tool in (await client.list_tools(cache_mode="bypass")).tools}


@pytest.mark.slow
@pytest.mark.parametrize("era", ["both", "handshake"])
async def test_a_server_that_goes_and_comes_back_harms_no_other(store: Store, era: str) -> None:
    [port] = free_ports(1)
    gone = Everything("gone")
    async with served(Everything("well")) as well, FakeEngine() as engine:
        servers = {
            "well": McpServerSettings(url=well),
            "gone": McpServerSettings(url=f"http://127.0.0.1:{port}/mcp"),
        }
        async with (
            serving(store, engine, settings=WITHOUT_PAGES, mcp=servers) as proxy,
            Client(f"{proxy.url}/mcp", mode=ERA) as client,
        ):
            assert await names(client) == {"well"}
            for _ in range(2):
                async with served(gone, era=era, port=port):
                    await until(lambda: _has(client, "gone"))
                    assert result_text(await client.call_tool("gone__find_order", {"order_id": "1"})).startswith(
                        "order 1"
                    )
                told = await client.call_tool("gone__find_order", {"order_id": "2"})
                assert told.is_error
                assert "the MCP server 'gone' does not answer now" in result_text(told)
                assert await names(client) == {"well"}
                assert result_text(await client.call_tool("well__find_order", {"order_id": "3"})).startswith("order 3")
            with pytest.raises(MCPError, match="'gone' does not answer"):
                await client.get_prompt("gone__test_simple_prompt")
            text = (await proxy.http.get("/metrics")).text
            assert 'hone_mcp_server_up{server="gone"} 0.0' in text
            assert 'hone_mcp_server_up{server="well"} 1.0' in text
        lines = [line async for line in tool_lines(Project(store, PROJECT))]
    assert [(line["server"], line["status"]) for line in lines] == [
        ("gone", "complete"),
        ("gone", "errored"),
        ("well", "complete"),
    ] * 2
    assert "does not answer now" in lines[1]["error"]


async def _has(client: Client, server: str) -> bool:
    return server in await names(client)


@pytest.mark.slow
async def test_a_command_that_dies_is_started_again(store: Store, tmp_path: Path) -> None:
    died = tmp_path / "died"
    program = f"""
import os, runpy, sys, threading, time
def die():
    while not os.path.exists({str(died)!r}): time.sleep(0.01)
    os._exit(1)
if not os.path.exists({str(died)!r}): threading.Thread(target=die, daemon=True).start()
sys.argv = ["x"]
runpy.run_module("tests.proxy.mcp_everything", run_name="__main__")
"""
    root = Path(__file__).parents[3]
    local = McpServerSettings(
        command=sys.executable, args=["-W", "ignore", "-c", program], cwd=root, connect_timeout_s=30
    )
    async with (
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"local": local}) as proxy,
        Client(f"{proxy.url}/mcp", mode=ERA) as client,
    ):
        await until(lambda: _has(client, "local"))
        died.touch()
        await until(lambda: _is_down(proxy.http))
        await until(lambda: _has(client, "local"), 40)
        assert result_text(await client.call_tool("local__find_order", {"order_id": "1"})).startswith("order 1")


async def _is_down(http: Any) -> bool:
    return 'hone_mcp_server_up{server="local"} 0.0' in (await http.get("/metrics")).text


async def test_a_slow_server_is_given_up_and_others_are_not_held_up(store: Store) -> None:
    slow = Everything("slow")
    async with served(slow) as slow_url, served(Everything("quick")) as quick, FakeEngine() as engine:
        servers = {
            "slow": McpServerSettings(url=slow_url, timeout_s=3.0),
            "quick": McpServerSettings(url=quick),
        }
        async with (
            serving(store, engine, settings=WITHOUT_PAGES, mcp=servers) as proxy,
            Client(f"{proxy.url}/mcp", mode=ERA) as client,
        ):
            waiting = asyncio.ensure_future(client.call_tool("slow__slow"))
            await slow.entered.wait()
            assert result_text(await client.call_tool("quick__find_order", {"order_id": "1"})).startswith("order 1")
            told = await waiting
            assert told.is_error
            assert result_text(told) == "the MCP server 'slow' did not answer within 3 s"
            await until(lambda: slow.cancelled == ["slow"])  # and it was told
            assert result_text(await client.call_tool("slow__find_order", {"order_id": "2"})).startswith("order 2")


@pytest.mark.parametrize("era", ["both", "handshake"])
async def test_a_result_without_end_is_an_error_of_its_call_alone(store: Store, era: str) -> None:
    async with served(Everything("e"), era=era) as url, FakeEngine() as engine:
        servers = {"e": McpServerSettings(url=url, max_answer_mib=0.1)}
        async with (
            serving(store, engine, settings=WITHOUT_PAGES, mcp=servers) as proxy,
            Client(f"{proxy.url}/mcp", mode=ERA) as client,
        ):
            assert "`max_answer_mib` in [mcp.e]" in await _refused(client, "e__large", {"bytes": 3_000_000})
            assert await _finds(client, "e__find_order")


async def _refused(client: Client, name: str, arguments: dict[str, Any]) -> str:
    """What a caller is told of a call that failed: as the call's result, or as an error of the protocol."""
    try:
        result = await client.call_tool(name, arguments)
    except MCPError as e:
        return e.error.message
    assert result.is_error
    return result_text(result)


async def _finds(client: Client, name: str) -> bool:
    return not (await client.call_tool(name, {"order_id": "1"})).is_error


async def test_what_is_denied_is_not_there(store: Store) -> None:
    everything = Everything()
    async with served(everything) as url, FakeEngine() as engine:
        chosen = McpServerSettings(url=url, allow=["find_*", "large", "test://*", "test_simple_prompt"], deny=["large"])
        async with (
            serving(store, engine, settings=WITHOUT_PAGES, mcp={"e": chosen}) as proxy,
            Client(f"{proxy.url}/mcp", mode=ERA) as client,
        ):
            assert [tool.name for tool in (await client.list_tools()).tools] == ["e__find_order"]
            assert [prompt.name for prompt in (await client.list_prompts()).prompts] == ["e__test_simple_prompt"]
            for name in ("e__large", "e__slow"):
                with pytest.raises(MCPError, match="Unknown tool"):
                    await client.call_tool(name, {"bytes": 1})
    assert everything.seen == []


async def hostile(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server that answers everything with what no server may say."""
    try:
        while head := await reader.readuntil(b"\r\n\r\n"):
            length = next(int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length"))
            asked = json.loads(await reader.readexactly(length))
            told = {"jsonrpc": "2.0", "id": asked.get("id"), "result": _nonsense(asked)}
            body = json.dumps(told).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(body))
            writer.write(body)
    except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
        pass  # the caller hung up, or the test is over
    finally:
        writer.close()


def _nonsense(asked: dict[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    answers: dict[str, dict[str, Any]] = {
        "server/discover": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": 1}, "instructions": [3]},
        "tools/list": {
            "tools": [
                7,
                {"name": 3},
                {"name": "bad", "inputSchema": "none"},
                {"name": "odd", "inputSchema": schema, "annotations": [1]},
                {"name": "good", "inputSchema": schema},
            ],
            "ttlMs": "forever",
            "cacheScope": 3,
        },
        "tools/call": {"resultType": "input_required", "inputRequests": [1]}
        if asked.get("params", {}).get("name") == "good"
        else {"content": 7, "isError": True},
    }
    return answers.get(asked["method"], {"prompts": 1})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_what_a_hostile_server_says_harms_itself_alone(store: Store, mode: str) -> None:
    server = await asyncio.start_server(hostile, "127.0.0.1", 0)
    evil = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
    async with server, served(Everything()) as url, FakeEngine() as engine:
        servers = {"evil": McpServerSettings(url=evil), "well": McpServerSettings(url=url)}
        async with (
            serving(store, engine, settings=WITHOUT_PAGES, mcp=servers) as proxy,
            Client(f"{proxy.url}/mcp", mode=mode) as client,
        ):
            tools = {tool.name for tool in (await client.list_tools()).tools}
            assert {name for name in tools if name.startswith("evil")} == {"evil__good"}
            assert "well__find_order" in tools
            for name in ("evil__good", "evil__other"):
                with pytest.raises(MCPError):
                    await client.call_tool(name)
            assert result_text(await client.call_tool("well__find_order", {"order_id": "1"})).startswith("order 1")
            assert (await client.list_prompts()).prompts
        server.close()
    lines = [line async for line in tool_lines(Project(store, PROJECT))]
    assert [(line["server"], line["status"]) for line in lines] == [
        ("evil", "errored"),
        ("evil", "errored"),
        ("well", "complete"),
    ]


async def test_names_stay_as_they_are_with_one_server(store: Store) -> None:
    async with served(Everything()) as url, FakeEngine() as engine:
        settings = ProxySettings(port=0, mcp_prefix="none")
        servers = {"e": McpServerSettings(url=url)}
        async with (
            serving(store, engine, settings=settings, mcp=servers) as proxy,
            Client(f"{proxy.url}/mcp", mode=ERA) as client,
        ):
            assert "find_order" in {tool.name for tool in (await client.list_tools()).tools}
            assert result_text(await client.call_tool("find_order", {"order_id": "1"})).startswith("order 1")
            assert client.instructions == "Be kind."
    [line] = [line async for line in tool_lines(Project(store, PROJECT))]
    assert (line["name"], line["tool"], line["server"]) == ("find_order", "find_order", "e")


async def test_a_store_that_fails_does_not_reach_the_agent(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(*_: object, **__: object) -> None:
        raise StoreUnavailable("the disk is full")

    async with (
        served(Everything()) as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"e": McpServerSettings(url=url)}) as proxy,
        Client(f"{proxy.url}/t/run/mcp", mode=ERA) as client,
    ):
        for broken, why in (("commit", "tool_store"), ("join", "tool_attribution")):
            monkeypatch.setattr(proxy.recorder.tools, broken, fails)
            assert result_text(await client.call_tool("e__find_order", {"order_id": "1"})).startswith("order 1")
            assert f'hone_unrecorded_calls_total{{why="{why}"}} 1.0' in (await proxy.http.get("/metrics")).text


async def test_keys_and_their_scopes_guard_the_gateway(store: Store) -> None:
    _, infers = await keys.create_key(Project(store, PROJECT), "agent", [Scope.INFER])
    _, reads = await keys.create_key(Project(store, PROJECT), "reader", [Scope.READ])
    _, other = await keys.create_key(Project(store, PROJECT), "other", [Scope.INFER])
    everything = Everything()
    async with served(everything) as url, FakeEngine() as engine:
        own = McpServerSettings.model_validate({"url": url, "token": "the-servers-own"})
        async with serving(store, engine, settings=WITHOUT_PAGES, mcp={"e": own}) as proxy:
            hello = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "initialize",
                "params": {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "t", "version": "1"},
                },
            }
            accept = {"accept": "application/json, text/event-stream"}
            for headers, status in (({}, 401), (_bearer(reads), 403), (_bearer(infers), 200)):
                answer = await proxy.http.post("/mcp", json=hello, headers=accept | headers)
                assert answer.status_code == status
            session = accept | {"mcp-session-id": answer.headers["mcp-session-id"]}
            ping = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
            stolen = await proxy.http.post("/mcp", json=ping, headers=session | _bearer(other))
            assert stolen.status_code == 404
            assert (await proxy.http.post("/mcp", json=ping, headers=session | _bearer(infers))).status_code == 200
            async with httpx2.AsyncClient(headers=_bearer(infers)) as http:
                transport = streamable_http_client(f"{proxy.url}/mcp", http_client=http)
                async with Client(transport, mode=ERA) as client:
                    await client.call_tool("e__find_order", {"order_id": "1"})
    assert everything.headers[-1]["authorization"] == "Bearer the-servers-own"
    assert infers not in json.dumps(everything.headers) + json.dumps([dict(s) for s in everything.seen], default=str)


async def test_a_tool_call_belongs_to_its_own_keys_runs_alone(store: Store) -> None:
    secrets = [(await keys.create_key(Project(store, PROJECT), name, [Scope.INFER]))[1] for name in ("one", "two")]
    one, two = map(_bearer, secrets)
    everything, arguments = Everything(), {"order_id": "1"}
    async with (
        served(everything) as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"e": McpServerSettings(url=url)}) as proxy,
    ):

        async def call(headers: dict[str, str], path: str = "") -> str:
            async with httpx2.AsyncClient(headers=headers) as http:
                transport = streamable_http_client(f"{proxy.url}{path}/mcp", http_client=http)
                async with Client(transport, mode=ERA) as client:
                    try:
                        return result_text(await client.call_tool("e__find_order", arguments))
                    except MCPError as e:
                        return e.error.message

        engine.next = [Script([tool_call("e__find_order", arguments, "call-1")])]
        home = (await proxy.chat(path="/t/1", headers=one)).headers["x-hone-trajectory"]
        assert "the trajectory 1 belongs to another key" in await call(two, "/t/1")
        assert [s for s in everything.seen if "find_order" in str(s)] == []
        for headers in (two, one):
            assert (await call(headers)).startswith("order 1")
        lines = [line async for line in tool_lines(Project(proxy.store, PROJECT))]
        assert [line["trajectory_id"] for line in lines] == [None, home]


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_without_a_server_the_gateway_says_how_to_add_one(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        answer = await proxy.http.post("/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert answer.status_code == 404
        assert "[mcp.NAME]" in answer.json()["error"]["message"]

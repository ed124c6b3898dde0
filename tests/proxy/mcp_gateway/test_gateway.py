"""The gateway in front of real MCP servers of both eras, over HTTP and over stdio, for callers of both eras."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
import pytest_asyncio
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import ResourceUpdated, ToolsListChanged

from proxy.settings.mcp import McpServerSettings
from recorder.maintenance.export import tool_lines
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from tests.proxy.fake_engine import FakeEngine, Script, tool_call
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import PROJECT, WITHOUT_PAGES, Proxy, serving
from tests.proxy.until import until

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

MODES = ["legacy", "auto"]
SERVERS = ["new", "old", "local"]  # both eras over HTTP; the handshake era alone over HTTP; stdio
ROOT = Path(__file__).parents[3]


@dataclass
class World:
    """A proxy before three MCP servers and an engine."""

    proxy: Proxy
    engine: FakeEngine
    new: Everything
    old: Everything

    def behind(self, name: str) -> Everything:
        return {"new": self.new, "old": self.old}[name]

    async def recorded(self, name: str, **where: Any) -> list[dict[str, Any]]:
        lines = [line async for line in tool_lines(Project(self.proxy.store, PROJECT), **where)]
        return [line for line in lines if line["name"] == name]

    async def asks_for(self, name: str, arguments: dict[str, Any], call_id: str, **how: Any) -> str:
        """A model call whose answer asks for a tool; returns its id."""
        self.engine.next = [Script([tool_call(name, arguments, call_id)])]
        answer = await self.proxy.chat(f"for {call_id}", **how)
        assert answer.status_code == 200, answer.text
        return answer.headers["x-hone-call"]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory, migrated_file: Path) -> AsyncIterator[World]:
    data = tmp_path_factory.mktemp("gateway")
    shutil.copy(migrated_file, data / "hone.db")
    store = await open_store(data, RecorderSettings(), migrate=False)
    new, old = Everything("new"), Everything("old")
    program = ["-W", "ignore", "-m", "tests.proxy.mcp_everything"]
    async with served(new) as new_url, served(old, era="handshake") as old_url, FakeEngine() as engine:
        servers = {
            "new": McpServerSettings(url=new_url),
            "old": McpServerSettings(url=old_url),
            "local": McpServerSettings(command=sys.executable, args=program, cwd=ROOT, connect_timeout_s=30),
        }
        async with serving(store, engine, settings=WITHOUT_PAGES, mcp=servers) as proxy:
            yield World(proxy, engine, new, old)
    await store.close()


@asynccontextmanager
async def caller(world: World, mode: str, address: str = "", **more: Any) -> AsyncIterator[Client]:
    async with Client(f"{world.proxy.url}{address}/mcp", mode=mode, **more) as client:
        yield client


def result_text(result: types.CallToolResult) -> str:
    content = result.content[0]
    assert isinstance(content, types.TextContent)
    return content.text


async def elicited(context: Any, params: Any) -> types.ElicitResult:
    return types.ElicitResult(action="accept", content={"username": "ada", "email": "ada@example.org"})


async def sampled(context: Any, params: Any) -> types.CreateMessageResult:
    asked = params.messages[0].content.text
    content = types.TextContent(type="text", text=f"{asked}, indeed")
    return types.CreateMessageResult(role="assistant", content=content, model="m")


async def rooted(context: Any) -> types.ListRootsResult:
    return types.ListRootsResult(roots=[types.Root(uri="file:///home/ada")])


ABLE: dict[str, Any] = {
    "elicitation_callback": elicited,
    "sampling_callback": sampled,
    "list_roots_callback": rooted,
}


# --- what there is


@pytest.mark.parametrize("mode", MODES)
async def test_the_lists_of_all_servers_are_one(world: World, mode: str) -> None:
    async with caller(world, mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {name.partition("__")[0] for name in tools} == set(SERVERS)
        found = tools["old__find_order"]
        assert found.annotations is not None
        assert found.annotations.read_only_hint is True
        assert tools["local__json_schema_2020_12_tool"].input_schema["$defs"]["address"]["$anchor"] == "addressDef"
        assert "new__test_simple_prompt" in {p.name for p in (await client.list_prompts()).prompts}
        uris = [str(r.uri) for r in (await client.list_resources()).resources]
        assert {"test://new/own", "test://old/own", "test://static-text"} <= set(uris)  # of pages, too
        assert "old+test://static-text" in uris  # the same URI, of a second server
        assert len(set(uris)) == len(uris) == 12
        assert (await client.list_resource_templates()).resource_templates
        assert client.instructions is not None
        assert "new: Be kind." in client.instructions


@pytest.mark.parametrize(
    ("server", "mode"),
    [
        pytest.param(server, mode, marks=pytest.mark.long if mode == "legacy" and server != "old" else ())
        for server in SERVERS
        for mode in MODES
    ],
)
async def test_everything_of_a_server_can_be_used(world: World, mode: str, server: str) -> None:
    own = server if server != "local" else "everything"
    heard: list[tuple[float, float | None]] = []
    logged: list[Any] = []

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total))

    async def on_log(params: types.LoggingMessageNotificationParams) -> None:
        logged.append(params.data)

    async with caller(world, mode, logging_callback=on_log, log_level="info", **ABLE) as client:
        result = await client.call_tool(f"{server}__find_order", {"order_id": "7"})
        assert result_text(result) == "order 7 is on its way"
        assert result.structured_content == {"server": own}
        assert result.is_error is False
        await client.call_tool(f"{server}__test_tool_with_progress", progress_callback=on_progress)
        await until(lambda: heard == [(0, 100), (50, 100), (100, 100)])
        await client.call_tool(f"{server}__test_tool_with_logging")
        await until(lambda: len(logged) == 3)
        assert result_text(await client.call_tool(f"{server}__test_elicitation", {"message": "who?"})).find("ada@") > 0
        told = result_text(await client.call_tool(f"{server}__test_sampling", {"prompt": "so"}))
        assert told == "LLM response: so, indeed"
        told = result_text(await client.call_tool(f"{server}__test_input_required_result_list_roots"))
        assert "file:///home/ada" in told
        assert "blue" not in result_text(await client.call_tool(f"{server}__test_input_required_result_multi_round"))
        prompt = await client.get_prompt(f"{server}__test_prompt_with_arguments", {"arg1": "a", "arg2": "b"})
        assert "arg1='a', arg2='b'" in str(prompt.messages[0].content)
        assert "With" in str((await client.get_prompt(f"{server}__test_input_required_result_prompt")).messages)
        resource = (await client.read_resource(f"test://{own}/own")).contents[0]
        assert isinstance(resource, types.TextResourceContents)
        assert resource.text == f"only {own} has it"
        ref = types.PromptReference(type="ref/prompt", name=f"{server}__test_prompt_with_arguments")
        completed = await client.complete(ref, {"name": "arg1", "value": "par"})
        assert completed.completion.values == ["paris", "park", "party"]
        failed = await client.call_tool(f"{server}__test_error_handling")
        assert failed.is_error is True
    [line] = (await world.recorded(f"{server}__test_error_handling"))[-1:]
    assert (line["status"], line["error"]) == ("failed", "This tool intentionally returns an error for testing")


@pytest.mark.parametrize("mode", MODES)
async def test_a_resource_is_read_where_it_is(world: World, mode: str) -> None:
    async with caller(world, mode) as client:
        templated = (await client.read_resource("test://template/5/data")).contents[0]
        assert isinstance(templated, types.TextResourceContents)
        assert json.loads(templated.text)["id"] == "5"
        by_scheme = await client.read_resource("old+test://static-text")
        assert isinstance(by_scheme.contents[0], types.TextResourceContents)
        with pytest.raises(MCPError, match="not found") as error:
            await client.read_resource("test://nowhere")
        assert error.value.error.code == (-32602 if mode != "legacy" else -32002)
        ref = types.ResourceTemplateReference(type="ref/resource", uri="test://template/{id}/data")
        assert (await client.complete(ref, {"name": "id", "value": "12"})).completion.values == ["123", "124"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_tool_that_nobody_has_is_a_recorded_refusal(world: World, mode: str) -> None:
    async with caller(world, mode) as client:
        for name in ("nobody__x", "plain", "new__nothing"):
            with pytest.raises(MCPError, match="Unknown tool"):
                await client.call_tool(name, {"a": 1})
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("nobody__x")
    assert [line["status"] for line in await world.recorded("nobody__x")][-1:] == ["errored"]
    assert (await world.recorded("new__nothing"))[-1]["server"] == "new"


@pytest.mark.parametrize("mode", MODES)
async def test_questions_of_several_callers_find_their_own(world: World, mode: str) -> None:
    async def one(number: int) -> str:
        async def answer(context: Any, params: Any) -> types.ElicitResult:
            return types.ElicitResult(action="accept", content={"username": f"user-{number}", "email": "e"})

        async with caller(world, mode, elicitation_callback=answer) as client:
            return result_text(await client.call_tool("old__test_elicitation", {"message": "who?"}))

    told = await asyncio.gather(*(one(n) for n in range(6)))
    assert [f"user-{n}" in text for n, text in enumerate(told)] == [True] * 6


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("server", ["new", "old"])
async def test_giving_up_reaches_the_server(world: World, mode: str, server: str) -> None:
    everything = world.behind(server)
    everything.entered.clear()
    everything.cancelled.clear()
    before = len(await world.recorded(f"{server}__slow"))
    async with caller(world, mode) as client:
        calling = asyncio.ensure_future(client.call_tool(f"{server}__slow"))
        await everything.entered.wait()
        calling.cancel()
        await asyncio.gather(calling, return_exceptions=True)
        await until(lambda: everything.cancelled == ["slow"])
    lines: list[dict[str, Any]] = []

    async def is_recorded() -> bool:
        lines[:] = await world.recorded(f"{server}__slow")
        return len(lines) > before

    while not await is_recorded():
        await asyncio.sleep(0)
    assert lines[-1]["status"] == "aborted"
    assert lines[-1]["annotations"] == {"destructiveHint": True}


# --- what changes


async def test_changes_of_lists_and_resources_are_heard_in_the_handshake_era(world: World) -> None:
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        heard.append(getattr(message, "method", "?"))

    async with caller(world, "legacy", message_handler=on_message) as client:
        for uri in ("test://new/own", "test://old/own"):
            await client.session.send_request(
                types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri)), types.EmptyResult
            )
        await until(lambda: "test://old/own" in world.old.subscribed)
        for everything in (world.new, world.old):
            await everything.updated(f"test://{everything.name}/own")
        await until(lambda: heard.count("notifications/resources/updated") == 2)
        await client.call_tool("old__test_trigger_tool_change")
        await until(lambda: "notifications/tools/list_changed" in heard)
        await client.call_tool("new__test_trigger_prompt_change")
        await until(lambda: "notifications/prompts/list_changed" in heard)
        assert {"old__a_new_tool"} <= {t.name for t in (await client.list_tools()).tools}
        await client.call_tool("old__test_trigger_tool_change")
    await until(lambda: world.old.subscribed == [])


async def test_changes_are_heard_on_a_stream_today(world: World) -> None:
    async with caller(world, "2026-07-28") as client:
        uris = ["test://new/own", "test://old/own"]
        async with client.listen(tools_list_changed=True, resource_subscriptions=uris) as changes:
            await until(lambda: "test://old/own" in world.old.subscribed)
            await client.call_tool("new__test_trigger_tool_change")
            await world.old.updated("test://old/own")
            await world.new.updated("test://new/own")
            wanted = {ToolsListChanged(), ResourceUpdated("test://old/own"), ResourceUpdated("test://new/own")}
            async for change in changes:
                wanted.discard(change)
                if not wanted:
                    break
        await client.call_tool("new__test_trigger_tool_change")
    await until(lambda: world.old.subscribed == [])


# --- what is recorded


@pytest.mark.parametrize("mode", MODES)
async def test_the_address_joins_a_call_to_the_very_request(world: World, mode: str) -> None:
    runs = [f"{mode}-{n}" for n in range(3)]
    asked = {}
    for run in runs:  # the same question, the same request: only the address tells them apart
        asked[run] = await world.asks_for(
            "new__find_order", {"order_id": "1"}, f"call-{run}", path=f"/g/g-{mode}/t/{run}"
        )
    for run in reversed(runs):
        async with caller(world, mode, f"/g/g-{mode}/t/{run}") as client:
            await client.call_tool("new__find_order", {"order_id": "1"})
    calls = {line["trajectory_external_id"]: line for line in await world.proxy.calls()}
    for run in runs:
        [tool] = calls[run]["tool_calls"]
        assert (tool["tool_call_id"], tool["call_id"]) == (f"call-{run}", asked[run])
        assert tool["joined"] == {"source": "path", "confidence": "stated"}
        assert (tool["server"], tool["tool"], tool["status"]) == ("new", "find_order", "complete")
        assert tool["arguments"] == {"order_id": "1"}
        assert tool["result"]["content"] == [{"type": "text", "text": "order 1 is on its way"}]
        assert tool["annotations"] == {"readOnlyHint": True, "openWorldHint": False}
        assert tool["started_at"] > 0
        assert tool["timings"]["total_s"] > 0


async def test_a_minted_key_joins_and_never_goes_to_a_server(world: World) -> None:
    run = (await world.proxy.http.post("/hone/v1/trajectories", json={"trajectory": "minted"})).json()
    await world.asks_for("new__find_order", {"order_id": "k"}, "by-key", headers=_bearer(run["api_key"]))
    async with httpx2.AsyncClient(headers=_bearer(run["api_key"])) as http:
        transport = streamable_http_client(f"{world.proxy.url}/mcp", http_client=http)
        async with Client(transport, mode="2026-07-28") as client:
            await client.call_tool("new__find_order", {"order_id": "k"})
    [line] = (await world.recorded("new__find_order"))[-1:]
    assert (line["joined"]["source"], line["tool_call_id"]) == ("key", "by-key")
    assert run["api_key"] not in json.dumps(world.new.headers)
    assert "authorization" not in world.new.headers[-1]


def _bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_a_trace_joins_a_call_to_its_run(world: World) -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    await world.asks_for("new__find_order", {"order_id": "t"}, "traced", headers={"traceparent": trace})
    meta: Any = {"traceparent": trace}
    async with caller(world, "2026-07-28") as client:
        await client.call_tool("new__find_order", {"order_id": "other"}, meta=meta)
        await client.call_tool("new__find_order", {"order_id": "t"}, meta=meta)
    other, line = (await world.recorded("new__find_order"))[-2:]
    assert line["joined"] == {"source": "traceparent", "confidence": "exact"}
    assert line["tool_call_id"] == "traced"
    assert (other["trajectory_id"], other["tool_call_id"]) == (line["trajectory_id"], None)
    assert world.new.seen[-1]["_meta"]["traceparent"] == trace


async def _traced(world: World, trace: str) -> tuple[str, str, str | None]:
    """How a tool call that brings a `traceparent` alone, and that no model asked for, is joined, and to which run."""
    meta: Any = {"traceparent": trace}
    async with caller(world, "2026-07-28") as client:
        await client.call_tool("new__find_order", {"order_id": "nobody asked"}, meta=meta)
    line = (await world.recorded("new__find_order"))[-1]
    return line["joined"]["source"], line["joined"]["confidence"], line["trajectory_id"]


async def _run_of(world: World, call_id: str) -> str:
    [run] = [line["trajectory_id"] for line in await world.proxy.calls() if line["call_id"] == call_id]
    return str(run)


async def test_a_trace_tells_a_run_surely_by_the_same_span_and_else_hints_at_it(world: World) -> None:
    trace = "00-" + "a1" * 16
    asked = await world.asks_for(
        "new__find_order", {"order_id": "s"}, "one span", headers={"traceparent": trace + "-00f067aa0ba902b7-01"}
    )
    run = await _run_of(world, asked)
    assert await _traced(world, trace + "-00f067aa0ba902b7-00") == ("traceparent", "exact", run)
    assert await _traced(world, trace.upper() + "-00F067AA0BA902B8-01") == ("trace", "hint", run)


async def test_a_trace_of_several_runs_joins_no_call_and_its_spans_still_do(world: World) -> None:
    trace = "00-" + "b2" * 16
    for span in "12":
        headers = {"traceparent": f"{trace}-{span * 16}-01"}
        asked = await world.asks_for("new__find_order", {"order_id": span}, f"span {span}", headers=headers)
    assert await _traced(world, f"{trace}-{'3' * 16}-01") == ("none", "new", None)
    assert await _traced(world, f"{trace}-{'2' * 16}-01") == ("traceparent", "exact", await _run_of(world, asked))


async def test_a_trace_joins_no_call_to_a_run_that_is_not_written_yet(world: World) -> None:
    trace = f"00-{'c3' * 16}-{'1' * 16}-01"
    gate = asyncio.Event()
    world.engine.next = [Script([tool_call("new__find_order", {"order_id": "later"}, "later")], gate=gate)]
    known = len(world.engine.requests)
    running = asyncio.create_task(world.proxy.chat("for later", headers={"traceparent": trace}))
    await world.engine.until(lambda engine: len(engine.requests) > known)
    assert await _traced(world, trace) == ("none", "new", None)
    gate.set()
    asked = (await running).headers["x-hone-call"]
    assert await _traced(world, trace) == ("traceparent", "exact", await _run_of(world, asked))


async def test_arguments_join_a_call_where_one_run_alone_asked(world: World) -> None:
    asked = await world.asks_for("mcp__hone__new__find_order", {"order_id": "only"}, "only")
    async with caller(world, "legacy") as client:
        await client.call_tool("new__find_order", {"order_id": "only"})
        await world.asks_for("new__find_order", {"order_id": "both"}, "both-1")
        await world.asks_for("new__find_order", {"order_id": "both"}, "both-2")
        await client.call_tool("new__find_order", {"order_id": "both"})
        await client.call_tool("new__find_order", {"order_id": "nobody"})
    only, both, nobody = (await world.recorded("new__find_order"))[-3:]
    assert only["joined"] == {"source": "arguments", "confidence": "exact"}
    assert (only["call_id"], only["tool_call_id"]) == (asked, "only")
    assert both["joined"] == {"source": "arguments", "confidence": "ambiguous"}
    assert both["trajectory_id"] is None
    assert (nobody["joined"]["source"], nobody["trajectory_id"]) == ("none", None)


async def test_a_call_to_a_fresh_address_opens_its_run(world: World) -> None:
    async with caller(world, "2026-07-28", "/t/tools-first") as client:
        await client.call_tool("new__find_order", {"order_id": "0"})
    await world.proxy.chat("and now?", path="/t/tools-first")
    [line] = (await world.recorded("new__find_order"))[-1:]
    calls = [c for c in await world.proxy.calls() if c["trajectory_external_id"] == "tools-first"]
    assert [c["trajectory_id"] for c in calls] == [line["trajectory_id"]]
    assert calls[0]["group_id"] is not None  # the implicit group of its first question


async def test_a_question_and_its_answer_are_two_lines_of_one_request(world: World) -> None:
    await world.asks_for("new__test_elicitation", {"message": "m"}, "asks-first", path="/t/asks-first")
    async with caller(world, "2026-07-28", "/t/asks-first", **ABLE) as client:
        await client.call_tool("new__test_elicitation", {"message": "m"})
    lines = (await world.recorded("new__test_elicitation"))[-2:]
    assert [line["status"] for line in lines] == ["input_required", "complete"]
    assert {line["tool_call_id"] for line in lines} == {"asks-first"}


async def test_a_large_result_comes_whole(world: World) -> None:
    async with caller(world, "2026-07-28") as client:
        result = await client.call_tool("new__large", {"bytes": 3_000_000})
    assert len(result_text(result)) == 3_000_000


async def test_metrics_count_tool_calls_by_server(world: World) -> None:
    async with caller(world, "2026-07-28") as client:
        before = await world.proxy.metric('hone_tool_calls_total{server="new",state="complete"}')
        await client.call_tool("new__find_order", {"order_id": "m"})
    text = (await world.proxy.http.get("/metrics")).text
    samples = dict(line.rsplit(" ", 1) for line in text.splitlines() if line.startswith("hone_") and " " in line)
    assert float(samples['hone_tool_calls_total{server="new",state="complete"}']) >= 1 + before
    assert samples['hone_mcp_server_up{server="local"}'] == "1.0"
    assert float(samples['hone_tool_call_seconds_count{server="new"}']) >= 1


@pytest.mark.parametrize("path", ["/mcpfoo", "/mcp/foo", "/hone/mcpx", "/t/x/mcpfoo"])
async def test_only_the_path_itself_is_the_gateway(world: World, path: str) -> None:
    answer = await world.proxy.http.post(path, json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
    assert answer.status_code == 404, answer.text
    assert "jsonrpc" not in answer.json()


@pytest.mark.parametrize(
    ("headers", "status"),
    [({"origin": "http://evil.example"}, 403), ({"host": "evil.example"}, 403), ({"content-type": "text/plain"}, 415)],
)
async def test_pages_of_strangers_are_refused_as_the_protocol_says_it(
    world: World, headers: dict[str, str], status: int
) -> None:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"})
    whole = {"content-type": "application/json", "accept": "application/json, text/event-stream"} | headers
    answer = await world.proxy.http.post("/mcp", content=body, headers=whole)
    assert answer.status_code == status
    assert answer.json()["jsonrpc"] == "2.0"
    assert answer.json()["error"]["message"]


async def test_a_session_can_be_ended_without_a_body(world: World) -> None:
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    accept = {"accept": "application/json, text/event-stream"}
    opened = await world.proxy.http.post(
        "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, headers=accept
    )
    session = {"mcp-session-id": opened.headers["mcp-session-id"]}
    assert (await world.proxy.http.delete("/mcp", headers=session)).status_code == 200
    gone = await world.proxy.http.post(
        "/mcp", json={"jsonrpc": "2.0", "id": 2, "method": "ping"}, headers=accept | session
    )
    assert gone.status_code == 404

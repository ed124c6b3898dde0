"""Eight equal attempts that call their tools through /mcp: every tool call finds its own trajectory."""

from __future__ import annotations

import asyncio
import json
import random
import secrets
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from proxy.settings.mcp import McpServerSettings
from recorder.maintenance.export import tool_lines
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from recorder.views.trajectories.transcripts import load_trajectory
from tests.proxy.fake_engine import FakeEngine, Script, tool_call, words
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.mcp_words import text
from tests.proxy.running import ALIAS, PROJECT, WITHOUT_PAGES, Proxy, serving

pytestmark = [pytest.mark.slow, pytest.mark.asyncio(loop_scope="module")]

ATTEMPTS, ROUNDS = 8, 10
TOOL = "shop__stock"
SCHEMA: dict[str, Any] = {"type": "object", "properties": {"item": {"type": "string"}}}


class Shop:
    """An MCP server whose tool answers differently at each call, or always equally, after a while."""

    def __init__(self) -> None:
        self.equal = False
        self.fails = False
        self.server = Everything("shop")
        self.server.tools["stock"] = ({"inputSchema": SCHEMA}, self._stock)

    async def _stock(self, server: Everything, ctx: Any, sent: dict[str, Any]) -> dict[str, Any]:
        await asyncio.sleep(random.random() / 100)
        said = "3 left" if self.equal else f"{secrets.token_hex(3)} left"
        return text(said, structuredContent={"left": said}, **({"isError": True} if self.fails else {}))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop() -> AsyncIterator[tuple[Shop, str]]:
    made = Shop()
    async with served(made.server) as url:
        yield made, url


@pytest_asyncio.fixture(loop_scope="module")
async def world(tmp_path: Path, migrated_file: Path, shop: tuple[Shop, str]) -> AsyncIterator[tuple[Proxy, Shop]]:
    shutil.copy(migrated_file, tmp_path / "hone.db")
    store = await open_store(tmp_path, RecorderSettings(), migrate=False)
    async with FakeEngine() as engine:
        engine.default = _answer
        async with serving(
            store, engine, settings=WITHOUT_PAGES, mcp={"shop": McpServerSettings(url=shop[1])}
        ) as proxy:
            yield proxy, shop[0]
    await store.close()


def _answer(body: dict[str, Any]) -> Script:
    """Ask for the same tool with the same arguments in every round, and end after the last."""
    rounds = sum(bool(message.get("tool_calls")) for message in body["messages"])
    if rounds == ROUNDS:
        return Script([words("3 are left")])
    return Script([tool_call(TOOL, {"item": f"chair {rounds // 2}"}, f"call_{secrets.token_hex(8)}")])


class ChatAgent:
    """An agent of one wire format. `shown`: how its framework writes an MCP result."""

    path = "/v1/chat/completions"

    def __init__(self, proxy: Proxy, shown: str, headers: dict[str, str]) -> None:
        self.proxy, self.shown, self.headers = proxy, shown, headers
        self.history: list[dict[str, Any]] = [{"role": "user", "content": "How many chairs are left?"}]
        self.trajectory = ""

    async def ask(self) -> list[tuple[str, dict[str, Any]]]:
        """The tool calls of the next answer: id and arguments."""
        answer = await self.proxy.http.post(self.path, json=self.body(), headers=self.headers)
        assert answer.status_code == 200, answer.text
        assert self.trajectory in ("", answer.headers["x-hone-trajectory"])
        self.trajectory = answer.headers["x-hone-trajectory"]
        return self.read(answer.json())

    def body(self) -> dict[str, Any]:
        tool = {"type": "function", "function": {"name": TOOL, "parameters": SCHEMA}}
        return {"model": ALIAS, "messages": self.history, "tools": [tool]}

    def read(self, answer: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        message = answer["choices"][0]["message"]
        self.history.append(message)
        calls = message.get("tool_calls") or []
        return [(call["id"], json.loads(call["function"]["arguments"])) for call in calls]

    def bring(self, id_: str, result: Any) -> None:
        self.history.append({"role": "tool", "tool_call_id": id_, "content": SHOWN[self.shown](result)})


class MessagesAgent(ChatAgent):
    path = "/v1/messages"

    def body(self) -> dict[str, Any]:
        tools = [{"name": TOOL, "input_schema": SCHEMA}]
        return {"model": ALIAS, "max_tokens": 100, "messages": self.history, "tools": tools}

    def read(self, answer: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        self.history.append({"role": "assistant", "content": answer["content"]})
        return [(block["id"], block["input"]) for block in answer["content"] if block["type"] == "tool_use"]

    def bring(self, id_: str, result: Any) -> None:
        block = {"type": "tool_result", "tool_use_id": id_, "content": SHOWN[self.shown](result)}
        self.history.append({"role": "user", "content": [block | ({"is_error": True} if result.is_error else {})]})


class ResponsesAgent(ChatAgent):
    path = "/v1/responses"
    previous: str | None = None

    def body(self) -> dict[str, Any]:
        tools = [{"type": "function", "name": TOOL, "parameters": SCHEMA}]
        more = {"previous_response_id": self.previous} if self.previous else {}
        return {"model": ALIAS, "input": self.history, "tools": tools, **more}

    def read(self, answer: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
        self.previous, self.history = answer["id"], []
        calls = [item for item in answer["output"] if item["type"] == "function_call"]
        return [(item["call_id"], json.loads(item["arguments"])) for item in calls]

    def bring(self, id_: str, result: Any) -> None:
        output = SHOWN[self.shown](result)
        self.history.append({"type": "function_call_output", "call_id": id_, "output": output})


SHOWN: dict[str, Any] = {
    "text": lambda result: result.content[0].text,
    "part": lambda result: result.content[0].model_dump_json(),
    "structured": lambda result: json.dumps(result.structured_content, indent=1),
    "whole": lambda result: json.dumps(result.model_dump(mode="json", by_alias=True)),
    "label": lambda result: f"Tool result:\n{result.content[0].text}",
}


async def _attempt(agent: ChatAgent, mcp: str, mode: Any) -> list[str]:
    """One attempt; returns what its tools answered, in order."""
    heard = []
    async with Client(mcp, mode=mode) as client:
        while calls := await agent.ask():
            for id_, arguments in calls:
                result = await client.call_tool(TOOL, arguments)
                heard.append(result.content[0].text)  # type: ignore[union-attr]
                agent.bring(id_, result)
    return heard


@pytest.mark.parametrize(
    ("agent", "shown", "mode", "equal"),
    [
        (ChatAgent, "text", "legacy", False),
        pytest.param(ChatAgent, "part", "auto", False, marks=pytest.mark.long),
        pytest.param(ChatAgent, "whole", "auto", False, marks=pytest.mark.long),
        pytest.param(ChatAgent, "label", "auto", False, marks=pytest.mark.long),
        (ChatAgent, "text", "auto", True),
        (MessagesAgent, "text", "auto", False),
        (ResponsesAgent, "structured", "auto", False),
        pytest.param(ResponsesAgent, "text", "legacy", True, marks=pytest.mark.long),
    ],
)
async def test_every_tool_call_of_equal_attempts_finds_its_trajectory(
    world: tuple[Proxy, Shop], agent: type[ChatAgent], shown: str, mode: str, equal: bool
) -> None:
    proxy, shop = world
    shop.equal, shop.fails = equal, shown == "label"
    agents = [agent(proxy, shown, {"x-hone-group": "chairs"}) for _ in range(ATTEMPTS)]
    heard = await asyncio.gather(*(_attempt(one, f"{proxy.url}/mcp", mode) for one in agents))
    lines = [line async for line in tool_lines(Project(proxy.store, PROJECT))]
    assert len(lines) == ATTEMPTS * ROUNDS == sum(map(len, heard))
    assert len({one.trajectory for one in agents}) == ATTEMPTS
    assert {line["joined"]["confidence"] for line in lines} <= {"exact", "hint"}
    for one, texts in zip(agents, heard, strict=True):
        view = await load_trajectory(proxy.store, one.trajectory)
        recorded = [(call.result or {})["content"][0]["text"] for call in view.tool_calls]
        assert sorted(recorded) == sorted(texts)
        if not equal:
            assert recorded == texts
        asked = [call["id"] for m in view.messages for call in m.get("tool_calls") or ()]
        assert sorted(str(call.tool_call_id) for call in view.tool_calls) == sorted(asked)
    if not equal:
        assert "order" not in {line["joined"]["source"] for line in lines}


async def test_the_session_that_a_caller_names_tells_equal_requests_apart(world: tuple[Proxy, Shop]) -> None:
    proxy, _ = world
    names = [{"x-session-id": "one"}, {"x-session-id": "two"}, {"x-hone-group": "three"}, {}]
    agents = [ChatAgent(proxy, "text", headers) for headers in names]
    for one in agents:
        await one.ask()
    for headers in names[1:]:
        async with httpx2.AsyncClient(headers=headers) as http:
            transport = streamable_http_client(f"{proxy.url}/mcp", http_client=http)
            async with Client(transport, mode="2026-07-28") as client:
                await client.call_tool(TOOL, {"item": "chair 0"})
    lines = [line async for line in tool_lines(Project(proxy.store, PROJECT))]
    joined = [(line["trajectory_id"], line["joined"]["source"], line["joined"]["confidence"]) for line in lines]
    assert joined == [
        (agents[1].trajectory, "session_header", "exact"),
        (agents[2].trajectory, "arguments", "exact"),
        (None, "arguments", "ambiguous"),
    ]


async def test_a_trace_in_the_callers_headers_leads_to_its_trajectory(world: tuple[Proxy, Shop]) -> None:
    proxy, _ = world
    spans = [{"traceparent": f"00-{at * 32}-{'1' * 16}-01"} for at in "ab"]
    agents = [ChatAgent(proxy, "text", headers) for headers in spans]
    for one in agents:
        await one.ask()
    async with httpx2.AsyncClient(headers=spans[1]) as http:
        transport = streamable_http_client(f"{proxy.url}/mcp", http_client=http)
        async with Client(transport, mode="2026-07-28") as client:
            await client.call_tool(TOOL, {"item": "chair 0"})
    [line] = [line async for line in tool_lines(Project(proxy.store, PROJECT))]
    assert (line["trajectory_id"], line["joined"]["source"]) == (agents[1].trajectory, "traceparent")

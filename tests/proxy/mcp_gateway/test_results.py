"""What a server answers reaches the caller: results with what no SDK knows, and errors with their code and data."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.settings.mcp import McpServerSettings
from recorder.maintenance.export import tool_lines
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.raw_mcp import LEGACY, MODERN, RawCaller, RawServer
from tests.proxy.running import PROJECT, WITHOUT_PAGES, Proxy, serving

ERAS = [LEGACY, MODERN]
CALL: dict[str, Any] = {"name": "s__run", "arguments": {}}
METHODS: dict[str, tuple[dict[str, Any], str]] = {
    "tools/call": (CALL, "content"),
    "prompts/get": ({"name": "s__ask"}, "messages"),
    "resources/read": ({"uri": "raw://one"}, "contents"),
}


@contextlib.asynccontextmanager
async def before(store: Store, server: RawServer, **more: Any) -> AsyncIterator[Proxy]:
    async with (
        server.served() as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url, **more)}) as proxy,
    ):
        yield proxy


RESULTS: list[tuple[str, dict[str, Any]]] = [  # of tools/call, as sent and as it arrives
    ('{"structuredContent": {"order": "4821"}}', {"structuredContent": {"order": "4821"}, "content": []}),
    ('{"content": null, "structuredContent": {"a": 1}}', {"structuredContent": {"a": 1}, "content": []}),
    ("{}", {"content": []}),
    ('{"isError": true}', {"content": [], "isError": True}),
    (
        '{"content": [{"type": "hologram", "beam": 3}, {"type": "text", "text": "a", "more": {"x": null}}]}',
        {"content": [{"type": "hologram", "beam": 3}, {"type": "text", "text": "a", "more": {"x": None}}]},
    ),
    (
        '{"content": [{"type": "text", "text": "a", "annotations": {"audience": ["robot"], "priority": 9}}],'
        ' "vendor": 1}',
        {
            "content": [{"type": "text", "text": "a", "annotations": {"audience": ["robot"], "priority": 9}}],
            "vendor": 1,
        },
    ),
    ('{"content": [{"type": "text", "text": null}]}', {"content": [{"type": "text", "text": None}]}),
    ('{"content": [{"type": "text", "text": "half \\ud83d"}]}', {"content": [{"type": "text", "text": "half \ufffd"}]}),
    (
        '{"content": [{"type": "text", "text": "\\ud83d\\ude00"}]}',
        {"content": [{"type": "text", "text": "\U0001f600"}]},
    ),
    (
        '{"content": [], "structuredContent": {"n": 123456789012345678901234567890, "f": -0.5}}',
        {"content": [], "structuredContent": {"n": 123456789012345678901234567890, "f": -0.5}},
    ),
    ('{"content": [], "structuredContent": [1, 2]}', {"content": [], "structuredContent": [1, 2]}),
    ('{"content": [], "_meta": {"a/b": [1]}}', {"content": [], "_meta": {"a/b": [1]}}),
]


def without_envelope(result: dict[str, Any]) -> dict[str, Any]:
    """The result without what the current era adds."""
    rest = {k: v for k, v in result.items() if k not in ("resultType", "ttlMs", "cacheScope")}
    meta = {k: v for k, v in rest.pop("_meta", {}).items() if not k.startswith("io.modelcontextprotocol/")}
    return rest | ({"_meta": meta} if meta else {})


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("caller_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_tools_result_passes_through(store: Store, era: str, caller_era: str, streams: bool) -> None:
    server = RawServer(era)
    server.streams = streams
    async with before(store, server) as proxy:
        caller = RawCaller(proxy.http, caller_era)
        for sent, result in RESULTS:
            server.answers = {"tools/call": sent}
            answer = await caller.ask("tools/call", CALL)
            assert "result" in answer, (sent, answer)
            assert without_envelope(answer["result"]) == result
            assert ("resultType" in answer["result"]) == (caller_era == MODERN)
        lines = [line async for line in tool_lines(Project(store, PROJECT))]
        assert [line["status"] for line in lines] == ["complete"] * 3 + ["failed"] + ["complete"] * 8
        unrecorded = re.findall(
            r'hone_unrecorded_calls_total{why="tool_\w+"} (\S+)', (await proxy.http.get("/metrics")).text
        )
        assert set(unrecorded) == {"0.0"}


@pytest.mark.parametrize("caller_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_prompt_and_a_resource_pass_through(store: Store, era: str, caller_era: str) -> None:
    server = RawServer(era)
    part = '{"type": "hologram", "beam": "\\ude00", "n": 99999999999999999999}'
    server.answers = {
        "prompts/get": f'{{"messages": [{{"role": "robot", "content": {part}, "mood": null}}], "vendor": [1]}}',
        "resources/read": f'{{"contents": [{{"uri": "raw://one", "scene": {part}}}], "vendor": [1]}}',
    }
    async with before(store, server) as proxy:
        caller = RawCaller(proxy.http, caller_era)
        for method, sent in server.answers.items():
            params, _ = METHODS[method]
            answer = await caller.ask(method, params)
            assert without_envelope(answer["result"]) == json.loads(sent.replace("\\ude00", "\\ufffd"))


@pytest.mark.parametrize("caller_era", ERAS)
async def test_what_is_no_result_is_an_error(store: Store, caller_era: str) -> None:
    server = RawServer()
    async with before(store, server) as proxy:
        caller = RawCaller(proxy.http, caller_era)
        for method, (params, field) in METHODS.items():
            for body in ("7", '"text"', '{"a": 1}'):
                server.answers = {method: f'{{"{field}": {body}}}'}
                answer = await caller.ask(method, params)
                assert answer["error"]["message"] == f"the MCP server 's' answered {method} with an invalid result"


ERRORS: list[dict[str, Any]] = [
    {"code": -32602, "message": "order_id is missing", "data": {"field": "order_id"}},
    {"code": -32000, "message": "the shop is closed", "data": [1, None, "a"]},
    {"code": -32000, "message": "SSE stream failed"},
    {"code": -32001, "message": "too slow", "data": 0},
    {"code": -32099, "message": "of a vendor", "data": "text"},
    {"code": -32600, "message": "Session terminated"},
    {"code": -32042, "message": "open a page", "data": {"elicitations": []}},
    {"code": 0, "message": ""},
    {"code": 429, "message": "quota", "data": {"retry_after": 1.5}},
    {"code": 12345678901234567890, "message": "large", "data": False},
]


@pytest.mark.parametrize("streams", [False, True])
@pytest.mark.parametrize("caller_era", ERAS)
@pytest.mark.parametrize("era", ERAS)
async def test_an_error_keeps_its_code_message_and_data(store: Store, era: str, caller_era: str, streams: bool) -> None:
    server = RawServer(era)
    server.fails, server.streams = True, streams
    async with before(store, server) as proxy:
        caller = RawCaller(proxy.http, caller_era)
        for method in ("tools/call", "prompts/get"):
            for error in ERRORS:
                server.answers = {method: json.dumps(error)}
                assert (await caller.ask(method, METHODS[method][0]))["error"] == error, (method, error)
        server.answers = {"resources/read": json.dumps(ERRORS[1])}
        assert (await caller.ask("resources/read", METHODS["resources/read"][0]))["error"] == ERRORS[1]
        assert 'hone_mcp_server_up{server="s"} 1.0' in (await proxy.http.get("/metrics")).text

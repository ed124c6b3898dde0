"""The real `anthropic` client against the proxy: what Claude-style agents are written with."""

from __future__ import annotations

from typing import Any

import anthropic
import pytest
from anthropic.types import Message, MessageParam, RawMessageStreamEvent, ToolParam
from pydantic import TypeAdapter

from recorder.registry.keys import create_key
from recorder.store.database import Project, Store
from recorder.views.trajectories.transcripts import load_call
from tests.proxy.fake_engine import FakeEngine, Said, Script, Step, ids_of, tool_call, words
from tests.proxy.merged import events
from tests.proxy.running import BASE, PROJECT, WITHOUT_PAGES, Proxy, serving

pytestmark = pytest.mark.slow

ASK: list[MessageParam] = [{"role": "user", "content": "Where is order 4821?"}]
FIND: ToolParam = {"name": "find_order", "input_schema": {"type": "object"}}
CALL_ID = "chatcmpl-tool-0123456789"
CALL = tool_call("find_order", {"order_id": 4821}, CALL_ID)
THOUGHT = Said(
    [Step({"reasoning": "hm"}, ids_of("hm")), Step({"content": "One moment."}, ids_of("One moment.")), *CALL.steps],
    CALL.message | {"reasoning": "hm", "content": "One moment."},
    "tool_calls",
)
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


def client(proxy: Proxy, path: str = "", key: str = "none", **more: Any) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=f"{proxy.url}{path}", api_key=key, **more)


async def ask(agent: anthropic.AsyncAnthropic, history: list[Any], *, stream: bool) -> Message:
    """One turn, as the client itself puts a stream together."""
    said: dict[str, Any] = {
        "model": "helpdesk", "max_tokens": 64, "messages": history, "tools": [FIND], "system": "Be brief.",
    }  # fmt: skip
    if not stream:
        whole: Message = await agent.messages.create(**said)
        return whole
    async with agent.messages.stream(**said) as events:
        return await events.get_final_message()


@pytest.mark.parametrize("stream", [False, True])
async def test_an_agent_with_a_tool_runs_through_the_proxy(proxy: Proxy, engine: FakeEngine, stream: bool) -> None:
    engine.next = [Script([THOUGHT]), Script([words("Done")])]
    async with client(proxy) as agent:
        first = await ask(agent, ASK, stream=stream)
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use"]
        assert (first.stop_reason, first.content[2].to_dict()["input"]) == ("tool_use", {"order_id": 4821})
        result = {"type": "tool_result", "tool_use_id": CALL_ID, "content": [{"type": "text", "text": "shipped"}]}
        history = [*ASK, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        second = await ask(agent, history, stream=stream)
        assert second.content[0].to_dict()["text"] == "Done"
        assert (second.stop_reason, second.model) == ("end_turn", "helpdesk")
    one, two = await proxy.calls()
    assert (two["parent_call_id"], two["attribution"]["source"]) == (one["call_id"], "tool_call_id")
    assert [len(c["choices"][0]["logprobs"]) for c in (one, two)] == [
        len(c["choices"][0]["token_ids"]) for c in (one, two)
    ]
    assert engine.requests[1]["messages"][-1] == {"role": "tool", "tool_call_id": CALL_ID, "content": "shipped"}


async def test_every_event_is_one_that_the_clients_types_know(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([THOUGHT], cut_bytes=7)
    body = {"model": "helpdesk", "max_tokens": 9, "messages": ASK, "tools": [FIND], "stream": True}
    answer = await proxy.http.post("/v1/messages?beta=true", json=body, headers={"anthropic-version": "2023-06-01"})
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [EVENT.validate_python(event).type for event in events(answer.text)][-1] == "message_stop"


async def test_a_turn_continues_without_tools_by_its_blocks_alone(proxy: Proxy, engine: FakeEngine) -> None:
    async with client(proxy) as agent:
        first = await agent.messages.create(model="helpdesk", max_tokens=9, messages=ASK)
        history: list[Any] = [*ASK, {"role": "assistant", "content": first.content}, ASK[0]]
        await agent.messages.create(model="helpdesk", max_tokens=9, messages=history)
    one, two = await proxy.calls()
    assert (two["parent_call_id"], two["trajectory_id"]) == (one["call_id"], one["trajectory_id"])
    assert two["attribution"]["source"] == "lineage"


CLIENT_TOOLS: Any = [
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    {"type": "memory_20250818", "name": "memory"},
    {"type": "web_search_20250305", "name": "web_search"},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("bash", {"command": "ls"}),
        ("str_replace_based_edit_tool", {"command": "view", "path": "a"}),
        ("memory", {"command": "view", "path": "/memories"}),
    ],
)
async def test_tools_without_a_schema_that_the_client_runs(
    proxy: Proxy, engine: FakeEngine, name: str, given: dict[str, str], stream: bool
) -> None:
    engine.next = [Script([tool_call(name, given, CALL_ID)]), Script([words("Done")])]
    said: Any = {"model": "helpdesk", "max_tokens": 64, "tools": CLIENT_TOOLS}
    async with client(proxy) as agent:
        if stream:
            async with agent.messages.stream(messages=ASK, **said) as events:
                first = await events.get_final_message()
        else:
            first = await agent.messages.create(messages=ASK, **said)
        [block] = first.content
        assert block.type == "tool_use"
        assert (block.name, block.input) == (name, given)
        result = {"type": "tool_result", "tool_use_id": CALL_ID, "content": "ok"}
        foreign = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
        history: Any = [*ASK, {"role": "assistant", "content": [foreign, block]}, {"role": "user", "content": [result]}]
        answer = await agent.messages.with_raw_response.create(messages=history, **said)
        assert answer.headers["x-hone-left-out-tools"] == "web_search_20250305"
    one, two = [await load_call(proxy.store, call["call_id"]) for call in await proxy.calls()]
    assert one is not None
    assert two is not None
    assert (two.parent_call_id, two.attribution_confidence) == (one.id, "exact")
    assert two.messages[1] == one.choices[0].message
    assert two.response_meta is not None
    assert two.response_meta["left_out_tools"] == ["web_search_20250305"]
    assert two.response_meta["left_out_items"] == ["server_tool_use"]
    assert [tool["function"]["name"] for tool in engine.requests[0]["tools"]] == [t["name"] for t in CLIENT_TOOLS[:3]]


async def test_servers_that_a_request_names_are_left_out_and_not_recorded(proxy: Proxy) -> None:
    servers = [{"type": "url", "url": "https://mcp.example", "name": "x", "authorization_token": "geheim"}]
    body = {"model": "helpdesk", "max_tokens": 9, "messages": ASK, "tools": [FIND], "mcp_servers": servers}
    answer = await proxy.http.post("/v1/messages", json=body)
    assert (answer.status_code, answer.headers["x-hone-left-out-tools"]) == (200, "mcp_servers")
    assert "geheim" not in str(await proxy.call())


async def test_errors_are_the_clients_own(proxy: Proxy, engine: FakeEngine) -> None:
    async with client(proxy, max_retries=0) as agent:
        with pytest.raises(anthropic.NotFoundError) as missing:
            await agent.messages.create(model="nobody", max_tokens=9, messages=ASK)
        assert missing.value.body == {
            "type": "error",
            "error": {"type": "not_found_error", "message": missing.value.body["error"]["message"]},  # type: ignore[index]  # typed as object
            "request_id": None,
        }
        fault = {"error": {"message": f"{BASE} is not a multimodal model", "type": "BadRequestError", "code": 400}}
        engine.next = [Script(status=400, error=fault), Script(after_events=2, then="error")]
        with pytest.raises(anthropic.BadRequestError, match="helpdesk is not a multimodal model"):
            await agent.messages.create(model="helpdesk", max_tokens=9, messages=ASK)
        with pytest.raises(anthropic.APIStatusError, match="is lost"):
            async with agent.messages.stream(model="helpdesk", max_tokens=9, messages=ASK) as events:
                await events.get_final_message()


async def test_a_key_in_anthropics_header_is_a_key(store: Store, engine: FakeEngine) -> None:
    _, secret = await create_key(Project(store, PROJECT), "agent", ["infer"])
    async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        async with client(proxy, key=secret) as agent:
            assert (await agent.messages.create(model="helpdesk", max_tokens=9, messages=ASK)).stop_reason == "end_turn"
        async with client(proxy, key="wrong", max_retries=0) as stranger:
            with pytest.raises(anthropic.AuthenticationError):
                await stranger.messages.create(model="helpdesk", max_tokens=9, messages=ASK)
            with pytest.raises(anthropic.AuthenticationError):
                await stranger.messages.count_tokens(model="helpdesk", messages=ASK)


async def test_tokens_are_counted_by_the_engine_and_nothing_is_recorded(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script(body=b'{"input_tokens": 12}')
    async with client(proxy) as agent:
        counted = await agent.messages.count_tokens(model="helpdesk", messages=ASK, tools=[FIND])
        assert counted.input_tokens == 12
        with pytest.raises(anthropic.NotFoundError):
            await agent.messages.count_tokens(model="nobody", messages=ASK)
    assert engine.heads[0].startswith("POST /v1/messages/count_tokens ")
    assert engine.requests[0] == {"model": BASE, "messages": ASK, "tools": [FIND]}
    assert await proxy.calls() == []

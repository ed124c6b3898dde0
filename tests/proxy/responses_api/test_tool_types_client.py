"""Tools that are no plain functions, as Codex declares them: the real `openai` client against the proxy."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from recorder.store.database import Store
from recorder.views.trajectories.transcripts import load_call
from tests.proxy.fake_engine import FakeEngine, Said, Script, tool_call, words
from tests.proxy.running import WITHOUT_PAGES, Proxy, serving

pytestmark = pytest.mark.slow

# What Codex 0.169 sends, shortened: its functions, a free-form tool with a grammar, a namespace, and web search.
CODEX: list[Any] = [
    {"type": "function", "name": "exec_command", "strict": False, "parameters": {"type": "object", "properties": {}}},
    {
        "type": "custom",
        "name": "apply_patch",
        "description": "Use the `apply_patch` tool to edit files.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin_patch hunk+ end_patch"},
    },
    {"type": "web_search", "external_web_access": False},
    {
        "type": "namespace",
        "name": "multi_agent_v1",
        "description": "Tools for spawning and managing sub-agents.",
        "tools": [
            {
                "type": "function",
                "name": "spawn_agent",
                "description": "Spawn a sub-agent.",
                "strict": False,
                "parameters": {"type": "object", "properties": {"message": {"type": "string"}}},
            }
        ],
    },
    {"type": "local_shell"},
]
PATCH = tool_call("apply_patch", {"input": "*** Begin Patch\n*** End Patch"}, "chatcmpl-tool-patch-0001")
SPAWN = tool_call("multi_agent_v1__spawn_agent", {"message": "Look."}, "chatcmpl-tool-spawn-0001")
SHELL = tool_call("local_shell", {"command": ["ls", "-l"]}, "chatcmpl-tool-shell-0001")
CALLS = [("custom_tool_call", PATCH), ("function_call", SPAWN), ("local_shell_call", SHELL)]


@pytest.fixture
async def engine() -> Any:
    async with FakeEngine() as running:
        yield running


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> Any:
    async with serving(store, engine, settings=WITHOUT_PAGES) as running:
        yield running


@pytest.fixture
async def agent(proxy: Proxy) -> Any:
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def output_for(call: Any) -> dict[str, Any]:
    """What an agent sends back for a call."""
    if call.type == "local_shell_call":
        return {"type": "local_shell_call_output", "id": call.id, "output": "{}"}
    return {"type": f"{call.type}_output", "call_id": call.call_id, "output": "done"}


def echo(call: Any, *, ids: bool) -> dict[str, Any]:
    item: dict[str, Any] = call.model_dump(exclude_none=True)
    return item if ids or call.type == "local_shell_call" else {name: v for name, v in item.items() if name != "id"}


async def assert_goes_on(proxy: Proxy) -> None:
    """The second call goes on from what the first sampled: it is the same message."""
    one, two = [await load_call(proxy.store, call["call_id"]) for call in await proxy.calls()]
    assert one is not None
    assert two is not None
    assert (two.parent_call_id, two.attribution_confidence) == (one.id, "exact")
    [sampled] = one.choices
    assert sampled.message is not None
    assert two.messages[len(one.messages)] == sampled.message
    assert sampled.trainable


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
@pytest.mark.parametrize(("type_", "said"), CALLS, ids=[type_ for type_, _ in CALLS])
async def test_a_run_with_the_clients_own_items(
    proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI, type_: str, said: Said, stream: bool
) -> None:
    engine.next = [Script([said]), Script([words("Done")])]
    asked: Any = [{"role": "user", "content": "Mend it."}]
    more: Any = {"model": "helpdesk", "instructions": "Help.", "tools": CODEX, "store": False}
    if stream:
        async with agent.responses.stream(input=asked, **more) as events:
            first = await events.get_final_response()
    else:
        first = await agent.responses.create(input=asked, **more)
    [call] = first.output
    assert call.type == type_
    asked += [echo(call, ids=stream), output_for(call)]
    second = await agent.responses.create(input=asked, **more)
    assert second.output_text == "Done"
    await assert_goes_on(proxy)
    names = [tool["function"]["name"] for tool in engine.requests[0]["tools"]]
    assert names == ["exec_command", "apply_patch", "multi_agent_v1__spawn_agent", "local_shell"]


@pytest.mark.parametrize(("type_", "said"), CALLS, ids=[type_ for type_, _ in CALLS])
async def test_a_run_by_the_id_of_the_previous_response(
    proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI, type_: str, said: Said
) -> None:
    engine.next = [Script([said]), Script([words("Done")])]
    tools: Any = CODEX
    first = await agent.responses.create(model="helpdesk", input="Mend it.", tools=tools)
    shown = await agent.responses.retrieve(first.id)
    assert shown.model_dump() == first.model_dump()
    [call] = shown.output
    assert call.type == type_
    back: Any = [output_for(call)]
    second = await agent.responses.create(model="helpdesk", input=back, tools=tools, previous_response_id=first.id)
    await assert_goes_on(proxy)
    listed = await agent.responses.input_items.list(second.id, order="asc")
    assert [item.type for item in listed.data] == ["message", type_, back[0]["type"]]


@pytest.mark.parametrize(("type_", "said"), CALLS, ids=[type_ for type_, _ in CALLS])
async def test_a_call_that_is_only_named(
    proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI, type_: str, said: Said
) -> None:
    engine.next = [Script([said]), Script([words("Done")])]
    tools: Any = CODEX
    first = await agent.responses.create(model="helpdesk", input="Mend it.", tools=tools)
    [call] = first.output
    assert call.id
    named: Any = [{"role": "user", "content": "Mend it."}, {"type": "item_reference", "id": call.id}, output_for(call)]
    await agent.responses.create(model="helpdesk", input=named, tools=tools)
    await assert_goes_on(proxy)


async def test_what_is_left_out_is_told(proxy: Proxy, agent: openai.AsyncOpenAI) -> None:
    tools: Any = CODEX
    history: Any = [{"type": "web_search_call", "id": "ws_1", "status": "completed"}, {"role": "user", "content": "x"}]
    answer = await agent.responses.with_raw_response.create(model="helpdesk", input=history, tools=tools)
    assert answer.headers["x-hone-left-out-tools"] == "web_search"
    assert [tool.type for tool in answer.parse().tools] == ["function", "custom", "namespace", "local_shell"]
    call = await proxy.call()
    assert call["response"]["left_out_tools"] == ["web_search"]
    assert call["response"]["left_out_items"] == ["web_search_call"]


async def test_tools_that_were_found_stay_with_the_conversation(
    proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI
) -> None:
    search: Any = {"type": "tool_search", "execution": "client", "description": "Finds tools."}
    mail: Any = {"type": "function", "name": "send", "parameters": {"type": "object"}, "defer_loading": True}
    found = {"type": "namespace", "name": "mail", "description": "Mail.", "tools": [mail]}
    engine.next = [
        Script([tool_call("tool_search", {"query": "mail"}, "chatcmpl-tool-search-0001")]),
        Script([tool_call("mail__send", {"to": "x"}, "chatcmpl-tool-mail-0001")]),
        Script([words("Sent")]),
    ]
    first = await agent.responses.create(model="helpdesk", input="Mail x.", tools=[search])
    [call] = first.output
    assert call.type == "tool_search_call"
    assert call.arguments == {"query": "mail"}
    back: Any = {"type": "tool_search_output", "execution": "client", "call_id": call.call_id, "tools": [found]}
    second = await agent.responses.create(model="helpdesk", input=[back], tools=[search], previous_response_id=first.id)
    [sent] = second.output
    assert sent.type == "function_call"
    assert (sent.namespace, sent.name) == ("mail", "send")
    assert (await agent.responses.retrieve(second.id)).model_dump() == second.model_dump()
    result: Any = {"type": "function_call_output", "call_id": sent.call_id, "output": "ok"}
    third = await agent.responses.create(
        model="helpdesk", input=[result], tools=[search], previous_response_id=second.id
    )
    assert third.output_text == "Sent"
    offered = [[tool["function"]["name"] for tool in request["tools"]] for request in engine.requests]
    assert offered == [["tool_search"], ["tool_search", "mail__send"], ["tool_search", "mail__send"]]


async def test_a_stream_of_codex(proxy: Proxy, engine: FakeEngine) -> None:
    engine.next = [Script([PATCH])]
    body = {"model": "helpdesk", "input": "Mend it.", "tools": CODEX, "stream": True, "store": False}
    answer = await proxy.http.post("/v1/responses", json=body | {"tool_choice": "auto", "parallel_tool_calls": False})
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]
    kinds = [event["type"].removeprefix("response.") for event in events]
    assert kinds == [
        "created",
        "in_progress",
        "output_item.added",
        "custom_tool_call_input.delta",
        "custom_tool_call_input.done",
        "output_item.done",
        "completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    [whole] = events[-1]["response"]["output"]
    assert whole == events[-2]["item"]

"""The real `openai` client against the proxy, on the Responses API: what agents are written with."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pytest
from pydantic import BaseModel

from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine, Script, tool_call, words
from tests.proxy.running import WITHOUT_PAGES, Proxy, serving

pytestmark = pytest.mark.slow

FIND: Any = {"type": "function", "name": "find_order", "parameters": {"type": "object"}, "strict": False}
CALL = tool_call("find_order", {"order_id": 4821}, "chatcmpl-tool-0123456789")


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


class Day(BaseModel):
    """What a structured answer is read as."""

    n: int


async def test_a_run_with_a_tool_by_items(proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI) -> None:
    engine.next = [Script([CALL]), Script([words("Done")])]
    asked: list[Any] = [{"role": "user", "content": "Where?"}]
    first = await agent.responses.create(model="helpdesk", instructions="Help.", input=asked, tools=[FIND])
    [call] = first.output
    assert call.type == "function_call"
    asked += [call, {"type": "function_call_output", "call_id": call.call_id, "output": "sent"}]
    second = await agent.responses.create(model="helpdesk", instructions="Help.", input=asked, tools=[FIND])
    assert second.output_text == "Done"
    one, two = await proxy.calls()
    assert (two["parent_call_id"], two["attribution"]["source"]) == (one["call_id"], "tool_call_id")
    assert two["dialect"] == "responses"
    assert [len(c["choices"][0]["logprobs"]) for c in (one, two)] == [len(CALL.ids()), 2]
    assert one["choices"][0]["trainable"] is True


async def test_a_run_by_the_id_of_the_previous_response(
    proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI
) -> None:
    engine.next = [Script([CALL]), Script([words("Done")]), Script([words("Bye")])]
    first = await agent.responses.create(model="helpdesk", instructions="Help.", input="Where?", tools=[FIND])
    [call] = first.output
    assert call.type == "function_call"
    result: Any = {"type": "function_call_output", "call_id": call.call_id, "output": "sent"}
    second = await agent.responses.create(
        model="helpdesk", instructions="Help.", input=[result], tools=[FIND], previous_response_id=first.id
    )
    third = await agent.responses.create(model="helpdesk", input="Thanks", previous_response_id=second.id)
    assert third.previous_response_id == second.id
    one, two, three = await proxy.calls()
    assert [c["attribution"]["source"] for c in (one, two, three)] == ["new", "response_id", "response_id"]
    assert {c["attribution"]["confidence"] for c in (two, three)} == {"exact"}
    assert [c["parent_call_id"] for c in (one, two, three)] == [None, one["call_id"], two["call_id"]]
    assert len({c["trajectory_id"] for c in (one, two, three)}) == 1
    assert [m["role"] for m in engine.requests[1]["messages"]] == ["system", "user", "assistant", "tool"]
    # instructions are those of one request alone
    assert [m["role"] for m in engine.requests[2]["messages"]] == ["user", "assistant", "tool", "assistant", "user"]
    assert engine.requests[2]["messages"][1]["tool_calls"][0]["id"] == call.call_id


async def test_items_that_are_only_named(proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI) -> None:
    engine.next = [Script([CALL]), Script([words("Done")])]
    first = await agent.responses.create(model="helpdesk", input="Where?", tools=[FIND])
    [call] = first.output
    assert call.type == "function_call"
    asked: Any = [
        {"role": "user", "content": "Where?"},
        {"type": "item_reference", "id": call.id},
        {"type": "function_call_output", "call_id": call.call_id, "output": "sent"},
    ]
    await agent.responses.create(model="helpdesk", input=asked, tools=[FIND])
    assert engine.requests[1]["messages"][1]["tool_calls"][0]["id"] == call.call_id
    asked[1] = {"type": "item_reference", "id": f"{call.id}9"}
    with pytest.raises(openai.NotFoundError, match="Item with id"):
        await agent.responses.create(model="helpdesk", input=asked, tools=[FIND])


async def test_a_stream_as_the_client_accumulates_it(
    proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI
) -> None:
    engine.next = [Script([words("It arrives on Monday")]), Script([CALL])]
    async with agent.responses.stream(model="helpdesk", input="Where?") as stream:
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == "It arrives on Monday"
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    shown = await agent.responses.retrieve(final.id)
    assert (shown.output_text, shown.usage) == (final.output_text, final.usage)
    async with agent.responses.stream(model="helpdesk", input="Where?", tools=[FIND]) as stream:
        called = await stream.get_final_response()
    assert called.output[0].type == "function_call"
    assert called.output[0].arguments == '{"order_id": 4821}'
    assert called.usage is not None
    assert called.usage.output_tokens == len(CALL.ids())


async def test_an_answer_that_is_parsed(proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI) -> None:
    engine.default = Script([words('{"n": 4}')])
    parsed = await agent.responses.parse(model="helpdesk", input="Which day?", text_format=Day)
    assert parsed.output_parsed == Day(n=4)
    async with agent.responses.stream(model="helpdesk", input="Which day?", text_format=Day) as stream:
        assert (await stream.get_final_response()).output_parsed == Day(n=4)
    form = engine.requests[0]["response_format"]
    assert (form["type"], form["json_schema"]["name"]) == ("json_schema", "Day")
    call = (await proxy.calls())[0]
    assert call["choices"][0]["trainable"] is False


async def test_a_stream_that_is_cut_short_or_breaks(
    proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI
) -> None:
    engine.next = [
        Script([words("It arrives", finish="length")]),
        Script([words("a b c d")], after_events=3, then="die"),
        Script([words("a b c d")], after_events=3, then="error"),
    ]
    short, died, told = [
        [event async for event in await agent.responses.create(model="helpdesk", input="Where?", stream=True)]
        for _ in range(3)
    ]
    assert short[-1].type == "response.incomplete"
    assert short[-1].response.incomplete_details is not None
    assert short[-1].response.incomplete_details.reason == "max_output_tokens"
    for events, why in ((died, "broke off"), (told, "is lost")):
        assert events[-1].type == "response.failed"
        assert events[-1].response.error is not None
        assert why in events[-1].response.error.message
        assert "base-model" not in events[-1].response.error.message
        failed = await agent.responses.retrieve(events[-1].response.id)
        assert (failed.status, failed.output) == ("failed", events[-1].response.output)
        with pytest.raises(openai.BadRequestError, match="no answer to continue"):
            await agent.responses.create(model="helpdesk", input="?", previous_response_id=failed.id)


async def test_what_is_not_kept_or_was_deleted_is_not_found(
    proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI
) -> None:
    kept = await agent.responses.create(model="helpdesk", input="Where?", metadata={"a": "b"})
    shown = await agent.responses.retrieve(kept.id)
    assert shown == kept
    await agent.responses.delete(kept.id)
    unkept = await agent.responses.create(model="helpdesk", input="Where?", store=False)
    for id_ in (kept.id, unkept.id, "resp_unknown"):
        with pytest.raises(openai.NotFoundError, match="not found"):
            await agent.responses.retrieve(id_)
        with pytest.raises(openai.NotFoundError, match="not found"):
            await agent.responses.delete(id_)
        with pytest.raises(openai.NotFoundError) as missing:
            await agent.responses.create(model="helpdesk", input="And?", previous_response_id=id_)
        assert missing.value.param == "previous_response_id"
    assert len(await proxy.calls()) == 2


async def test_the_items_that_the_model_read(proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI) -> None:
    first = await agent.responses.create(model="helpdesk", instructions="Help.", input="Where?")
    second = await agent.responses.create(model="helpdesk", input="And now?", previous_response_id=first.id)
    page = await agent.responses.input_items.list(second.id, order="asc")
    assert [(item.type, getattr(item, "role", None)) for item in page.data] == [
        ("message", "user"),
        ("message", "assistant"),
        ("message", "user"),
    ]
    newest = await agent.responses.input_items.list(second.id, limit=1)
    assert [item.id for item in newest.data] == [page.data[-1].id]
    assert [item.id async for item in newest] == [item.id for item in page.data[::-1]]


async def test_a_background_response_is_asked_for_until_it_is_there(
    proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI
) -> None:
    gate = asyncio.Event()
    engine.next = [Script([words("Done")], gate=gate)]
    queued = await agent.responses.create(model="helpdesk", input="Where?", background=True)
    assert (queued.status, queued.output, queued.background) == ("queued", [], True)
    assert (await agent.responses.retrieve(queued.id)).status == "in_progress"
    gate.set()
    while (done := await agent.responses.retrieve(queued.id)).status == "in_progress":
        await asyncio.sleep(0.01)
    assert (done.status, done.output_text, done.created_at) == ("completed", "Done", queued.created_at)
    call = await proxy.call()
    assert (call["status"], call["choices"][0]["trainable"]) == ("complete", True)
    assert await agent.responses.cancel(queued.id) == done
    plain = await agent.responses.create(model="helpdesk", input="Where?")
    with pytest.raises(openai.BadRequestError, match="synchronous"):
        await agent.responses.cancel(plain.id)


async def test_a_background_response_is_cancelled_with_the_engines_work(
    proxy: Proxy, engine: FakeEngine, agent: openai.AsyncOpenAI
) -> None:
    engine.next = [Script(gate=asyncio.Event())]
    queued = await agent.responses.create(model="helpdesk", input="Where?", background=True)
    await engine.until(lambda e: len(e.requests) == 1)
    cancelled = await agent.responses.cancel(queued.id)
    assert cancelled.status == "cancelled"
    await engine.until(lambda e: e.aborted == [0])
    assert (await agent.responses.retrieve(queued.id)).status == "cancelled"
    assert (await proxy.call())["status"] == "aborted"


async def test_its_own_retry_is_the_same_turn(proxy: Proxy, engine: FakeEngine) -> None:
    engine.next = [Script(status=500, error={"error": {"message": "boom"}})]
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/v1", api_key="none", max_retries=1) as agent:
        answer = await agent.responses.create(model="helpdesk", input="Where?")
    assert answer.status == "completed"
    failed, retried = await proxy.calls()
    assert (failed["status"], retried["status"]) == ("superseded", "complete")
    assert failed["trajectory_id"] == retried["trajectory_id"]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"conversation": "conv_1"}, "conversation"),
    ({"prompt": {"id": "p"}}, "prompt"),
    ({"tools": [{"type": "web_search"}]}, "web_search"),
    ({"tools": [{"type": "mcp", "server_label": "x", "server_url": "http://x"}]}, "mcp"),
    ({"truncation": "auto"}, "truncation"),
    ({"background": True, "stream": True}, "background"),
    ({"background": True, "store": False}, "background"),
    ({"extra_body": {"cache_salt": "x"}}, "cache_salt"),
    (
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://10.0.0.1/x"}]}]},
        "allowed_media_hosts",
    ),
    ({"input": [{"type": "web_search_call", "id": "x"}]}, "web_search_call"),
    ({"include": ["x"]}, "include"),
    ({"max_output_tokens": 0}, "max_output_tokens"),
    ({"tool_choice": "required"}, "tool_choice|Tool choice"),
]


async def test_what_is_not_served_is_refused_by_name(agent: openai.AsyncOpenAI, engine: FakeEngine) -> None:
    for more, named in REFUSED:
        with pytest.raises(openai.BadRequestError, match=named):
            await agent.responses.create(**({"model": "helpdesk", "input": "Where?"} | more))
    assert engine.requests == []

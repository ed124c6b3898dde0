"""The real `openai` client against the proxy: what agents are written with."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from tests.proxy.fake_engine import FakeEngine, Script, tool_call, words
from tests.proxy.running import Proxy

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Where is order 4821?"}]
FIND: ChatCompletionToolParam = {"type": "function", "function": {"name": "find_order", "parameters": {}}}


def client(proxy: Proxy, path: str = "", **more: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=f"{proxy.url}{path}/v1", api_key="none", **more)


async def test_an_agent_with_a_tool_runs_through_the_proxy(proxy: Proxy, engine: FakeEngine) -> None:
    engine.next = [
        Script([tool_call("find_order", {"order_id": 4821}, "chatcmpl-tool-0123456789")]),
        Script([words("Done")]),
    ]
    async with client(proxy, "/g/orders/t/one") as agent:
        first = await agent.chat.completions.create(model="helpdesk", messages=ASK, tools=[FIND])
        [call] = first.choices[0].message.tool_calls or []
        history: list[Any] = [
            *ASK,
            first.choices[0].message,  # as the client echoes it: with every field it knows
            {"role": "tool", "tool_call_id": call.id, "content": "shipped"},
        ]
        second = await agent.chat.completions.create(model="helpdesk", messages=history, tools=[FIND])
        assert second.choices[0].message.content == "Done"
        assert [model.id async for model in agent.models.list()] == ["helpdesk", "helpdesk@0"]
    one, two = await proxy.calls()
    assert two["parent_call_id"] == one["call_id"]
    assert [len(call["choices"][0]["logprobs"]) for call in (one, two)] == [
        len(call["choices"][0]["token_ids"]) for call in (one, two)
    ]


async def test_a_stream_is_read_to_its_end(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([words("It arrives on Monday")])
    async with client(proxy) as agent:
        stream = await agent.chat.completions.create(
            model="helpdesk", messages=ASK, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "It arrives on Monday"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


async def test_errors_are_the_exceptions_that_agents_catch(proxy: Proxy, engine: FakeEngine) -> None:
    async with client(proxy, max_retries=0) as agent:
        with pytest.raises(openai.NotFoundError, match="is unknown"):
            await agent.chat.completions.create(model="nobody", messages=ASK)
        with pytest.raises(openai.BadRequestError, match="cache_salt"):
            await agent.chat.completions.create(model="helpdesk", messages=ASK, extra_body={"cache_salt": "x"})
        engine.next = [Script([words("a b c d")], after_events=2, then="die")]
        with pytest.raises(openai.APIError, match="broke off in the middle"):
            async for _ in await agent.chat.completions.create(model="helpdesk", messages=ASK, stream=True):
                pass
        await engine.stop()
        with pytest.raises(openai.InternalServerError) as down:
            await agent.chat.completions.create(model="helpdesk", messages=ASK)
        assert down.value.response.headers["retry-after"] == "1"


async def test_its_own_retry_is_the_same_turn(proxy: Proxy, engine: FakeEngine) -> None:
    engine.next = [Script(status=500, error={"error": {"message": "boom"}})]
    async with client(proxy, max_retries=1) as agent:
        answer = await agent.chat.completions.create(model="helpdesk", messages=ASK)
    assert answer.choices[0].finish_reason == "stop"
    failed, retried = await proxy.calls()
    assert (failed["status"], retried["status"]) == ("superseded", "complete")
    assert failed["trajectory_id"] == retried["trajectory_id"]
    assert retried["attribution"]["source"] == "retry"

"""Completions through the whole proxy: runs by token ids, and lists of prompts as a call for each."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.proxy.fake_engine import FakeEngine, Script, ids_of, words
from tests.proxy.running import Proxy

pytestmark = pytest.mark.slow


@pytest.fixture
async def engine() -> Any:
    async with FakeEngine() as running:
        running.default = said_of
        yield running


def said_of(body: dict[str, Any]) -> Script:
    """Each prompt has an answer of its own, and each of its choices."""
    return Script([words(f"{body['prompt']} answered {at}") for at in range(body["n"])])


def body(prompt: Any, **more: Any) -> dict[str, Any]:
    return {"model": "helpdesk", "prompt": prompt, "n": 1} | more


async def events(proxy: Proxy, **more: Any) -> list[dict[str, Any]]:
    answer = await proxy.http.post("/v1/completions", json=body(**more, stream=True))
    assert answer.status_code == 200, answer.text
    *sent, done, rest = answer.text.split("\n\n")
    assert (done, rest) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in sent]


async def test_an_agent_that_renders_its_own_prompts_is_one_run(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([words("It is sent")])
    prompt = ids_of("user where is it assistant")
    async with openai.AsyncOpenAI(base_url=f"{proxy.url}/t/mine/v1", api_key="none") as agent:
        first = await agent.completions.create(model="helpdesk", prompt=prompt)
        assert first.choices[0].text == "It is sent"
        further = [*prompt, *words("It is sent").ids(), *ids_of("user when assistant")]
        stream = await agent.completions.create(model="helpdesk", prompt=further, stream=True)
        assert "".join([chunk.choices[0].text async for chunk in stream]) == "It is sent"
    one, two = await proxy.calls()
    assert (one["parent_call_id"], two["parent_call_id"]) == (None, one["call_id"])
    assert (one["prompt_token_ids"], two["prompt_token_ids"]) == (prompt, further)
    assert [message["role"] for message in two["request"]["messages"]] == ["user", "assistant", "user"]
    assert [call["choices"][0]["trainable"] for call in (one, two)] == [True, True]
    assert [call["choices"][0]["token_ids"] for call in (one, two)] == [words("It is sent").ids()] * 2


async def test_each_prompt_is_a_call_and_the_answer_is_one(proxy: Proxy, engine: FakeEngine) -> None:
    answer = await proxy.http.post("/v1/completions", json=body(["a", "b", "c"], n=2))
    shown = answer.json()
    assert [(c["index"], c["text"]) for c in shown["choices"]] == [
        (0, "a answered 0"), (1, "a answered 1"), (2, "b answered 0"), (3, "b answered 1"), (4, "c answered 0"),
        (5, "c answered 1"),
    ]  # fmt: skip
    assert shown["usage"] == {"prompt_tokens": 3, "completion_tokens": 24, "total_tokens": 27}
    calls = await proxy.calls()
    assert {call["call_id"] for call in calls} == set(answer.headers["x-hone-call"].split(", "))
    assert len({call["trajectory_id"] for call in calls}) == 3
    assert sorted(call["request"]["messages"][0]["content"] for call in calls) == ["a", "b", "c"]
    assert all(call["choices"][0]["trainable"] for call in calls)


@pytest.mark.parametrize("usage", [False, True])
async def test_their_stream_is_one_stream(proxy: Proxy, usage: bool) -> None:
    options = {"stream_options": {"include_usage": True}} if usage else {}
    sent = await events(proxy, prompt=[[1], [2]], n=2, **options)
    texts = dict.fromkeys(range(4), "")
    for event in sent:
        for choice in event["choices"]:
            texts[choice["index"]] += choice["text"]
    assert texts == {0: "[1] answered 0", 1: "[1] answered 1", 2: "[2] answered 0", 3: "[2] answered 1"}
    counted = [event["usage"] for event in sent if event.get("usage")]
    assert counted == ([{"prompt_tokens": 2, "completion_tokens": 16, "total_tokens": 18}] if usage else [])
    assert len(await proxy.calls()) == 2


@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_engine_refuses_for_one_is_refused_for_all(
    proxy: Proxy, engine: FakeEngine, stream: bool
) -> None:
    def refusing(asked: dict[str, Any]) -> Script:
        fault = {"error": {"message": "too long", "type": "BadRequestError", "param": "prompt", "code": 400}}
        return Script(status=400, error=fault) if asked["prompt"] == "b" else said_of(asked)

    engine.default = refusing
    answer = await proxy.http.post("/v1/completions", json=body(["a", "b"], stream=stream))
    assert (answer.status_code, answer.json()["error"]["message"]) == (400, "too long")


async def test_an_engine_that_breaks_off_is_told_in_the_stream(proxy: Proxy, engine: FakeEngine) -> None:
    def breaking(asked: dict[str, Any]) -> Script:
        return Script([words("x y z")], after_events=1, then="error") if asked["prompt"] == "b" else said_of(asked)

    engine.default = breaking
    sent = await events(proxy, prompt=["a", "b"])
    assert [event["error"]["code"] for event in sent if "error" in event] == ["engine_error"]
    assert sorted(call["status"] for call in await proxy.calls()) == ["complete", "errored"]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"prompt": ["a", [1]]}, "prompt"),
        ({"prompt": ["a", ""]}, "prompt"),
        ({"prompt": ["a", "b"], "n": "x"}, "n"),
        ({"prompt": ["a"] * 1025}, "prompt"),
        ({"prompt": ["a", "b"], "echo": True}, "echo"),
        ({"prompt": None}, "prompt"),
    ],
)
async def test_what_cannot_be_is_refused(proxy: Proxy, engine: FakeEngine, more: dict[str, Any], param: str) -> None:
    answer = await proxy.http.post("/v1/completions", json=body(None) | more)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, param)


async def test_a_small_request_does_not_become_large_ones(proxy: Proxy, engine: FakeEngine) -> None:
    large = {"prompt": ["a"] * 1024, "user": "x" * 40_000}
    answer = await proxy.http.post("/v1/completions", json=body(None) | large)
    assert answer.status_code == 413
    assert "each of the 1024 prompts becomes a call with all of them" in answer.json()["error"]["message"]
    assert (engine.requests, await proxy.calls()) == ([], [])


async def test_a_client_that_hangs_up_takes_all_its_calls_with_it(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([words("a b c")], after_events=1, then="hang")
    async with proxy.http.stream("POST", "/v1/completions", json=body(["a", "b"], stream=True)) as answer:
        await anext(answer.aiter_bytes())
    await engine.until(lambda engine: len(engine.aborted) == 2)

"""What the proxy records is what the engine served and sampled, token for token; what a client gets is the engine's."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.conftest import Stack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": name.replace("_", " "),
            "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
        },
    }
    for name, argument in (("find_order", "order_id"), ("track_parcel", "tracking"))
]
QUESTION = [
    {"role": "system", "content": "You tell customers when their order arrives."},
    {"role": "user", "content": "Where is my order 4821?"},
]


def body(seed: int, **more: Any) -> dict[str, Any]:
    return {
        "model": "helpdesk",
        "messages": QUESTION,
        "tools": TOOLS,
        "temperature": 1.0,
        "max_tokens": 48,
        "seed": seed,
    } | more


def from_engine(stack: Stack, request: dict[str, Any]) -> dict[str, Any]:
    exact = request | {"model": "tiny-qwen3", "return_token_ids": True, "logprobs": True, "top_logprobs": 0}
    with stack.engine() as engine:
        return dict(engine.post("/v1/chat/completions", json=exact).raise_for_status().json())


def choice_of(answer: dict[str, Any]) -> dict[str, Any]:
    return dict(answer["choices"][0])


def without_ids(message: dict[str, Any]) -> dict[str, Any]:
    """A message without the ids of its tool calls, which the engine draws at random."""
    calls = [{**call, "id": "", "index": 0} for call in message.get("tool_calls") or ()]
    return {**{k: v for k, v in message.items() if v not in (None, [], "")}, "tool_calls": calls}


@pytest.mark.parametrize("seed", [1, 2, 3, 4])
def test_an_answer_through_the_proxy_is_the_engines_and_its_tokens_are_recorded(stack: Stack, seed: int) -> None:
    engine = from_engine(stack, body(seed))
    with stack.proxy() as proxy:
        answer = proxy.post(f"/t/plain-{seed}/v1/chat/completions", json=body(seed)).raise_for_status().json()

    assert without_ids(choice_of(answer)["message"]) == without_ids(choice_of(engine)["message"])
    assert answer["usage"] == engine["usage"]
    assert answer["model"] == "helpdesk"
    assert "prompt_token_ids" not in answer
    assert choice_of(answer).get("token_ids") is None
    assert choice_of(answer).get("logprobs") is None
    [call] = stack.calls_of(f"plain-{seed}")
    assert call["prompt_token_ids"] == engine["prompt_token_ids"]
    assert call["choices"][0]["token_ids"] == choice_of(engine)["token_ids"]
    logprobs = [entry["logprob"] for entry in choice_of(engine)["logprobs"]["content"]]
    assert call["choices"][0]["logprobs"] == pytest.approx(logprobs, abs=1e-5)
    assert call["choices"][0]["trainable"] is (choice_of(engine)["finish_reason"] != "length")


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_a_stream_says_and_records_the_same_as_a_plain_answer(stack: Stack, seed: int) -> None:
    engine = from_engine(stack, body(seed))
    text, arguments, finish, events = "", "", None, 0
    with (
        stack.proxy() as proxy,
        proxy.stream("POST", f"/t/stream-{seed}/v1/chat/completions", json=body(seed, stream=True)) as answer,
    ):
        answer.raise_for_status()
        for line in answer.iter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line.removeprefix("data: "))
            events += 1
            assert "prompt_token_ids" not in event
            assert event.get("usage") is None
            assert event["model"] == "helpdesk"
            for choice in event["choices"]:
                assert choice.get("token_ids") is None
                assert choice.get("logprobs") is None
                text += choice["delta"].get("content") or ""
                for call in choice["delta"].get("tool_calls") or ():
                    arguments += call["function"].get("arguments") or ""
                finish = choice["finish_reason"] or finish

    message = choice_of(engine)["message"]
    assert events > 1
    assert text == (message["content"] or "")
    assert arguments == "".join(c["function"]["arguments"] for c in message.get("tool_calls") or ())
    assert finish == choice_of(engine)["finish_reason"]
    [call] = stack.calls_of(f"stream-{seed}")
    assert call["prompt_token_ids"] == engine["prompt_token_ids"]
    assert call["choices"][0]["token_ids"] == choice_of(engine)["token_ids"]


def test_the_same_conversation_twice_is_recorded_twice(stack: Stack) -> None:
    with stack.proxy() as proxy:
        ids = []
        for _ in range(2):
            # a group takes so many: one of its own
            asked = body(21, messages=[{"role": "user", "content": "Where is order 21, please?"}])
            answer = proxy.post("/v1/chat/completions", json=asked).raise_for_status()
            ids.append(answer.headers["x-hone-trajectory"])
    assert ids[0] != ids[1]
    calls = {c["trajectory_id"]: c for c in stack.export() if c["trajectory_id"] in ids}
    assert calls.keys() == set(ids)
    first, second = (calls[i] for i in ids)
    assert first["choices"][0]["token_ids"] == second["choices"][0]["token_ids"]
    assert first["group_id"] == second["group_id"]


def test_what_the_client_asks_for_it_gets(stack: Stack) -> None:
    request = body(31, logprobs=True, top_logprobs=2, return_token_ids=True)
    with stack.engine() as engine, stack.proxy() as proxy:
        theirs = engine.post("/v1/chat/completions", json=request | {"model": "tiny-qwen3"}).raise_for_status().json()
        ours = proxy.post("/v1/chat/completions", json=request).raise_for_status().json()
    assert ours["prompt_token_ids"] == theirs["prompt_token_ids"]
    assert choice_of(ours)["token_ids"] == choice_of(theirs)["token_ids"]
    assert len(choice_of(ours)["logprobs"]["content"][0]["top_logprobs"]) == 2


def test_every_choice_of_n_is_recorded(stack: Stack) -> None:
    with stack.proxy() as proxy:
        answer = proxy.post("/t/three/v1/chat/completions", json=body(41, n=3)).raise_for_status().json()
    [call] = stack.calls_of("three")
    assert len(answer["choices"]) == len(call["choices"]) == 3
    assert all(len(c["token_ids"]) == len(c["logprobs"]) > 0 for c in call["choices"])


def test_structured_output_is_recorded_and_not_trained(stack: Stack) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "day", "schema": {"type": "integer"}}}
    with stack.proxy() as proxy:
        request = {k: v for k, v in body(51, response_format=form).items() if k != "tools"}
        proxy.post("/t/structured/v1/chat/completions", json=request).raise_for_status()
    [call] = stack.calls_of("structured")
    assert call["choices"][0]["token_ids"]
    assert call["choices"][0]["trainable"] is False

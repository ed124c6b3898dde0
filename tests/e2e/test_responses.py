"""An answer of /v1/responses through Hone is the engine's own, and its tokens are recorded, although the engine is
asked for a chat completion: its own /v1/responses says no ids and no logprobs of tool calls.
"""

from __future__ import annotations

import json
from typing import Any, Literal

import httpx
import openai
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import RootModel, TypeAdapter

from tests.e2e.conftest import Stack, at_once

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

Body = dict[str, Any]

TOOLS: list[Any] = [
    {
        "type": "function",
        "name": name,
        "description": name.replace("_", " "),
        "parameters": {"type": "object", "properties": {argument: {"type": "string"}}, "required": [argument]},
    }
    for name, argument in (("find_order", "order_id"), ("track_parcel", "tracking"))
]
ASKED = {"role": "user", "content": "Where is my order 4821?"}
CALLED = [
    {"type": "function_call", "call_id": "call_1", "name": "find_order", "arguments": '{"order_id": "4821"}'},
    {"type": "function_call_output", "call_id": "call_1", "output": '{"tracking": "P69596"}'},
]
DAY = {"type": "json_schema", "name": "day", "schema": {"type": "object", "properties": {"n": {"type": "integer"}}}}
END_TOKEN = "<|im_end|>"
LOGPROBS = ["message.output_text.logprobs"]

CORPUS: dict[str, Body] = {
    "a text": {"input": "Where is my order 4821?"},
    "instructions and tools": {"tools": TOOLS, "input": "Where is my order 4821?"},
    "sampled with a seed": {"tools": TOOLS, "input": [ASKED], "temperature": 1.0, "seed": 5},
    "a long temperature": {"tools": TOOLS, "input": [ASKED], "temperature": 0.7, "seed": 7, "top_p": 0.9},
    "a tool's result": {"tools": TOOLS, "input": [ASKED, *CALLED]},
    "a result in parts": {
        "tools": TOOLS,
        "input": [ASKED, CALLED[0], {**CALLED[1], "output": [{"type": "input_text", "text": "P69596"}]}],
    },
    "two turns": {
        "tools": TOOLS,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Good day."}]},
            ASKED,
        ],
    },
    "reasoning in the history": {
        "input": [
            ASKED,
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "An order."}]},
            {"role": "assistant", "content": "It arrives on Monday."},
            {"role": "user", "content": "Thanks. And 4822?"},
        ]
    },
    "a developer and a system": {
        "input": [{"role": "developer", "content": "Be brief."}, {"role": "system", "content": "Be kind."}, ASKED]
    },
    "parts of a text": {
        "input": [{"role": "user", "content": [{"type": "input_text", "text": t} for t in ("Where is", "order 1?")]}]
    },
    "cut short": {"input": "Where is my order 4821?", "max_output_tokens": 4},
    "a call that is cut short": {"tools": TOOLS, "input": [ASKED], "max_output_tokens": 16},
    "a stop string": {"input": [ASKED, *CALLED], "tools": TOOLS, "stop": ["on"]},
    "no tool may be called": {"tools": TOOLS, "input": [ASKED], "tool_choice": "none", "max_output_tokens": 30},
    "one tool must be called": {
        "tools": TOOLS,
        "input": [ASKED],
        "tool_choice": {"type": "function", "name": "track_parcel"},
    },
    "some tool must be called": {"tools": TOOLS, "input": [ASKED], "tool_choice": "required", "max_output_tokens": 60},
    "one at a time": {"tools": TOOLS, "input": [ASKED], "parallel_tool_calls": False},
    "a schema": {"input": "A day", "text": {"format": DAY}, "max_output_tokens": 40},
    "any object": {"input": "A day", "text": {"format": {"type": "json_object"}}, "max_output_tokens": 20},
    "plain text by name": {"input": "Hi", "text": {"format": {"type": "text"}, "verbosity": "low"}},
    "logprobs": {"input": [ASKED, *CALLED], "tools": TOOLS, "include": LOGPROBS, "top_logprobs": 2},
    "logprobs of a call": {"input": [ASKED], "tools": TOOLS, "include": LOGPROBS},
    "reasoning is hidden": {"input": "Hi", "include_reasoning": False, "include": LOGPROBS, "max_output_tokens": 5},
    "an effort": {"input": "Hi", "reasoning": {"effort": "low", "summary": "auto"}, "max_output_tokens": 5},
    "what is only repeated": {
        "input": "Hi",
        "metadata": {"a": "b"},
        "user": "u",
        "max_tool_calls": 3,
        "service_tier": "flex",
        "store": False,
        "max_output_tokens": 5,
    },
    "penalties": {"input": "Hi", "presence_penalty": 0.5, "frequency_penalty": 0.25, "max_output_tokens": 9},
    "a strict tool": {"tools": [{**TOOLS[0], "strict": True}], "input": [ASKED]},
    "the engine's own fields": {
        "input": "Where is my order 4821?",
        "temperature": 1.0,
        "seed": 11,
        "top_k": 5,
        "min_p": 0.01,
        "repetition_penalty": 1.1,
        "skip_special_tokens": False,
        "include_stop_str_in_output": True,
        "stop": ["."],
        "ignore_eos": True,
        "max_output_tokens": 30,
        "chat_template_kwargs": {"enable_thinking": False},
    },
    "a regular expression": {"input": "A number", "structured_outputs": {"regex": "[0-9]{3}"}},
    "two calls and two results": {
        "tools": TOOLS,
        "input": [
            ASKED,
            CALLED[0],
            {**CALLED[0], "call_id": "call_2", "name": "track_parcel", "arguments": '{"tracking": "P1"}'},
            CALLED[1],
            {**CALLED[1], "call_id": "call_2"},
        ],
    },
    "emoji": {"input": "Größe 🚚?", "max_output_tokens": 12, "temperature": 1.0, "seed": 2},
    "an unfinished message": {
        "input": [
            ASKED,
            {
                "type": "message",
                "role": "assistant",
                "status": "incomplete",
                "content": [{"type": "output_text", "text": "Your order"}],
            },
        ],
        "max_output_tokens": 9,
    },
}


def request(name: str, **more: Any) -> Body:
    fields = {"model": "helpdesk", "instructions": "You tell customers when their order arrives.", "temperature": 0}
    return fields | CORPUS[name] | more


class Near(float):
    """A logprob: equal as far as float32 sums in batches of another size are."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) < 1e-3

    __hash__ = float.__hash__


def alike(value: Any) -> Any:
    """A response, or an event, without ids, times and the model's name."""
    if isinstance(value, list):
        return [alike(one) for one in value]
    if isinstance(value, dict):
        kept = {k: alike(v) for k, v in value.items() if k not in ("id", "call_id", "item_id", "created_at", "model")}
        # The engine's usage has empty lists of counts by turn, which official clients for Node refuse: Hone has none.
        kept = {k: v for k, v in kept.items() if not (k.endswith("_per_turn") and v == [])}
        if "logprob" in kept:
            kept["logprob"] = Near(kept["logprob"])
        return kept
    return value


def events_of(text: str) -> list[Body]:
    blocks = [block.split("\n", 1) for block in text.split("\n\n") if block and not block.startswith(":")]
    events = [json.loads(data.removeprefix("data: ")) for _, data in blocks]
    assert [name for name, _ in blocks] == [f"event: {event['type']}" for event in events]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    return events


def merged(events: list[Body]) -> list[Body]:
    """Events with the deltas of one item put together: how they are cut is the engine's mood.

    So is whether the logprobs of a text end with those of the end token: they do where it came with the last word.
    """
    whole: list[Body] = []
    for event in map(alike, events):
        del event["sequence_number"]
        last = whole[-1] if whole else {}
        if "delta" in event and last.get("type") == event["type"]:
            last["delta"] += event["delta"]
            if "logprobs" in event:
                last["logprobs"] += event["logprobs"]
        else:
            whole.append(event)
    _drop_end_tokens(whole)
    return whole


def _drop_end_tokens(value: Any) -> None:
    for inner in value if isinstance(value, list) else value.values() if isinstance(value, dict) else ():
        _drop_end_tokens(inner)
    logprobs = value.get("logprobs") if isinstance(value, dict) else None
    if logprobs and logprobs[-1]["token"] == END_TOKEN:
        del logprobs[-1]


def as_the_engine_would(ours: list[Body]) -> list[Body]:
    """Hone ends an answer that was cut short as OpenAI does; the engine calls it completed."""
    if ours[-1]["type"] == "response.incomplete":
        assert ours[-1]["response"]["status"] == "incomplete"
        ours[-1] = {**ours[-1], "type": "response.completed"}
    return ours


@pytest.fixture(scope="module")
def equal(stack: Stack) -> set[str]:
    """The requests whose answers are the engine's own where all are asked at once."""
    with stack.engine() as engine, stack.proxy() as proxy:

        def look(name: str) -> bool:
            try:
                check(engine, proxy, name)
            except (AssertionError, ValueError, httpx.HTTPError):
                return False
            return True

        return {name for name, is_equal in zip(CORPUS, at_once(look, CORPUS), strict=True) if is_equal}


@pytest.mark.parametrize("name", CORPUS)
def test_an_answer_is_the_engines_own(stack: Stack, equal: set[str], name: str) -> None:
    """Alone, where anything differed at once: once in a million tokens another batch makes another sample."""
    if name not in equal:
        with stack.engine() as engine, stack.proxy() as proxy:
            check(engine, proxy, name)


def check(engine: httpx.Client, proxy: httpx.Client, name: str) -> None:
    check_plain(engine, proxy, name)
    check_stream(engine, proxy, name)


def check_plain(engine: httpx.Client, proxy: httpx.Client, name: str) -> None:
    theirs = engine.post("/v1/responses", json=request(name, model="tiny-qwen3")).raise_for_status().json()
    answer = proxy.post("/v1/responses", json=request(name))
    assert answer.is_success, answer.text
    ours = answer.json()
    assert alike(ours) == alike(theirs)
    assert ours["model"] == "helpdesk"
    Response.model_validate(ours, strict=True)
    if ours["output"] and CORPUS[name].get("store", True):
        assert proxy.get(f"/v1/responses/{ours['id']}").json() == ours


def check_stream(engine: httpx.Client, proxy: httpx.Client, name: str) -> None:
    asked = request(name, stream=True)
    theirs = events_of(engine.post("/v1/responses", json=asked | {"model": "tiny-qwen3"}).raise_for_status().text)
    ours = events_of(proxy.post("/v1/responses", json=asked).raise_for_status().text)
    assert merged(as_the_engine_would(ours)) == merged(theirs)
    adapter: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    for event in ours:
        adapter.validate_python(event)
    given = ours[-1]["response"]
    if CORPUS[name].get("store", True):
        assert proxy.get(f"/v1/responses/{given['id']}").json() == given


Tokens = tuple[list[int], list[int]]  # of a prompt, and what was sampled


def test_prompts_and_samples_are_the_engines_own(stack: Stack) -> None:
    """All at once, and where anything differs, once more alone."""
    calls, theirs = asked_both(stack, "corpus", list(CORPUS), most=16)
    if again := [name for name, call in calls.items() if tokens_of(call) != theirs[name]]:
        alone, theirs_alone = asked_both(stack, "alone", again, most=1)
        calls |= alone
        theirs |= theirs_alone
    assert {name: tokens_of(call) for name, call in calls.items()} == theirs
    for call in calls.values():
        assert len(call["choices"][0]["logprobs"]) == len(call["choices"][0]["token_ids"])
    assert calls["sampled with a seed"]["choices"][0]["trainable"] is True


def asked_both(stack: Stack, run: str, names: list[str], most: int) -> tuple[dict[str, Body], dict[str, Tokens]]:
    """What is recorded of the proxy's answers, and the engine's own tokens, by the name of the request."""
    with stack.engine() as engine, stack.proxy() as proxy:

        def ask(at: int) -> Tokens:
            asked = request(names[at], model="tiny-qwen3", enable_response_messages=True)
            shown = engine.post("/v1/responses", json=asked).raise_for_status().json()
            streamed = request(names[at], stream=at % 2 == 0)
            proxy.post(f"/t/{run}-{at}/v1/responses", json=streamed).raise_for_status()
            return shown["input_messages"][0]["tokens"], shown["output_messages"][0]["tokens"]

        theirs = dict(zip(names, at_once(ask, range(len(names)), most), strict=True))
    recorded = {call["trajectory_external_id"]: call for call in stack.export()}
    return {name: recorded[f"{run}-{at}"] for at, name in enumerate(names)}, theirs


def tokens_of(call: Body) -> Tokens:
    return call["prompt_token_ids"], call["choices"][0]["token_ids"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_conversation_by_ids_is_the_same_as_by_items(stack: Stack, stream: bool) -> None:
    more = {"seed": 3, "temperature": 1.0, "stream": stream}
    first = request("instructions and tools", **more)
    with stack.proxy() as proxy:

        def ask(body: Body, run: str) -> Body:
            answer = proxy.post(f"/t/{run}/v1/responses", json=body).raise_for_status()
            return dict(events_of(answer.text)[-1]["response"] if stream else answer.json())

        by_id, by_items = ask(first, f"by-id-{stream}"), ask(first, f"by-items-{stream}")
        [call] = by_id["output"]
        assert call["type"] == "function_call"
        results = [
            {"type": "function_call_output", "call_id": answer["output"][0]["call_id"], "output": '{"tracking": "P1"}'}
            for answer in (by_id, by_items)
        ]
        second = ask(first | {"input": [results[0]], "previous_response_id": by_id["id"]}, f"by-id-{stream}")
        same = ask(first | {"input": [ASKED, *by_items["output"], results[1]]}, f"by-items-{stream}")
        assert alike(second["output"]) == alike(same["output"])
        unaddressed = proxy.post(
            "/v1/responses", json=request("a text", input="Thanks", previous_response_id=second["id"])
        ).raise_for_status()
    one, two = [stack.calls_of(f"by-{how}-{stream}") for how in ("id", "items")]
    for calls in (one, two):
        earlier, later = calls[0], calls[1]
        prefix = [*earlier["prompt_token_ids"], *earlier["choices"][0]["token_ids"]]
        assert later["prompt_token_ids"][: len(prefix)] == prefix
        assert later["parent_call_id"] == earlier["call_id"]
        assert all(call["choices"][0]["trainable"] for call in (earlier, later))
    assert [c["prompt_token_ids"] for c in one[:2]] == [c["prompt_token_ids"] for c in two]
    assert unaddressed.headers["x-hone-trajectory"] == one[0]["trajectory_id"]
    assert one[2]["attribution"] == {"source": "response_id", "confidence": "exact"}


class Late(RootModel[Literal["yes", "no"]]):
    """What a structured answer is read as. The demo's model would fill an object with spaces to its end."""


def test_the_official_client_streams_parses_and_cancels(stack: Stack) -> None:
    client = openai.OpenAI(base_url=f"{stack.proxy_url}/v1", api_key="none", max_retries=0)
    asked: Any = {"model": "helpdesk", "input": [ASKED], "temperature": 0}
    with client.responses.stream(instructions=request("a text")["instructions"], tools=TOOLS, **asked) as stream:
        final = stream.get_final_response()
    assert final.usage is not None
    assert client.responses.retrieve(final.id).usage == final.usage
    parsed = client.responses.parse(model="helpdesk", input="Is it late?", text_format=Late, temperature=0)
    assert parsed.output_parsed in (Late("yes"), Late("no"))
    queued = client.responses.create(model="helpdesk", input="Hi", background=True, extra_body={"ignore_eos": True})
    assert queued.status == "queued"
    assert client.responses.cancel(queued.id).status in ("cancelled", "completed", "incomplete")

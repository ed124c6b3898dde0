"""Chat completions: what the engine is asked, what the client gets, what is recorded. No sockets here."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules, RecordableAnswer
from proxy.errors import BadRequest, EngineFailed
from proxy.http import sse
from tests.proxy.fake_engine import END, Said, Step, events_of, ids_of, plain_of, prompt_ids, tool_call, words

CHAT = DIALECTS["/v1/chat/completions"]
FIND = {"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}


def request(**more: Any) -> dict[str, Any]:
    return {"model": "helpdesk", "messages": [{"role": "user", "content": "Where is 4821?"}]} | more


def read(rules: DialectRules = DialectRules(), **more: Any) -> Any:  # noqa: B008 - frozen
    return CHAT.read(json.dumps(request(**more)).encode(), {}, rules)


def engine_body(**more: Any) -> dict[str, Any]:
    """What the engine is asked."""
    body: dict[str, Any] = json.loads(read(**more).engine_body("adapter-1"))
    return body


def streamed(*choices: Said, **more: Any) -> tuple[list[dict[str, Any]], list[dict[str, Any]], RecordableAnswer]:
    """Events before the end, events held back to the end, and what is recorded."""
    reading = read(stream=True, n=len(choices), **more)
    answer, parser = reading.answer(), sse.Parser()
    early = b""
    for event in events_of(json.loads(reading.engine_body("adapter-1")), list(choices)):
        for data in parser.feed(event):
            early += answer.event(data)
    assert answer.finished
    assert answer.over
    return _parsed(early), _parsed(answer.tail(), done=True), answer.sampled()


def plain(*choices: Said, **more: Any) -> tuple[dict[str, Any], RecordableAnswer]:
    """A whole answer, and what is recorded."""
    reading = read(n=len(choices), **more)
    answer = reading.answer()
    body = answer.body(plain_of(json.loads(reading.engine_body("adapter-1")), list(choices)))
    assert answer.finished
    return json.loads(body), answer.sampled()


def _parsed(events: bytes, *, done: bool = False) -> list[dict[str, Any]]:
    data = sse.Parser().feed(events)
    if done:
        assert data.pop() == b"[DONE]"
    return [json.loads(event) for event in data]


def keys_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            yield from keys_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from keys_in(inner)


# --- what the engine is asked


def test_the_engine_is_asked_for_ids_and_logprobs_and_told_neutral_values() -> None:
    assert engine_body() == request(
        model="adapter-1",
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        min_p=0.0,
        presence_penalty=0.0,
        frequency_penalty=0.0,
        repetition_penalty=1.0,
        return_token_ids=True,
        logprobs=True,
        top_logprobs=0,
        include_reasoning=True,
    )


def test_what_the_client_says_is_what_the_engine_is_told() -> None:
    said = {
        "temperature": 0.3,
        "top_p": 0.9,
        "top_k": 4,
        "stop": ["x"],
        "seed": 5,
        "tools": [FIND],
        "tool_choice": "auto",
    }
    body = engine_body(**said, user="u", metadata={"a": "b"}, unknown_field=[1], top_logprobs=3, logprobs=True)
    assert body.items() >= said.items()
    assert (body["user"], body["metadata"], body["unknown_field"], body["top_logprobs"]) == ("u", {"a": "b"}, [1], 3)


def test_reasoning_is_asked_for_even_where_the_client_wants_none() -> None:
    assert engine_body(include_reasoning=False)["include_reasoning"] is True


def test_usage_is_asked_for_in_streams_alone() -> None:
    assert engine_body(stream=True)["stream_options"] == {"include_usage": True}
    assert engine_body(stream=True, stream_options={"continuous_usage_stats": True})["stream_options"] == {
        "include_usage": True,
        "continuous_usage_stats": True,
    }
    assert "stream_options" not in engine_body()


def test_a_request_is_read_into_the_recorders_form() -> None:
    body = json.dumps(
        request(tools=[FIND], response_format={"type": "text"}, temperature=0.5, metadata={"k": 1})
    ).encode()
    reading = CHAT.read(body, {b"x-stainless-retry-count": b"2"}, DialectRules())
    read_ = reading.request
    assert (read_.dialect, read_.endpoint, read_.model, read_.stream) == (
        "chat",
        "/v1/chat/completions",
        "helpdesk",
        False,
    )
    assert (read_.messages, read_.tools) == (request()["messages"], [FIND])
    assert (read_.response_format, read_.rest) == (
        {"type": "text"},
        {"model": "helpdesk", "temperature": 0.5, "metadata": {"k": 1}},
    )
    assert (read_.retry_count, read_.sampling.temperature, len(read_.body_hash)) == (2, 0.5, 16)
    assert CHAT.read(body, {}, DialectRules()).request.body_hash == read_.body_hash


@pytest.mark.parametrize(
    ("more", "distorting"),
    [
        ({"tools": [FIND]}, ()),
        ({"tools": [FIND], "tool_choice": "auto"}, ()),
        ({"tools": [FIND], "tool_choice": "none"}, ()),
        ({"tools": [FIND], "tool_choice": "required"}, ("tool_choice",)),
        ({"tools": [FIND], "tool_choice": {"type": "function", "function": {"name": "f"}}}, ("tool_choice",)),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": True}}]}, ("strict_tools",)),
        ({"tools": [{"type": "function", "function": {"name": "f", "strict": True}}], "tool_choice": "none"}, ()),
        ({"response_format": {"type": "text"}}, ()),
        ({"response_format": {"type": "json_object"}}, ("response_format",)),
        ({"response_format": {"type": "json_schema", "json_schema": {}}}, ("response_format",)),
        ({"frequency_penalty": 1, "tool_choice": "required", "tools": [FIND]}, ("frequency_penalty", "tool_choice")),
    ],
)
def test_what_lets_a_grammar_pick_tokens_is_named(more: dict[str, Any], distorting: tuple[str, ...]) -> None:
    assert read(**more).request.sampling.distorting == distorting


def test_strict_tools_may_be_offered_plainly_so_that_the_turn_is_learned_from() -> None:
    rules = DialectRules(strict_tools="plain")
    strict = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}
    reading = read(rules, tools=[strict, FIND])
    sent = json.loads(reading.engine_body("adapter-1"))["tools"]
    assert sent == [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}, FIND]
    assert reading.request.sampling.distorting == ()
    assert list(reading.request.tools) == [strict, FIND]  # recorded as the client sent them
    assert read(rules, tools=[strict], tool_choice="required").request.sampling.distorting == ("tool_choice",)


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"model": None}, "model"),
        ({"model": 5}, "model"),
        ({"messages": None}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hello"}, "messages"),
        ({"messages": ["hello"]}, "messages[0]"),
        ({"messages": [{"content": "hello"}]}, "messages[0]"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "messages[0].tool_calls"),
        ({"messages": [{"role": "assistant", "tool_calls": [{"function": "x"}]}]}, "messages[0].tool_calls"),
        ({"tools": [5]}, "tools[0]"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"n": 1000}, "n"),
        ({"echo": True}, "echo"),
        ({"extra_body": {"kv_transfer_params": {"prompt_token_ids": [1]}}}, "extra_body.kv_transfer_params"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/"}}]}]},
            "messages[0].content[0].image_url",
        ),
    ],
)
def test_requests_that_make_no_sense_are_refused_by_name(more: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(**more)
    assert refused.value.param == param
    assert json.loads(CHAT.error_body(refused.value))["error"].keys() == {"message", "type", "param", "code"}


# --- what the client gets


def test_a_plain_answer_carries_what_was_asked_for_and_no_more() -> None:
    body, sampled = plain(words("On Monday"))
    assert body["model"] == "helpdesk"
    assert body["choices"][0]["message"]["content"] == "On Monday"
    assert (body["choices"][0]["logprobs"], body["choices"][0]["finish_reason"]) == (None, "stop")
    assert not {"token_ids", "prompt_token_ids"} & set(keys_in(body))
    assert body["usage"]["completion_tokens"] == 3
    [choice] = sampled.choices
    assert choice.token_ids == [*ids_of("On Monday"), END]
    assert choice.logprobs == [-0.01, -0.02, -0.03]
    assert sampled.prompt_token_ids == prompt_ids(request()["messages"])


def test_a_stream_carries_what_was_asked_for_and_no_more() -> None:
    early, late, sampled = streamed(words("On Monday"))
    assert [event["choices"][0]["delta"] for event in early] == [
        {"role": "assistant", "content": ""},
        {"content": "On"},
        {"content": " Monday"},
    ]
    assert all(event["model"] == "helpdesk" for event in early + late)
    assert not {"token_ids", "prompt_token_ids", "prompt_text", "usage"} & set(keys_in([early, late]))
    assert all(event["choices"][0]["logprobs"] is None for event in early + late)
    [last] = late
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["system_fingerprint"] == "vllm-0.32.0"  # as without Hone: on the last event
    [choice] = sampled.choices
    assert (choice.token_ids, choice.logprobs) == ([*ids_of("On Monday"), END], [-0.01, -0.02, -0.03])
    assert choice.message == {"role": "assistant", "content": "On Monday"}
    assert sampled.prompt_token_ids == prompt_ids(request()["messages"])
    assert sampled.usage == {
        "prompt_tokens": len(sampled.prompt_token_ids or ()),
        "total_tokens": len(sampled.prompt_token_ids or ()) + 3,
        "completion_tokens": 3,
    }


def test_events_left_empty_are_dropped_and_their_tokens_are_kept() -> None:
    early, late, sampled = streamed(tool_call("find_order", {"order_id": 4821}, "chatcmpl-tool-1"), tools=[FIND])
    deltas = [event["choices"][0]["delta"] for event in early + late]
    assert [sorted(delta) for delta in deltas] == [["content", "role"], ["tool_calls"], ["tool_calls"], []]
    [choice] = sampled.choices
    assert choice.token_ids == tool_call("find_order", {"order_id": 4821}, "chatcmpl-tool-1").ids()
    assert len(choice.logprobs or ()) == len(choice.token_ids)
    assert choice.message == {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "chatcmpl-tool-1",
                "type": "function",
                "function": {"name": "find_order", "arguments": '{"order_id": 4821}'},
            }
        ],
    }
    assert sampled.issued_ids == [("chatcmpl-tool-1", "tool_call", 0)]


def test_streamed_and_plain_answers_are_recorded_alike() -> None:
    for said in (words("On Monday, at noon"), tool_call("find_order", {"order_id": 1}, "chatcmpl-tool-1")):
        _, _, from_stream = streamed(said)
        _, from_body = plain(said)
        assert from_stream.prompt_token_ids == from_body.prompt_token_ids
        for ours, theirs in zip(from_stream.choices, from_body.choices, strict=True):
            assert (ours.token_ids, ours.logprobs, ours.finish_reason) == (
                theirs.token_ids,
                theirs.logprobs,
                theirs.finish_reason,
            )
            assert ours.message == theirs.message
        assert from_stream.issued_ids == from_body.issued_ids


def test_ids_and_logprobs_are_given_to_those_who_ask() -> None:
    early, late, _ = streamed(words("On Monday"), logprobs=True, top_logprobs=2, return_token_ids=True)
    ids = [token for event in early + late for token in event["choices"][0].get("token_ids") or ()]
    assert ids == [*ids_of("On Monday"), END]
    shown = [entry for event in early + late for entry in (event["choices"][0]["logprobs"] or {}).get("content", ())]
    assert [len(entry["top_logprobs"]) for entry in shown] == [2, 2, 2]
    assert early[0]["prompt_token_ids"] == prompt_ids(request()["messages"])
    body, _ = plain(words("On Monday"), logprobs=True, return_token_ids=True)
    assert [entry["logprob"] for entry in body["choices"][0]["logprobs"]["content"]] == [-0.01, -0.02, -0.03]
    assert body["choices"][0]["token_ids"] == ids


def test_usage_is_given_to_those_who_ask() -> None:
    _, late, sampled = streamed(words("On Monday"), stream_options={"include_usage": True})
    finish, usage = late
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert (usage["choices"], usage["usage"]) == ([], sampled.usage)


def test_hidden_reasoning_is_recorded_and_not_shown() -> None:
    thought = Said(
        [Step({"reasoning": "Let me"}, [3]), Step({"reasoning": " see"}, [4]), *words("Monday").steps],
        {"role": "assistant", "content": "Monday", "reasoning": "Let me see"},
    )
    early, late, sampled = streamed(thought, include_reasoning=False, logprobs=True)
    assert "reasoning" not in set(keys_in([early, late]))
    assert all(event["choices"][0]["logprobs"] is None for event in early + late)
    assert [event["choices"][0]["delta"].get("content") for event in early] == ["", "Monday"]
    assert sampled.choices[0].message == {"role": "assistant", "content": "Monday", "reasoning": "Let me see"}
    assert sampled.choices[0].token_ids == [3, 4, *ids_of("Monday"), END]
    shown, _, _ = streamed(thought)
    assert "".join(event["choices"][0]["delta"].get("reasoning", "") for event in shown) == "Let me see"
    body, _ = plain(thought, include_reasoning=False)
    assert body["choices"][0]["message"].get("reasoning") is None


def test_with_several_choices_only_the_last_finish_is_held_back() -> None:
    short, long = words("Yes"), words("No it is not there yet")
    early, late, sampled = streamed(short, long)
    finishes = [choice["finish_reason"] for event in early for choice in event["choices"]]
    assert finishes.count("stop") == 1
    assert [(c["index"], c["finish_reason"]) for event in late for c in event["choices"]] == [(1, "stop")]
    assert [choice.token_ids for choice in sampled.choices] == [short.ids(), long.ids()]
    assert [choice.message["content"] for choice in sampled.choices if choice.message] == [
        "Yes",
        "No it is not there yet",
    ]
    body, from_body = plain(short, long)
    assert len(body["choices"]) == 2
    assert [choice.token_ids for choice in from_body.choices] == [short.ids(), long.ids()]


# --- answers that are none


@given(st.integers(0, 12))
def test_an_answer_that_breaks_off_keeps_what_was_sampled(count: int) -> None:
    reading = read(stream=True)
    said = words("a b c d e f g h i j")
    answer = reading.answer()
    for event in list(events_of(json.loads(reading.engine_body("x")), [said]))[: count + 1]:
        answer.event(event.removeprefix(b"data: ").strip())
    sampled = answer.sampled()
    assert answer.finished == (count >= len(said.steps))
    assert answer.begun == (count > 0)
    ids = [choice.token_ids for choice in sampled.choices]
    assert ids == [said.ids()[:count] or None]
    assert sampled.usage is not None
    assert sampled.usage["completion_tokens"] == min(count, len(said.ids()))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"[]",
        b"{}",
        b'{"choices": []}',
        b'{"choices": [{"index": 0}]}',
        b'{"choices": [5]}',
        b'{"choices": [{"index": 0, "message": {"content": ["x"]}, "finish_reason": "stop"}]}',
        b'{"choices": [{"index": 0, "message": {"role": "assistant", "content": "x"}, "finish_reason": null}]}',
    ],
)
def test_a_body_that_is_no_answer_is_an_error(body: bytes) -> None:
    with pytest.raises(EngineFailed):
        read().answer().body(body)


@pytest.mark.parametrize("event", [b"", b"{", b"[]", b'{"choices": [{}]}', b'{"choices": [{"index": 0, "delta": 5}]}'])
def test_an_event_that_is_none_is_an_error(event: bytes) -> None:
    with pytest.raises(EngineFailed, match="not a chat completion"):
        read(stream=True).answer().event(event)


def test_an_error_inside_a_stream_is_noted() -> None:
    answer = read(stream=True).answer()
    assert answer.event(b'{"error": {"message": "out of memory", "type": "E", "code": 500}}') == b""
    assert (answer.error, answer.finished) == ("out of memory", False)


def test_a_missing_logprob_is_never_a_zero() -> None:
    reading = read()
    body = json.loads(plain_of(json.loads(reading.engine_body("x")), [words("On Monday")]))
    body["choices"][0]["logprobs"]["content"][1]["logprob"] = None
    answer = reading.answer()
    answer.body(json.dumps(body).encode())
    logprobs = answer.sampled().choices[0].logprobs
    assert logprobs is not None
    assert [math.isnan(p) for p in logprobs] == [False, True, False]


def test_counted_tool_call_ids_are_not_taken_for_ours() -> None:
    for call_id in ("functions.find_order:0", "0", "call_1"):
        _, _, sampled = streamed(tool_call("find_order", {}, call_id))
        assert sampled.issued_ids == []

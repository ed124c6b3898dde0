"""The Responses dialect by itself: its requests in chat's fields, its answers and their events from chat's."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from proxy.dialects.base import DialectRules
from proxy.dialects.responses import fields as responses_fields
from proxy.dialects.responses.dialect import EarlierAnswer, ResponsesAnswer, ResponsesDialect, ResponsesReader
from proxy.dialects.responses.fields import META, ResponseHead, response_object
from proxy.dialects.responses.items import output_items
from proxy.errors import BadGateway, BadRequest, EngineFailed, UnknownObject
from recorder.messages.calls import SampledChoice

DIALECT = ResponsesDialect()
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
FIND = {"type": "function", "name": "find_order", "parameters": {"type": "object"}, "strict": None}
ASK = {"model": "helpdesk", "input": "Where?"}
LOGPROBS: dict[str, Any] = {"include": ["message.output_text.logprobs"]}


def read(**fields: Any) -> ResponsesReader:
    return DIALECT.read(json.dumps(ASK | fields).encode(), {}, DialectRules())


def engine_body(**fields: Any) -> dict[str, Any]:
    return dict(json.loads(read(**fields).engine_body("base@1")))


def chunk(delta: dict[str, Any], ids: list[int], finish: str | None = None, **head: Any) -> bytes:
    logprobs = {"content": [{"token": f"t{i}", "logprob": -0.5, "bytes": [1], "top_logprobs": []} for i in ids]}
    choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish, "token_ids": ids}
    return json.dumps({"id": "c", "created": 1, "model": "base", "choices": [choice], **head}).encode()


BEGIN = json.dumps(
    {"id": "c", "created": 1, "prompt_token_ids": [1, 2], "choices": [{"index": 0, "delta": {"role": "assistant"}}]}
).encode()
USAGE = json.dumps({"choices": [], "usage": {"prompt_tokens": 2, "completion_tokens": 3, "total_tokens": 5}}).encode()


def parsed(data: bytes) -> list[dict[str, Any]]:
    events = []
    for block in data.decode().split("\n\n")[:-1]:
        name, body = block.split("\n", 1)
        event = json.loads(body.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENT.validate_python(event)
        events.append(event)
    return events


def played(
    deltas: list[dict[str, Any]], finish: str = "stop", **fields: Any
) -> tuple[ResponsesAnswer, list[Any], list[Any]]:
    """A streamed answer: what the client gets before its turn is committed, and after."""
    answer = read(stream=True, **fields).answer()
    before = [parsed(answer.event(BEGIN))]
    before += [parsed(answer.event(chunk(delta, [at]))) for at, delta in enumerate(deltas)]
    held = answer.event(chunk({}, [99], finish)) + answer.event(USAGE) + answer.event(b"[DONE]")
    assert held == b""
    return answer, [event for events in before for event in events], parsed(answer.tail())


def call_part(index: int, arguments: str, name: str | None = None) -> dict[str, Any]:
    head = {"id": f"chatcmpl-tool-{index}", "type": "function"} if name else {}
    function = {"arguments": arguments} | ({"name": name} if name else {})
    return {"tool_calls": [{"index": index, "function": function, **head}]}


# --- requests


def test_a_request_is_said_in_chats_fields() -> None:
    body = engine_body(
        instructions="Help.",
        tools=[FIND],
        tool_choice={"type": "function", "name": "find_order"},
        max_output_tokens=9,
        temperature=0.5,
        seed=3,
        reasoning={"effort": "low"},
        parallel_tool_calls=False,
        metadata={"a": "b"},
        prompt_cache_key="k",
        stream_options={"include_obfuscation": False},
        n=4,
    )
    assert body["messages"] == [{"role": "system", "content": "Help."}, {"role": "user", "content": "Where?"}]
    function = {"name": "find_order", "parameters": {"type": "object"}}
    assert body["tools"] == [{"type": "function", "function": function}]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "find_order"}}
    assert (body["max_completion_tokens"], body["temperature"], body["seed"]) == (9, 0.5, 3)
    assert (body["reasoning_effort"], body["parallel_tool_calls"], body["model"]) == ("low", False, "base@1")
    # what the engine's own route would not read must not act in chat
    assert not body.keys() & {"input", "instructions", "metadata", "prompt_cache_key", "n", "stream_options", "store"}
    assert (body["top_p"], body["return_token_ids"], body["logprobs"], body["top_logprobs"]) == (1.0, True, True, 0)


def test_logprobs_are_asked_for_as_many_as_the_client_wants() -> None:
    assert engine_body(top_logprobs=4, **LOGPROBS)["top_logprobs"] == 4
    assert engine_body(top_logprobs=4)["top_logprobs"] == 0


@pytest.mark.parametrize(
    ("form", "chats"),
    [
        ({"type": "text"}, {"type": "text"}),
        ({"type": "json_object"}, {"type": "json_object"}),
        (
            {"type": "json_schema", "name": "d", "schema": {"type": "object"}, "strict": True},
            {"type": "json_schema", "json_schema": {"name": "d", "schema": {"type": "object"}, "strict": True}},
        ),
    ],
)
def test_a_format_is_chats(form: Any, chats: Any) -> None:
    reading = read(text={"format": form, "verbosity": "low"})
    assert reading.request.response_format == chats
    assert reading.request.rest["text"] == {"verbosity": "low"}
    assert reading.request.sampling.distorting == (() if form["type"] == "text" else ("response_format",))


def test_what_bends_the_distribution_is_seen() -> None:
    forced = read(tools=[FIND], tool_choice="required")
    assert forced.request.sampling.distorting == ("tool_choice",)
    assert read(tools=[FIND]).request.sampling.distorting == ()


def test_the_record_keeps_what_is_nowhere_else() -> None:
    request = read(instructions="Help.", tools=[FIND], metadata={"a": "b"}, store=False).request
    assert request.rest == {"model": "helpdesk", "metadata": {"a": "b"}, "store": False}
    assert request.tools == [{"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}]
    assert (request.dialect, request.endpoint, request.previous_response_id) == ("responses", "/v1/responses", None)


def test_an_unfinished_message_is_gone_on_with() -> None:
    last = {"type": "message", "role": "assistant", "status": "incomplete", "content": "Your"}
    body = engine_body(input=[{"role": "user", "content": "Where?"}, last])
    assert (body["add_generation_prompt"], body["continue_final_message"]) == (False, True)


def test_a_request_is_whole_when_it_has_the_answers_that_it_refers_to() -> None:
    said = {"role": "assistant", "content": "Monday."}
    items = output_items(said, "resp_0123456789abcdef")
    earlier = EarlierAnswer([{"role": "user", "content": "When?"}, said], items)
    by_id = read(previous_response_id="resp_0123456789abcdef", instructions="Help.")
    assert by_id.refers_to == {"resp_0123456789abcdef"}
    by_id.resolve({"resp_0123456789abcdef": earlier})
    assert [m["content"] for m in by_id.request.messages] == ["Help.", "When?", "Monday.", "Where?"]
    assert by_id.request.previous_response_id == "resp_0123456789abcdef"
    named = read(input=[{"role": "user", "content": "When?"}, {"type": "item_reference", "id": items[0]["id"]}])
    assert named.refers_to == {"resp_0123456789abcdef"}
    named.resolve({"resp_0123456789abcdef": earlier})
    assert named.request.messages == earlier.messages
    with pytest.raises(UnknownObject):
        read(input=[{"type": "item_reference", "id": "x"}])


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"input": None}, "input"),
        ({"instructions": ["x"]}, "instructions"),
        ({"tools": {}}, "tools"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "telepathy", "name": "x"}]}, "tools[0]"),
        ({"tools": [{"type": ["x"]}]}, "tools[0]"),
        ({"tools": [{"type": "custom"}]}, "tools[0].name"),
        ({"tools": [{"type": "mcp", "server_label": "x", "server_url": "http://x"}]}, "tools[0]"),
        ({"tools": [FIND], "tool_choice": {"type": "function", "name": "other"}}, "tool_choice"),
        ({"tools": [FIND], "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, "tool_choice"),
        ({"tool_choice": {"type": "function", "name": "find_order"}}, "tool_choice"),
        ({"tools": [FIND], "tool_choice": ["auto"]}, "tool_choice"),
        ({"text": {"format": "json"}}, "text.format"),
        ({"text": {"format": {"type": "json_object"}}, "structured_outputs": {"regex": "x"}}, "structured_outputs"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"max_output_tokens": True}, "max_output_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_logprobs": 21, **LOGPROBS}, "top_logprobs"),
        ({"include": [["x"]]}, "include"),
        ({"metadata": {"a": 1}}, "metadata"),
        ({"request_id": "mine"}, "request_id"),
        ({"previous_input_messages": [{}]}, "previous_input_messages"),
        ({"enable_response_messages": True}, "enable_response_messages"),
        ({"priority": 3}, "priority"),
        ({"kv_transfer_params": {}}, "kv_transfer_params"),
        ({"background": "perhaps"}, "background"),
    ],
)
def test_a_field_that_cannot_be_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(**fields)
    assert refused.value.param == param


def test_what_says_nothing_is_no_fault() -> None:
    read(conversation=None, prompt=None, truncation="disabled", background=False, priority=None, cache_salt=None)


def test_deep_bodies_are_refused() -> None:
    deep: Any = "x"
    for _ in range(700):
        deep = [deep]
    with pytest.raises(BadRequest):
        read(input=[{"role": "user", "content": [{"type": "input_image", "content": deep}]}])


# --- answers


def whole(message: dict[str, Any], finish: str = "stop", **fields: Any) -> tuple[ResponsesAnswer, dict[str, Any]]:
    answer = read(**fields).answer()
    logprobs = {"content": [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []}]}
    choice = {"index": 0, "message": message, "token_ids": [7], "finish_reason": finish, "logprobs": logprobs}
    usage = {
        "prompt_tokens": 2,
        "completion_tokens": 1,
        "total_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 1},
        "completion_tokens_details": {"reasoning_tokens": 1},
    }
    body = {"id": "c", "model": "base", "choices": [choice], "usage": usage, "prompt_token_ids": [1, 2]}
    given_: dict[str, Any] = json.loads(answer.body(json.dumps(body).encode()))
    Response.model_validate(given_)
    return answer, given_


def test_an_answer_is_a_response_with_all_its_fields() -> None:
    call = {"id": "chatcmpl-tool-1", "type": "function", "function": {"name": "find_order", "arguments": "{}"}}
    message = {"role": "assistant", "content": "I look.", "reasoning": "Hm", "tool_calls": [call]}
    answer, given_ = whole(message, "tool_calls", tools=[FIND], metadata={"a": "b"}, temperature=0)
    assert [item["type"] for item in given_["output"]] == ["reasoning", "message", "function_call"]
    assert (given_["status"], given_["model"], given_["temperature"]) == ("completed", "helpdesk", 0.0)
    assert given_["usage"]["input_tokens_details"]["cached_tokens"] == 1
    assert given_["usage"]["output_tokens_details"]["reasoning_tokens"] == 1
    assert given_["tools"][0] == FIND | dict.fromkeys(
        ("allowed_callers", "defer_loading", "description", "output_schema")
    )
    sampled = answer.sampled()
    assert sampled.issued_ids == [("chatcmpl-tool-1", "tool_call", 0), (given_["id"], "response", 0)]
    assert sampled.choices == [SampledChoice(0, message, [7], [-0.5], "tool_calls")]
    assert sampled.response_meta is not None
    assert sampled.response_meta[META] == {"id": given_["id"], "created_at": given_["created_at"]}


def test_what_was_not_asked_for_is_not_in_the_answer() -> None:
    _, plain = whole({"role": "assistant", "content": "Yes"})
    assert plain["output"][0]["content"][0]["logprobs"] is None
    _, asked = whole({"role": "assistant", "content": "Yes"}, **LOGPROBS)
    assert asked["output"][0]["content"][0]["logprobs"][0]["token"] == "a"
    _, hidden = whole({"role": "assistant", "content": "Yes", "reasoning": "Hm"}, include_reasoning=False, **LOGPROBS)
    [item] = hidden["output"]
    assert item["content"][0]["logprobs"] is None


def test_an_answer_that_is_not_kept_issues_no_id() -> None:
    answer, _ = whole({"role": "assistant", "content": "Yes"}, store=False)
    assert answer.sampled().issued_ids == []


def test_an_answer_that_was_cut_short_says_so() -> None:
    _, given_ = whole({"role": "assistant", "content": "Ye"}, "length")
    assert (given_["status"], given_["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_the_limit_in_force_is_told_where_it_is_known() -> None:
    for asked, context, told in ((None, None, None), (None, 10, 8), (5, 10, 5), (50, 10, 8), (5, None, 5)):
        answer = read(max_output_tokens=asked).answer()
        answer.context_length = context
        answer.event(BEGIN)
        assert answer._object("in_progress")["max_output_tokens"] == told


def test_no_answer_is_told() -> None:
    for body in (b"{}", b"[]", b"x", b'{"choices": []}', b'{"choices": [{"index": 0, "message": {"content": 3}}]}'):
        with pytest.raises(EngineFailed):
            read().answer().body(body)


# --- streams


def test_a_text_is_told_as_it_comes_and_ended_when_it_is_committed() -> None:
    answer, before, after = played([{"content": "It "}, {}, {"content": "arrives"}], **LOGPROBS)
    assert [event["type"] for event in before] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.delta",
    ]
    assert [event["type"] for event in after] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert before[4]["logprobs"] == [{"token": "t0", "logprob": -0.5, "top_logprobs": []}]
    final = after[-1]["response"]
    assert [lp["token"] for lp in final["output"][0]["content"][0]["logprobs"]] == ["t0", "t2"]
    assert final["usage"]["total_tokens"] == 5
    assert answer.sampled().choices[0].token_ids == [0, 1, 2, 99]


def test_a_tool_call_is_one_item_however_many_pieces_it_has() -> None:
    deltas = [
        {"reasoning": "Hm"},
        call_part(0, "", "find"),
        {},
        call_part(0, '{"a"'),
        call_part(0, ": 1}"),
        call_part(1, "{}", "g"),
    ]
    _, before, after = played(deltas, "tool_calls", tools=[FIND])
    kinds = [event["type"].removeprefix("response.") for event in [*before, *after]]
    assert kinds[2:] == [
        *("output_item.added", "content_part.added", "reasoning_text.delta"),
        *("reasoning_text.done", "content_part.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.delta"),
        *("function_call_arguments.done", "output_item.done"),
        *("output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done"),
        "completed",
    ]
    output = after[-1]["response"]["output"]
    assert [item.get("arguments") for item in output] == [None, '{"a": 1}', "{}"]
    assert [item.get("call_id") for item in output] == [None, "chatcmpl-tool-0", "chatcmpl-tool-1"]


def test_a_stream_that_was_cut_short_ends_as_openais() -> None:
    _, _, after = played([{"content": "It"}], "length")
    assert after[-1]["type"] == "response.incomplete"
    assert after[-1]["response"]["status"] == "incomplete"


def test_a_stream_that_breaks_ends_with_what_is_wrong() -> None:
    answer = read(stream=True).answer()
    parsed(answer.event(BEGIN))
    parsed(answer.event(chunk({"content": "It"}, [1])))
    [failed] = parsed(answer.failed(BadGateway("the engine broke off")))
    assert (failed["type"], failed["sequence_number"]) == ("response.failed", 5)
    assert failed["response"]["error"] == {"code": "server_error", "message": "the engine broke off"}
    never_begun = parsed(read(stream=True).answer().failed(BadGateway("gone")))
    assert [e["type"] for e in never_begun] == ["response.created", "response.in_progress", "response.failed"]


def test_hidden_reasoning_is_recorded_and_not_told() -> None:
    answer, before, after = played([{"reasoning": "Hm"}, {"content": "Yes"}], include_reasoning=False, **LOGPROBS)
    assert "Hm" not in json.dumps([before, after])
    message = answer.sampled().choices[0].message
    assert message is not None
    assert message["reasoning"] == "Hm"


_deltas = st.lists(
    st.one_of(
        st.builds(lambda text: {"content": text}, st.text(max_size=5)),
        st.builds(lambda text: {"reasoning": text}, st.text(max_size=5)),
        st.just({}),
        st.builds(lambda index, text: call_part(index, text, "f"), st.integers(0, 2), st.text(max_size=3)),
    ),
    min_size=1,
    max_size=12,
)


@given(_deltas)
def test_whatever_comes_the_events_add_up_to_the_answer(deltas: list[dict[str, Any]]) -> None:
    for at, delta in enumerate(deltas):  # a tool call is begun once
        for part in delta.get("tool_calls", ()):
            part["index"] = at
            part["id"] = f"chatcmpl-tool-{at}"
    answer, before, after = played(deltas)
    events = [*before, *after]
    assert [e["sequence_number"] for e in events] == list(range(len(events)))
    built: list[dict[str, Any]] = []
    for event in events:
        kind = event["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert event["output_index"] == len(built)
            built.append({"id": event["item"]["id"], "text": ""})
        elif kind.endswith(".delta"):
            assert event["item_id"] == built[event["output_index"]]["id"]
            built[-1]["text"] += event["delta"]
        elif kind == "output_item.done":
            assert event["item"]["id"] == built[-1]["id"]
            built[-1]["item"] = event["item"]
    final = events[-1]["response"]
    assert [b["item"] for b in built] == final["output"]
    for b in built:
        item = b["item"]
        told = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
        assert told == b["text"]
    message = answer.sampled().choices[0].message
    assert message is not None
    texts = [i["content"][0]["text"] for i in final["output"] if i["type"] == "message"]
    assert "".join(texts) == (message["content"] or "")
    assert all(a["sequence_number"] < b["sequence_number"] for a, b in pairwise(events))
    meta = (answer.sampled().response_meta or {})[META]
    assert meta.get("items", output_items(message, final["id"], streamed=True)) == final["output"]


# --- what is read back


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "instructions": st.sampled_from(["", "Help."]),
            "tools": st.sampled_from(
                [[], [FIND], [{"type": "function", "name": "g", "description": "d", "strict": True}]]
            ),
            "text": st.sampled_from(
                [
                    {},
                    {"verbosity": "low"},
                    {"format": {"type": "text"}},
                    {"format": {"type": "json_schema", "name": "d", "schema": {"type": "object"}}, "verbosity": "high"},
                ]
            ),
            "metadata": st.just({"a": "b"}),
            "temperature": st.sampled_from([None, 0, 0.5]),
            "reasoning": st.just({"effort": "low"}),
            "top_logprobs": st.just(3),
            "include": st.just(LOGPROBS["include"]),
            "user": st.just("u"),
        },
    )
)
def test_the_object_made_of_the_record_is_the_one_that_was_given(fields: dict[str, Any]) -> None:
    reading = read(**fields)
    request = reading.request
    instructions = fields.get("instructions")
    back = responses_fields.recorded_fields(request.rest, request.tools, request.response_format, instructions)
    head = ResponseHead("resp_1", 7, "helpdesk", ASK | fields)
    again = ResponseHead("resp_1", 7, "helpdesk", back)
    assert response_object(again, "completed") == response_object(head, "completed")

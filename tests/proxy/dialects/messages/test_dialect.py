"""Anthropic's messages: what the engine is asked, what the client gets, what is recorded. No sockets here."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS, format_of
from proxy.dialects.base import DialectRules
from proxy.errors import (
    BadGateway,
    BadRequest,
    EngineFailed,
    EngineRefused,
    Forbidden,
    TooLarge,
    Unauthorized,
    Unavailable,
    UnknownObject,
    WrongMethod,
)
from proxy.http import sse
from tests.proxy.fake_engine import END, Said, Step, events_of, ids_of, plain_of, tool_call, words
from tests.proxy.merged import events, merged

MESSAGES = DIALECTS["/v1/messages"]
FIND = {"name": "find_order", "input_schema": {"type": "object"}}
CALL_ID = "chatcmpl-tool-0123456789"


def request(**more: Any) -> dict[str, Any]:
    return {"model": "helpdesk", "max_tokens": 64, "messages": [{"role": "user", "content": "Where is 4821?"}]} | more


def read(rules: DialectRules = DialectRules(), **more: Any) -> Any:  # noqa: B008 - frozen
    return MESSAGES.read(json.dumps(request(**more)).encode(), {}, rules)


def engine_body(**more: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(read(**more).engine_body("adapter-1"))
    return body


def plain(said: Said, **more: Any) -> tuple[dict[str, Any], Any]:
    reading = read(**more)
    answer = reading.answer()
    body = answer.body(plain_of(json.loads(reading.engine_body("adapter-1")), [said]))
    assert answer.finished
    return json.loads(body), answer.sampled()


def streamed(said: Said, **more: Any) -> tuple[bytes, bytes, Any]:
    """What the client gets at once, what it gets when the turn is committed, and what is recorded."""
    reading = read(stream=True, **more)
    answer, parser, early = reading.answer(), sse.Parser(), b""
    for event in events_of(json.loads(reading.engine_body("adapter-1")), [said]):
        early += b"".join(answer.event(data) for data in parser.feed(event))
    assert answer.finished
    assert answer.over
    sampled = answer.sampled()
    return early, answer.tail(), sampled


def thinking() -> Said:
    """A thought, a text and a call in one turn."""
    call = tool_call("find_order", {"order_id": 4821}, CALL_ID)
    steps = [Step({"reasoning": "hm"}, ids_of("hm")), Step({"content": "Let me see."}, ids_of("Let me see."))]
    return Said(
        [*steps, *call.steps], call.message | {"reasoning": "hm", "content": "Let me see."}, finish="tool_calls"
    )


def test_the_engine_is_asked_for_a_chat_completion_with_ids_and_logprobs() -> None:
    body = engine_body(system="Be brief.", tools=[FIND], stop_sequences=["END"], stream=True, metadata={"user_id": "u"})
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, *request()["messages"]]
    assert body["tools"] == [{"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}]
    assert (body["model"], body["stop"], body["max_tokens"]) == ("adapter-1", ["END"], 64)
    assert (body["return_token_ids"], body["logprobs"], body["temperature"]) == (True, True, 1.0)
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert "metadata" not in body


def test_a_request_is_recorded_in_the_chat_form_beside_the_rest_of_the_clients_own_body() -> None:
    form = {"format": {"type": "json_schema", "schema": {"type": "object"}}}
    recorded = read(system="Be brief.", tools=[FIND], metadata={"user_id": "u"}, output_config=form).request
    assert (recorded.dialect, recorded.endpoint, recorded.model) == ("messages", "/v1/messages", "helpdesk")
    assert recorded.messages[0] == {"role": "system", "content": "Be brief."}
    assert recorded.tools[0]["function"]["name"] == "find_order"
    assert recorded.response_format["type"] == "json_schema"
    assert recorded.rest == {
        "model": "helpdesk",
        "max_tokens": 64,
        "metadata": {"user_id": "u"},
        "output_config": form,
    }
    assert recorded.sampling.max_tokens == 64


@pytest.mark.parametrize(
    ("more", "distorting"),
    [
        ({"tools": [FIND], "tool_choice": {"type": "auto"}}, ()),
        ({"tools": [FIND], "tool_choice": {"type": "any"}}, ("tool_choice",)),
        ({"tools": [FIND], "tool_choice": {"type": "tool", "name": "find_order"}}, ("tool_choice",)),
        (
            {"max_tokens": 2048, "thinking": {"type": "enabled", "budget_tokens": 1024}},
            ("thinking_token_budget",),
        ),
    ],
)
def test_what_bends_the_distribution_is_told(more: dict[str, Any], distorting: tuple[str, ...]) -> None:
    assert read(**more).request.sampling.distorting == distorting


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"model": None}, "model"),
        ({"messages": []}, "messages"),
        ({"cache_salt": "x"}, "cache_salt"),
        ({"kv_transfer_params": {}}, "kv_transfer_params"),
        ({"top_k": "x"}, "top_k"),
        ({"max_tokens": True}, "max_tokens"),
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}]}
                ]
            },
            "messages[0].content[0].source.url",
        ),
    ],
)
def test_what_must_not_reach_the_engine_is_refused_by_the_clients_own_name(more: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(**more)
    assert refused.value.param == param


def test_a_body_nested_too_deeply_is_refused() -> None:
    deep = '{"type":"tool_result","tool_use_id":"a","content":[' * 3000 + "]}" * 3000
    body = '{"model":"m","max_tokens":1,"messages":[{"role":"user","content":[' + deep + "]}]}"
    with pytest.raises(BadRequest):
        MESSAGES.read(body.encode(), {}, DialectRules())


def test_a_whole_answer() -> None:
    said, recorded = plain(thinking(), tools=[FIND])
    assert [block["type"] for block in said["content"]] == ["thinking", "text", "tool_use"]
    assert said["content"][2] == {
        "type": "tool_use",
        "id": CALL_ID,
        "name": "find_order",
        "input": {"order_id": 4821},
    }
    assert (said["model"], said["stop_reason"], said["role"]) == ("helpdesk", "tool_use", "assistant")
    assert set(said) == {"id", "type", "role", "content", "model", "stop_reason", "usage"}
    [choice] = recorded.choices
    assert list(choice.token_ids) == thinking().ids()
    assert list(choice.logprobs) == pytest.approx(thinking().logprobs())
    assert recorded.issued_ids == [(CALL_ID, "tool_call", 0)]
    assert recorded.prompt_token_ids


def test_a_stream_says_and_records_the_same_and_keeps_its_end_until_the_turn_is_committed() -> None:
    early, late, recorded = streamed(thinking(), tools=[FIND])
    whole, of_whole = plain(thinking(), tools=[FIND])
    message = merged(events(early + late))
    assert message["content"] == whole["content"]
    assert message["usage"] == whole["usage"]
    assert recorded.choices == of_whole.choices
    assert recorded.usage == of_whole.usage
    assert b"stop_reason" not in early.replace(b'"stop_reason":null', b"")
    assert [event["type"] for event in events(late)] == ["content_block_stop", "message_delta", "message_stop"]


def test_a_text_in_two_blocks_is_recorded_as_it_will_come_back() -> None:
    call = tool_call("find_order", {}, CALL_ID)
    said = Said(
        [Step({"content": "a"}, [5]), *call.steps[:-1], Step({"content": "b"}, [6]), call.steps[-1]], {}, "stop"
    )
    early, late, recorded = streamed(said, tools=[FIND])
    content = merged(events(early + late))["content"]
    back = read(messages=[*request()["messages"], {"role": "assistant", "content": content}]).request.messages[-1]
    assert [block["type"] for block in content] == ["text", "tool_use", "text"]
    assert back["content"] == recorded.choices[0].message["content"]
    assert back["tool_calls"][0]["id"] == recorded.choices[0].message["tool_calls"][0]["id"]


def test_a_stream_that_breaks_off_has_no_end_and_keeps_what_was_sampled() -> None:
    reading = read(stream=True)
    answer, parser = reading.answer(), sse.Parser()
    sent = list(events_of(json.loads(reading.engine_body("a")), [words("It arrives on Monday")]))
    for event in sent[:3]:
        for data in parser.feed(event):
            answer.event(data)
    assert not answer.finished
    assert answer.tail() == b""
    assert list(answer.sampled().choices[0].token_ids) == ids_of("It arrives")
    assert answer.sampled().usage["completion_tokens"] == 2


def test_the_usage_is_counted_where_the_engine_does_not_tell_it() -> None:
    reading = read(stream=True)
    answer, parser = reading.answer(), sse.Parser()
    *sent, _, _ = events_of(json.loads(reading.engine_body("a")), [words("On Monday")])
    for event in sent:
        for data in parser.feed(event):
            answer.event(data)
    usage = events(answer.tail())[-2]["usage"]
    assert usage["output_tokens"] == len([*ids_of("On Monday"), END])


def test_what_is_no_chat_completion_is_said_to_be_none() -> None:
    for broken in (b"{", b"[]", b'{"choices": [{"index": 0}]}', b'{"choices": []}', b'{"id": 1, "choices": [3]}'):
        with pytest.raises(EngineFailed):
            read().answer().body(broken)
    for broken in (b"{", b'{"choices": [{"index": 0}]}', b'{"choices": [{"index": 0, "delta": {"content": 3}}]}'):
        with pytest.raises(EngineFailed):
            read(stream=True).answer().event(broken)


def test_an_error_inside_the_stream_is_kept_for_the_serving_path() -> None:
    answer = read(stream=True).answer()
    assert answer.event(b'{"error": {"message": "lost"}}') == b""
    assert answer.error == "lost"


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (BadRequest("x"), "invalid_request_error"),
        (Unauthorized("x"), "authentication_error"),
        (Forbidden("x"), "permission_error"),
        (UnknownObject("x"), "not_found_error"),
        (WrongMethod("x"), "invalid_request_error"),
        (TooLarge("x"), "request_too_large"),
        (EngineRefused("x", status=429, kind="y"), "rate_limit_error"),
        (EngineRefused("x", status=500, kind="y"), "api_error"),
        (BadGateway("x"), "api_error"),
        (Unavailable("x"), "overloaded_error"),
    ],
)
def test_errors_are_anthropics(error: Any, kind: str) -> None:
    told = {"type": "error", "error": {"type": kind, "message": "x"}, "request_id": None}
    assert json.loads(MESSAGES.error_body(error)) == told
    assert events(MESSAGES.error_events(error)) == [told]


def test_routes_below_a_format_have_its_errors() -> None:
    assert format_of("/v1/messages/count_tokens") is MESSAGES
    assert format_of("/v1/messages") is MESSAGES
    assert format_of("/v1/messagesx") is format_of("/elsewhere") is DIALECTS["/v1/chat/completions"]

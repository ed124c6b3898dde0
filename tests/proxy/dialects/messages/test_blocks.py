"""Anthropic's blocks and the chat form: what the engine is shown, and that what comes back is what was recorded."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.messages.blocks import parse_messages, render_blocks, render_stop, render_usage
from proxy.errors import BadRequest
from recorder.messages.content_hashes import canonical_message


def user(*blocks: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(blocks)}]


def text(said: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": said} | more


def result(content: Any, **more: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "toolu_1", "content": content} | more


def test_a_system_of_blocks_is_one_text_and_a_billing_header_is_dropped() -> None:
    header = text("x-anthropic-billing-header: cc_version=1; cch=ab12;")
    system = [header, text("You are ", cache_control={"type": "ephemeral"}), text("brief.")]
    assert parse_messages(system, []) == [{"role": "system", "content": "You are brief."}]
    assert parse_messages("You are brief.", []) == [{"role": "system", "content": "You are brief."}]
    assert parse_messages([header], []) == parse_messages("", []) == parse_messages(None, []) == []


def test_a_system_message_inside_the_conversation_stays_where_it_is() -> None:
    inline = {"role": "system", "content": [text("x-anthropic-billing-header"), text("Be brief.")]}
    said = parse_messages(None, [{"role": "user", "content": "a"}, inline, {"role": "system", "content": ""}])
    assert said == [{"role": "user", "content": "a"}, {"role": "system", "content": "Be brief."}]


def test_one_text_is_a_string_and_several_are_parts() -> None:
    assert parse_messages(None, user(text("a"))) == [{"role": "user", "content": "a"}]
    assert parse_messages(None, user(text("a"), text(""), text("b", cache_control={"type": "ephemeral"}))) == [
        {"role": "user", "content": [text("a"), text("b")]}
    ]


def test_a_user_message_that_says_nothing_is_none() -> None:
    assert parse_messages(None, user()) == parse_messages(None, user(text(""))) == []


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("Monday", "Monday"),
        (None, ""),
        ([], ""),
        ([text("Monday"), text("noon")], "Monday\nnoon"),
    ],
)
def test_a_tools_result_is_a_tool_message(content: Any, shown: str) -> None:
    assert parse_messages(None, user(result(content))) == [
        {"role": "tool", "tool_call_id": "toolu_1", "content": shown}
    ]


def test_results_come_before_what_is_said_beside_them_and_an_error_is_kept() -> None:
    said = parse_messages(None, user(text("so?"), result("lost", is_error=True), result("x", is_error=False)))
    assert said == [
        {"role": "tool", "tool_call_id": "toolu_1", "content": "lost", "is_error": True},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "x"},
        {"role": "user", "content": "so?"},
    ]


def test_images_become_urls_also_inside_a_result() -> None:
    plain = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
    linked = {"type": "image", "source": {"type": "url", "url": "https://a.example/x.png"}}
    urls = ["data:image/png;base64,QUJD", "https://a.example/x.png"]
    parts = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    assert parse_messages(None, user(plain, linked)) == [{"role": "user", "content": parts}]
    assert parse_messages(None, user(result([plain, linked])))[1:] == [{"role": "user", "content": parts}]


def test_tools_that_a_result_refers_to_are_named() -> None:
    reference = {"type": "tool_reference", "tool_name": "track_parcel"}
    [_, said] = parse_messages(None, user(result([reference])))
    assert said == {
        "role": "tool",
        "tool_call_id": "toolu_1",
        "content": [{"type": "tool_reference", "name": "track_parcel"}],
    }


@pytest.mark.parametrize(
    ("messages", "param"),
    [
        (["x"], "messages[0]"),
        ([{"role": "tool", "content": "x"}], "messages[0]"),
        ([{"role": "user"}], "messages[0].content"),
        ([{"role": "user", "content": 3}], "messages[0].content"),
        (user("x"), "messages[0].content[0]"),
        (user({"type": "text", "text": 1}), "messages[0].content[0].text"),
        (user({"type": "image"}), "messages[0].content[0].source"),
        (user({"type": "tool_result", "content": "x"}), "messages[0].content[0].tool_use_id"),
        (user({"type": "tool_use", "id": "a", "name": "b", "input": []}), "messages[0].content[0].input"),
        (user({"type": "tool_use", "id": 1, "name": "b", "input": {}}), "messages[0].content[0].id"),
        ([{"role": "system", "content": [{"type": "image"}]}], "messages[0].content[0]"),
    ],
)
def test_what_has_no_chat_form_is_refused_by_name(messages: list[Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_messages(None, messages)
    assert refused.value.param == param
    assert param in str(refused.value)


@pytest.mark.parametrize(
    ("finish", "matched", "tool_used", "complete", "told"),
    [
        ("stop", None, False, False, ("end_turn", None)),
        ("stop", 2, False, False, ("end_turn", None)),
        ("stop", "END", False, False, ("stop_sequence", "END")),
        ("length", "END", True, True, ("max_tokens", None)),
        ("tool_calls", None, True, True, ("tool_use", None)),
        ("stop", None, True, True, ("tool_use", None)),  # a forced tool
        ("stop", "END", True, False, ("stop_sequence", "END")),  # it cut the call short
        ("stop", "END", True, True, ("tool_use", None)),
        ("abort", None, False, False, (None, None)),
    ],
)
def test_why_it_stopped(finish: str, matched: Any, tool_used: bool, complete: bool, told: Any) -> None:
    assert render_stop(finish, matched, tool_used, complete) == told


def test_what_a_cache_gave_is_told_apart() -> None:
    assert render_usage(None) == {"input_tokens": 0, "output_tokens": 0}
    assert render_usage({"prompt_tokens": 9, "completion_tokens": None}) == {"input_tokens": 9, "output_tokens": 0}
    details = {"cached_tokens": 6, "created_cache_tokens": 2, "audio_tokens": 1}
    assert render_usage({"prompt_tokens": 9, "completion_tokens": 3, "prompt_tokens_details": details}) == {
        "input_tokens": 1,
        "output_tokens": 3,
        "cache_read_input_tokens": 6,
        "cache_creation_input_tokens": 2,
    }


def test_an_empty_answer_is_one_empty_text() -> None:
    assert render_blocks({"role": "assistant", "content": None}) == [text("")]


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"', "nonsense", '{"": Infinity}', '{"": NaN}'])
def test_arguments_that_are_no_object_are_shown_wrapped(arguments: str) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    [block] = render_blocks({"content": None, "tool_calls": [call]})
    assert block["input"] == {"INVALID_JSON": arguments}
    [echo] = parse_messages(None, [{"role": "assistant", "content": [block]}])
    assert echo["tool_calls"] == [call], "and a client that sends them back means what the model wrote"


# --- the round trip

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ARGUMENTS = st.dictionaries(st.text(), JSON, max_size=3)
SPACING = st.sampled_from([(",", ":"), (", ", ": "), (" ,", " :  ")])


@st.composite
def sampled_messages(draw: st.DrawFn) -> dict[str, Any]:
    """An assistant message as the recorder gets it: the model spaces its JSON as it likes."""
    message: dict[str, Any] = {"role": "assistant", "content": draw(st.text()) or None}
    if reasoning := draw(st.text()):
        message["reasoning"] = reasoning
    calls = draw(st.lists(st.tuples(ARGUMENTS, SPACING, st.booleans()), max_size=3))
    if calls:
        message["tool_calls"] = [
            {
                "id": f"chatcmpl-tool-{at}",
                "type": "function",
                "function": {
                    "name": "find",
                    "arguments": json.dumps(arguments, separators=spacing, ensure_ascii=escaped),
                },
            }
            for at, (arguments, spacing, escaped) in enumerate(calls)
        ]
    return message


def turned(value: Any) -> Any:
    """The same JSON with its keys in another order, as some clients keep objects."""
    if isinstance(value, dict):
        return {key: turned(value[key]) for key in reversed(value)}
    return [turned(item) for item in value] if isinstance(value, list) else value


@given(sampled_messages())
def test_blocks_that_a_client_sends_back_are_the_recorded_message(message: dict[str, Any]) -> None:
    sent_back = turned(json.loads(orjson.dumps(render_blocks(message))))
    [echo] = parse_messages(None, [{"role": "assistant", "content": sent_back}])
    assert canonical_message(echo) == canonical_message(message)
    assert echo.get("reasoning") == message.get("reasoning")
    assert [call["id"] for call in echo.get("tool_calls", ())] == [c["id"] for c in message.get("tool_calls", ())]

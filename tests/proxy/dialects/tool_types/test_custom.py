"""Chat's free-form tools: what the engine is asked, what the client gets, whole and streamed, and what comes back."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules
from proxy.errors import BadRequest
from proxy.http import sse
from recorder.messages.content_hashes import canonical_message
from tests.proxy.fake_engine import END, Said, Step, events_of, plain_of, tool_call

CHAT = DIALECTS["/v1/chat/completions"]
FIND: Any = {"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}
WRITE: Any = {"type": "custom", "custom": {"name": "write", "description": "Writes."}}
ID = "chatcmpl-tool-0123456789"


def read(**more: Any) -> Any:
    body = {"model": "helpdesk", "messages": [{"role": "user", "content": "Write."}]} | more
    return CHAT.read(json.dumps(body).encode(), {}, DialectRules())


def engine_body(**more: Any) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(read(**more).engine_body("adapter-1"))
    return body


def whole(said: Said, **more: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the client gets and what is recorded, as messages."""
    reading = read(**more)
    answer = reading.answer()
    body = json.loads(answer.body(plain_of(json.loads(reading.engine_body("a")), [said])))
    return body["choices"][0]["message"], answer.sampled().choices[0].message


def streamed(said: Said, **more: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The deltas that the client gets, and what is recorded."""
    reading = read(stream=True, **more)
    answer, parser, sent = reading.answer(), sse.Parser(), b""
    for event in events_of(json.loads(reading.engine_body("a")), [said]):
        sent += b"".join(answer.event(data) for data in parser.feed(event))
    events = (sent + answer.tail()).decode().split("\n\n")
    chunks = [json.loads(event.removeprefix("data: ")) for event in events if event and "[DONE]" not in event]
    return [c["delta"] for chunk in chunks for c in chunk["choices"]], answer.sampled().choices[0].message


def test_the_engine_is_asked_for_a_function_of_one_text() -> None:
    body = engine_body(tools=[FIND, WRITE], tool_choice={"type": "custom", "custom": {"name": "write"}})
    assert body["tools"][0] == FIND
    assert body["tools"][1]["function"]["parameters"]["required"] == ["input"]
    assert body["tool_choice"] == {"type": "function", "function": {"name": "write"}}


def test_chats_grammar_is_quoted() -> None:
    form = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "[a-z]+"}}
    body = engine_body(tools=[{"type": "custom", "custom": {"name": "w", "format": form}}])
    assert body["tools"][0]["function"]["description"] == "The input must match this grammar (regex):\n[a-z]+"


def test_a_request_without_other_types_goes_as_it_came() -> None:
    odd = {"function": {"name": "x"}}
    assert engine_body(tools=[FIND, odd])["tools"] == [FIND, odd]


def test_what_nobody_runs_here_is_left_out() -> None:
    reading = read(tools=[FIND, {"type": "web_search"}])
    assert (reading.chat["tools"], reading.request.dropped_tools) == ([FIND], ("web_search",))


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"tools": [WRITE, WRITE]}, "tools"),
        ({"tools": [{"type": "custom", "custom": {}}]}, "tools[0].custom"),
        ({"tools": [FIND, {"type": "web_search"}], "tool_choice": {"type": "web_search"}}, "tool_choice"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "x", "type": "custom", "custom": {}}]}]},
            "messages[0].tool_calls[0].custom",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_name(more: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read(**more)
    assert refused.value.param == param


@given(st.text(max_size=20))
def test_a_call_comes_back_as_it_was_sampled(text: str) -> None:
    said = tool_call("write", {"input": text}, ID)
    shown, recorded = whole(said, tools=[FIND, WRITE])
    assert shown["tool_calls"] == [{"id": ID, "type": "custom", "custom": {"name": "write", "input": text}}]
    deltas, streamed_record = streamed(said, tools=[FIND, WRITE])
    [part] = [part for delta in deltas for part in delta.get("tool_calls") or ()]
    assert part == {"id": ID, "index": 0, "type": "custom", "custom": {"name": "write", "input": text}}
    assert streamed_record["tool_calls"] == recorded["tool_calls"]
    again = engine_body(messages=[{"role": "user", "content": "x"}, shown], tools=[WRITE])["messages"][1]
    assert canonical_message(again) == canonical_message(recorded)


@pytest.mark.parametrize("arguments", [{"input": 3}, {"input": "a", "more": 1}, {}])
def test_a_call_that_no_text_can_say_stays_a_functions(arguments: dict[str, Any]) -> None:
    said = tool_call("write", arguments, ID)
    shown, recorded = whole(said, tools=[WRITE])
    assert shown["tool_calls"] == recorded["tool_calls"]
    deltas, _ = streamed(said, tools=[WRITE])
    [part] = [part for delta in deltas for part in delta.get("tool_calls") or ()]
    assert part["function"] == {"name": "write", "arguments": json.dumps(arguments)}


def test_calls_of_both_kinds_in_one_stream() -> None:
    find = {"index": 0, "id": "find-000000", "type": "function", "function": {"name": "find_order", "arguments": "{}"}}
    write = {"index": 1, "id": ID, "type": "function", "function": {"name": "write", "arguments": '{"inp'}}
    rest = {"index": 1, "function": {"arguments": 'ut": "a"}'}}
    steps = [Step({"tool_calls": [find, write]}, [11]), Step({"tool_calls": [rest]}, [12]), Step({}, [END])]
    deltas, recorded = streamed(Said(steps, {}, "tool_calls"), tools=[FIND, WRITE])
    parts = [part for delta in deltas for part in delta.get("tool_calls") or ()]
    assert [part["index"] for part in parts] == [0, 1]
    assert parts[1]["custom"] == {"name": "write", "input": "a"}
    assert [call["function"]["name"] for call in recorded["tool_calls"]] == ["find_order", "write"]

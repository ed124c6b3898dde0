"""Calls of tools as items: each comes back as the call that was sampled, whatever the model wrote."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from proxy.dialects.base import DialectRules
from proxy.dialects.responses.items import ItemExtras, input_items, output_items, parse_item_id, parse_messages
from proxy.dialects.responses.stream_events import ResponseEvents
from proxy.dialects.responses.tools import ToolOrigin
from recorder.messages.content_hashes import canonical_message

ID = "resp_0123456789abcdef"
ORIGINS = {
    "find": ToolOrigin("function", "find"),
    "ns__find": ToolOrigin("function", "find", "ns"),
    "write": ToolOrigin("custom", "write"),
    "ns__write": ToolOrigin("custom", "write", "ns"),
    "local_shell": ToolOrigin("local_shell", "local_shell"),
    "shell": ToolOrigin("shell", "shell"),
    "apply_patch": ToolOrigin("apply_patch", "apply_patch"),
    "tool_search": ToolOrigin("tool_search", "tool_search"),
}
OUTPUT: TypeAdapter[ResponseOutputItem] = TypeAdapter(ResponseOutputItem)
RIGHT = {
    "write": {"input": "*** Begin Patch\n“é”"},
    "ns__write": {"input": ""},
    "local_shell": {"command": ["ls", "-l"], "timeout_ms": 5, "env": {"A": "b"}},
    "shell": {"commands": ["ls"], "max_output_length": 9},
    "apply_patch": {"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b"},
    "tool_search": {"query": "mail", "limit": 3},
    "ns__find": {"a": 1},
}
ITEMS = {
    "write": "custom_tool_call",
    "ns__write": "custom_tool_call",
    "local_shell": "local_shell_call",
    "shell": "shell_call",
    "apply_patch": "apply_patch_call",
    "tool_search": "tool_search_call",
    "ns__find": "function_call",
}


def sampled(name: str, arguments: str, at: int = 0) -> dict[str, Any]:
    call = {"id": f"chatcmpl-tool-{at:08}", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def streamed(message: dict[str, Any]) -> tuple[list[dict[str, Any]], ResponseEvents]:
    told = ResponseEvents(ID, ORIGINS)
    events = []
    for at, call in enumerate(message["tool_calls"]):
        function = call["function"]
        first = {"index": at, "id": call["id"], "function": {"name": function["name"], "arguments": ""}}
        events += told.delta({"tool_calls": [first]})
        for char in function["arguments"]:
            events += told.delta({"tool_calls": [{"index": at, "function": {"arguments": char}}]})
    return [*events, *told.close()], told


@pytest.mark.parametrize("name", sorted(RIGHT))
def test_a_call_has_its_own_item_which_the_official_client_reads(name: str) -> None:
    [item] = output_items(sampled(name, json.dumps(RIGHT[name])), ID, origins=ORIGINS)
    assert item["type"] == ITEMS[name]
    assert OUTPUT.validate_python(item, strict=True).type == ITEMS[name]
    assert parse_item_id(item["id"]) == (ID, 0)
    if name.startswith("ns__"):
        assert (item["namespace"], item["name"]) == ("ns", name.removeprefix("ns__"))


@pytest.mark.parametrize("arguments", ['{"query": ' + "[" * 240 + "]" * 240 + "}", '{"limit": 1e999}'])
def test_arguments_that_could_not_be_sent_as_an_object_are_given_as_their_text(arguments: str) -> None:
    [item] = output_items(sampled("tool_search", arguments), ID, origins=ORIGINS)
    assert (item["type"], item["arguments"]) == ("function_call", arguments)


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=True), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=4), inner, max_size=2)),
    max_leaves=4,
)
_fields = ["input", "command", "commands", "timeout_ms", "env", "user", "type", "path", "diff", "max_output_length"]
_near = st.dictionaries(
    st.sampled_from(_fields),
    st.one_of(
        _json, st.lists(st.text(max_size=3), max_size=2), st.sampled_from(["create_file", "delete_file", "update_file"])
    ),
    max_size=4,
)
_arguments = st.one_of(
    st.text(max_size=12),
    _near.map(json.dumps),
    _json.map(json.dumps),
    st.sampled_from(sorted(RIGHT)).map(lambda name: json.dumps(RIGHT[name])),
    st.just('{"input": "\\ud800"}'),
)


@given(st.lists(st.tuples(st.sampled_from(sorted(ORIGINS)), _arguments), min_size=1, max_size=3))
def test_a_turn_that_comes_back_is_the_turn_that_was_sampled(calls: list[tuple[str, str]]) -> None:
    each = [sampled(name, arguments, at)["tool_calls"][0] for at, (name, arguments) in enumerate(calls)]
    message = {"role": "assistant", "content": None, "tool_calls": each}
    items = output_items(message, ID, origins=ORIGINS)
    if all("\ud800" not in call["function"]["arguments"] for call in each):
        items = orjson.loads(orjson.dumps(items))
    for item in items:
        OUTPUT.validate_python(item, strict=True)
    without_ids = [{name: value for name, value in item.items() if name != "id"} for item in items]
    for echoed in (items, without_ids):
        [back] = parse_messages(echoed, DialectRules())
        assert canonical_message(back) == canonical_message(message)
    assert streamed(message)[1].items == items


def test_the_events_of_a_custom_call() -> None:
    events, _ = streamed(sampled("ns__write", '{"input": "a\\nb"}'))
    assert [event["type"] for event in events] == [
        "response.output_item.added",
        "response.custom_tool_call_input.delta",
        "response.custom_tool_call_input.done",
        "response.output_item.done",
    ]
    assert (events[0]["item"]["input"], events[1]["delta"], events[2]["input"]) == ("", "a\nb", "a\nb")
    assert len({event.get("item_id", events[0]["item"]["id"]) for event in events}) == 1
    assert [event["sequence_number"] for event in events] == [0, 1, 2, 3]


def test_the_events_of_a_malformed_custom_call_are_a_functions() -> None:
    events, _ = streamed(sampled("write", '{"input": 3}'))
    assert [event["type"] for event in events] == [
        "response.output_item.added",
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
    ]
    assert events[-1]["item"]["arguments"] == '{"input": 3}'


def test_what_tools_gave_back_and_how_it_is_shown_again() -> None:
    given_back: list[Any] = [
        {"type": "custom_tool_call_output", "call_id": "call_write", "output": "done"},
        {"type": "local_shell_call_output", "id": "lsh_1", "output": '{"stdout": "a"}'},
        {
            "type": "shell_call_output",
            "call_id": "call_shell",
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
        },
        {"type": "apply_patch_call_output", "call_id": "call_patch", "status": "failed", "output": "no such file"},
    ]
    calls: list[Any] = [
        {"type": "custom_tool_call", "call_id": "call_write", "name": "write", "input": "x"},
        {"type": "local_shell_call", "id": "lsh_1", "call_id": "call_local", "action": {"command": ["ls"], "env": {}}},
        {"type": "shell_call", "call_id": "call_shell", "action": {"commands": ["ls"], "timeout_ms": None}},
        {"type": "apply_patch_call", "call_id": "call_patch", "operation": {"type": "delete_file", "path": "a"}},
    ]
    messages = parse_messages([*calls, *given_back], DialectRules())
    assert [m["role"] for m in messages] == ["assistant", *["tool"] * 4]
    assert [m["tool_call_id"] for m in messages[1:]] == ["call_write", "call_local", "call_shell", "call_patch"]
    shown = input_items(messages, ID, ORIGINS)
    assert [item["type"] for item in shown[4:]] == [item["type"] for item in given_back]
    assert shown[6]["output"] == given_back[2]["output"]
    assert (shown[7]["status"], shown[7]["output"]) == ("failed", "no such file")
    for item in shown:
        OUTPUT.validate_python(item, strict=True)


def test_items_of_tools_that_others_ran_are_left_out_with_a_note() -> None:
    beside = ItemExtras()
    [user, said] = parse_messages(
        [
            {"role": "user", "content": "x"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "tool_search_call", "execution": "server", "arguments": {}},
            {"type": "message", "role": "assistant", "content": "found"},
        ],
        DialectRules(),
        beside,
    )
    assert (user["role"], said["content"]) == ("user", "found")
    assert beside.dropped == ["web_search_call", "tool_search_call"]


def test_a_search_adds_its_tools() -> None:
    beside = ItemExtras()
    tool = {"type": "function", "name": "mail", "parameters": {}}
    inside = {"type": "namespace", "name": "ns", "description": "", "tools": [tool]}
    output = {"type": "tool_search_output", "execution": "client", "call_id": "c", "tools": [tool, inside]}
    more = {"type": "additional_tools", "role": "developer", "tools": [tool]}
    [message] = parse_messages([output, more], DialectRules(), beside)
    assert message == {"role": "tool", "tool_call_id": "c", "content": '{"tools": ["mail", "ns__mail"]}'}
    assert [where for where, _ in beside.tools] == [
        "input[0].tools[0]",
        "input[0].tools[1]",
        "input[1].tools[0]",
    ]

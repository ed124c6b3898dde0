"""The engine that acts: what it says next, with which tool and arguments, and in which agent's form."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.agents.acting.engine import script
from tests.agents.acting.filling import arguments
from tests.agents.acting.play import Answer, Look, move
from tests.agents.acting.tongues import Call, say

QUESTION = {"role": "user", "content": "Where is my order 4821?"}
FOUND = {"role": "tool", "tool_call_id": "1", "content": '{"status": "packed", "tracking": "P81287"}'}
TRACKED = {"role": "tool", "tool_call_id": "2", "content": '{"arrives": "Tuesday"}'}
PARTS = {"role": "user", "content": [{"type": "text", "text": QUESTION["content"]}]}
OBSERVED = {"role": "user", "content": "Observation: {'tracking': 'P81287'}"}
ANSWER = "Your order 4821 arrives on Tuesday."


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


def said(*messages: dict[str, Any], **more: Any) -> Any:
    body = {"model": "m", "messages": list(messages), **more}
    return say(body, move(body["messages"]))


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([QUESTION], Look("find_order", "order_id", "4821")),
        ([QUESTION, FOUND], Look("track_parcel", "tracking", "P81287")),
        ([QUESTION, FOUND, TRACKED], Answer(ANSWER)),
        ([PARTS, FOUND, TRACKED], Answer(ANSWER)),
        ([QUESTION, OBSERVED], Look("track_parcel", "tracking", "P81287")),
        ([{"role": "user", "content": "Write a title."}], Answer("A question about an order")),
    ],
)
def test_the_next_move_follows_from_what_was_found(messages: list[dict[str, Any]], expected: Look | Answer) -> None:
    assert move(messages) == expected


def test_a_game_that_gets_nowhere_ends() -> None:
    lost = [QUESTION, *([{"role": "assistant", "content": "again"}] * 13)]
    assert move(lost) == Answer("I cannot find it.")


@pytest.mark.parametrize("prefix", ["", "Desk-", "mcp__desk__"])
def test_the_desks_tool_is_found_behind_a_prefix(prefix: str) -> None:
    tools = [tool("bash", command={"type": "string"}), tool(f"{prefix}find_order", order_id={"type": "string"})]
    call = said(QUESTION, tools=tools)
    assert (call.name, call.arguments) == (f"{prefix}find_order", {"order_id": "4821"})


def test_without_it_a_shell_runs_it() -> None:
    tools = [
        tool("read_file", path={"type": "string"}),
        tool("exec_command", cmd={"type": "string"}, timeout={"type": "integer", "minimum": 5}),
    ]
    call = said(QUESTION, FOUND, tools=tools)
    assert (call.name, call.arguments) == ("exec_command", {"cmd": "./track_parcel P81287", "timeout": 5})


def test_a_shell_that_takes_a_list_gets_one() -> None:
    tools = [tool("shell", command={"type": "array", "items": {"type": "string"}})]
    assert said(QUESTION, tools=tools).arguments == {"command": ["bash", "-lc", "./find_order 4821"]}


def test_an_answer_goes_through_the_tool_that_takes_it() -> None:
    tools = [tool("find_order", order_id={"type": "string"}), tool("final_answer", answer={"type": "string"})]
    call = said(QUESTION, FOUND, TRACKED, tools=tools)
    assert (call.name, call.arguments) == ("final_answer", {"answer": ANSWER})


def test_calls_have_ids_of_their_own() -> None:
    tools = [tool("find_order", order_id={"type": "string"})]
    calls: list[Call] = [said(QUESTION, tools=tools) for _ in range(2)]
    assert calls[0].id != calls[1].id


@pytest.mark.parametrize(
    ("system", "expected"),
    [
        ("Write code between <code> and </code>.", "Thought: I go on.\n<code>\nprint(find_order('4821'))\n</code>"),
        (
            'Say <tool_call>\n{"name": …}\n</tool_call>',
            '<tool_call>\n{"name": "find_order", "arguments": {"order_id": "4821"}}\n</tool_call>',
        ),
        ("Name a file: orders/ORDER.json", "I need orders/4821.json for that."),
        ("Write a title.", "A question about an order"),
    ],
)
def test_an_agent_without_tools_is_spoken_to_in_its_own_form(system: str, expected: str) -> None:
    assert said({"role": "system", "content": system}, QUESTION) == expected


def test_fields_that_are_asked_for_are_filled() -> None:
    asked = (
        "Where is my order 4821?\n\nRespond with the corresponding output fields, starting with the field "
        "`[[ ## next_tool_name ## ]]`, then `[[ ## next_tool_args ## ]]`, and then ending with `[[ ## completed ## ]]`."
    )
    assert said({"role": "system", "content": ""}, {"role": "user", "content": asked}) == (
        '[[ ## next_tool_name ## ]]\nfind_order\n\n[[ ## next_tool_args ## ]]\n{"order_id": "4821"}\n\n'
        "[[ ## completed ## ]]"
    )


def test_an_object_is_filled_with_the_branch_that_is_the_move() -> None:
    schema = {
        "type": "object",
        "properties": {
            "memory": {"type": "string"},
            "action": {"type": "array", "items": {"anyOf": [{"$ref": "#/$defs/Go"}, {"$ref": "#/$defs/Find"}]}},
        },
        "required": ["memory", "action"],
        "$defs": {
            "Go": {"type": "object", "properties": {"go": {"type": "object"}}},
            "Find": {"type": "object", "properties": {"find_order": {"$ref": "#/$defs/Order"}}},
            "Order": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
        },
    }
    text = said(QUESTION, response_format={"type": "json_schema", "json_schema": {"schema": schema}})
    assert json.loads(text) == {"memory": "Look it up", "action": [{"find_order": {"order_id": "4821"}}]}


def test_arguments_are_the_known_ones_and_the_least_of_what_is_required() -> None:
    schema = {
        "type": "object",
        "properties": {
            "command": {"type": "string"},
            "mode": {"type": "string", "enum": ["sync", "async"]},
            "risk": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/Risk"}]},
            "wait": {"type": "integer", "default": 7},
            "paths": {"type": "array", "minItems": 1, "items": {"type": "string"}},
            "flag": {"type": "boolean"},
            "inner": {"type": "object", "properties": {"x": {"type": ["null", "number"]}}, "required": ["x"]},
            "left_out": {"type": "string"},
        },
        "required": ["command", "mode", "risk", "wait", "paths", "flag", "inner"],
        "$defs": {"Risk": {"const": "low"}},
    }
    assert arguments(schema, {"command": "ls", "unknown": 1}) == {
        "command": "ls",
        "mode": "sync",
        "risk": "low",
        "wait": 7,
        "paths": ["Look it up"],
        "flag": False,
        "inner": {"x": 30},
    }


def test_text_ends_before_a_stop_string_and_its_tokens_do_not() -> None:
    body = {"model": "m", "messages": [{"role": "system", "content": "<code>"}, QUESTION]}
    [whole], [cut] = script(body).choices, script(body | {"stop": ["</code>", "Observation:"]}).choices
    assert cut.message["content"] == "Thought: I go on.\n<code>\nprint(find_order('4821'))\n"
    assert "".join(step.delta.get("content", "") for step in cut.steps) == cut.message["content"]
    assert cut.ids() == whole.ids()

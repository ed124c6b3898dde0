"""A Messages request in the fields of chat completions."""

from __future__ import annotations

from typing import Any

import pytest

from proxy.dialects.messages.fields import count_tokens_body, to_chat
from proxy.dialects.tool_types.table import DroppedTool
from proxy.errors import BadRequest

FIND = {"name": "find_order", "description": "Find it.", "input_schema": {"type": "object", "properties": {}}}
TRACK = {"name": "track", "input_schema": {"properties": {"a": {}}}, "strict": True, "cache_control": {"type": "x"}}
FOUND = {
    "type": "function",
    "function": {
        "name": "find_order",
        "description": "Find it.",
        "parameters": {"type": "object", "properties": {}},
    },
}


def request(**more: Any) -> dict[str, Any]:
    return {"model": "helpdesk", "max_tokens": 2000, "messages": [{"role": "user", "content": "hi"}]} | more


def chat(**more: Any) -> dict[str, Any]:
    """What is added to the plainest chat request."""
    plain = request()
    return {name: value for name, value in to_chat(request(**more)).items() if plain.get(name) != value}


def test_the_plainest_request_is_itself() -> None:
    assert to_chat(request()) == request()


def test_sampling_keeps_its_meaning_and_what_is_anthropics_alone_is_left_out() -> None:
    said = {"temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 7, "chat_template_kwargs": {"a": 1}}
    left_out = {"metadata": {"user_id": "u"}, "service_tier": "auto", "betas": ["x"], "container": None}
    assert chat(**said, **left_out, stop_sequences=["END"]) == said | {"stop": ["END"]}


def test_a_stream_tells_usage_from_its_start() -> None:
    assert chat(stream=True) == {
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    assert chat(stream=False) == {}


def test_tools_are_functions() -> None:
    assert chat(tools=[FIND, TRACK]) == {
        "tools": [
            FOUND,
            {
                "type": "function",
                "function": {
                    "name": "track",
                    "strict": True,
                    "parameters": {"properties": {"a": {}}, "type": "object"},
                },
            },
        ],
        "tool_choice": "auto",
    }
    assert chat(tools=[]) == chat(tools=[], tool_choice={"type": "auto"}) == {}


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"type": "auto"}, {"tool_choice": "auto", "parallel_tool_calls": True}),
        ({"type": "any"}, {"tool_choice": "required", "parallel_tool_calls": True}),
        ({"type": "none"}, {"tool_choice": "none", "parallel_tool_calls": True}),
        (
            {"type": "tool", "name": "find_order", "disable_parallel_tool_use": True},
            {
                "tool_choice": {"type": "function", "function": {"name": "find_order"}},
                "parallel_tool_calls": False,
            },
        ),
    ],
)
def test_tool_choices(choice: dict[str, Any], said: dict[str, Any]) -> None:
    assert chat(tools=[FIND], tool_choice=choice) == {"tools": [FOUND]} | said


def test_system_messages_change_the_tools_in_force() -> None:
    def changed(*blocks: dict[str, Any], tools: list[Any]) -> list[str]:
        messages = [{"role": "user", "content": "hi"}, {"role": "system", "content": list(blocks)}]
        return [t["function"]["name"] for t in to_chat(request(messages=messages, tools=tools)).get("tools", ())]

    find = {"type": "tool_reference", "name": "find_order"}
    track = {"type": "tool_definition", "definition": TRACK}
    assert changed({"type": "tool_removal", "tool": find}, tools=[FIND]) == []
    assert changed({"type": "tool_addition", "tool": track}, tools=[FIND]) == ["find_order", "track"]
    again = [{"type": "tool_removal", "tool": find}, {"type": "tool_addition", "tool": find}]
    assert changed(*again, tools=[FIND | {"defer_loading": True}]) == ["find_order"]
    for nameless in (find, {"type": "tool_reference"}, {"type": "tool_reference", "name": ["find_order"]}):
        with pytest.raises(BadRequest, match="must name one of the tools: none"):
            changed({"type": "tool_removal", "tool": nameless}, tools=[])


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"thinking_token_budget": 1024}),
        ({"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}),
        ({"thinking": {"type": "adaptive", "display": "omitted"}}, {}),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, {"reasoning_effort": "none"}),
    ],
)
def test_thinking(said: dict[str, Any], told: dict[str, Any]) -> None:
    assert chat(**said) == told


def test_an_output_format_is_a_response_format() -> None:
    schema = {"type": "object"}
    assert chat(output_config={"format": {"type": "json_schema", "schema": schema}}) == {
        "response_format": {"type": "json_schema", "json_schema": {"name": "json_schema", "schema": schema}}
    }


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"messages": "hi"}, "messages"),
        ({"max_tokens": None}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"stop_sequences": "END"}, "stop_sequences"),
        ({"stop_sequences": [1]}, "stop_sequences"),
        ({"thinking": "on"}, "thinking"),
        ({"thinking": {"type": "on"}}, "thinking.type"),
        ({"thinking": {"type": "enabled", "budget_tokens": 5}}, "thinking.budget_tokens"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2000}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "huge"}}, "output_config.effort"),
        ({"output_config": {"format": "json"}}, "output_config.format"),
        ({"tools": {}}, "tools"),
        ({"tools": ["x"]}, "tools[0]"),
        ({"tools": [FIND, {"name": "mine"}]}, "tools[1].input_schema"),
        ({"tools": [FIND, {"type": "telepathy_20260101", "name": "telepathy"}]}, "tools[1]"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
        (
            {
                "tools": [FIND, {"type": "web_search_20250305", "name": "web_search"}],
                "tool_choice": {"type": "tool", "name": "web_search"},
            },
            "tool_choice",
        ),
        ({"tools": [FIND], "tool_choice": "auto"}, "tool_choice"),
        ({"tools": [FIND], "tool_choice": {"type": "tool"}}, "tool_choice.name"),
    ],
)
def test_what_cannot_be_is_refused_by_name(more: dict[str, Any], param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        to_chat(request(**more))
    assert refused.value.param == param


@pytest.mark.slow
def test_many_changes_of_tools_are_read_one_by_one() -> None:
    """Were those that are in force copied with each, the test's time would not do by far."""
    names = [f"f{at}" for at in range(2**18)]
    removals = [{"type": "tool_removal", "tool": {"type": "tool_reference", "name": name}} for name in names]
    tools = [{"name": name, "input_schema": {}} for name in [*names, "left"]]
    chat = to_chat({"max_tokens": 9, "messages": [{"role": "system", "content": removals}], "tools": tools})
    assert [tool["function"]["name"] for tool in chat["tools"]] == ["left"]


BASH: Any = {"type": "bash_20250124", "name": "bash"}
EDITOR: Any = {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool", "max_characters": 100}
SEARCH: Any = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
TOOLSET: Any = {"type": "mcp_toolset", "mcp_server_name": "x"}


def test_client_tools_get_the_schemas_of_their_versions() -> None:
    old = {"type": "text_editor_20250124", "name": "str_replace_editor"}
    computer = {"type": "computer_20251124", "name": "computer", "display_width_px": 800, "display_height_px": 600}
    tools = chat(tools=[FIND, BASH, EDITOR, old, {"type": "memory_20250818", "name": "memory"}, computer])["tools"]
    functions = {tool["function"]["name"]: tool["function"] for tool in tools}
    assert list(functions) == [
        "find_order",
        "bash",
        "str_replace_based_edit_tool",
        "str_replace_editor",
        "memory",
        "computer",
    ]
    commands = {name: one["parameters"]["properties"].get("command", {}).get("enum") for name, one in functions.items()}
    assert commands["str_replace_editor"] == [*commands["str_replace_based_edit_tool"], "undo_edit"]
    assert "800 × 600" in functions["computer"]["description"]
    assert "zoom" in functions["computer"]["parameters"]["properties"]["action"]["enum"]


def test_what_anthropics_servers_would_run_is_left_out_with_a_note() -> None:
    dropped = DroppedTool()
    history = [
        {"role": "user", "content": "x"},
        {
            "role": "assistant",
            "content": [
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}},
                {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
                {"type": "text", "text": "found"},
            ],
        },
        {"role": "user", "content": "y"},
    ]
    body = {"model": "m", "max_tokens": 9, "messages": history, "tools": [FIND, SEARCH, TOOLSET]}
    said = to_chat(body, dropped)
    assert said["tools"] == [FOUND]
    assert said["messages"][1] == {"role": "assistant", "content": "found"}
    assert dropped.tools == ["web_search_20250305", "mcp_toolset"]
    assert dropped.items == ["server_tool_use", "web_search_tool_result"]


def test_a_definition_that_is_added_later_may_be_left_out_too() -> None:
    change = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": SEARCH}}
    later = {"role": "system", "content": [change]}
    dropped = DroppedTool()
    body = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "x"}, later], "tools": [FIND]}
    assert to_chat(body, dropped)["tools"] == [FOUND]
    assert dropped.tools == ["web_search_20250305"]


def test_what_is_counted_has_schemas_and_nothing_that_is_left_out() -> None:
    foreign = {"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}
    text = {"type": "text", "text": "found"}
    body = {"messages": [{"role": "assistant", "content": [foreign, text]}], "tools": [BASH, SEARCH, FIND]}
    counted = count_tokens_body(body)
    assert counted["messages"] == [{"role": "assistant", "content": [text]}]
    assert [tool["name"] for tool in counted["tools"]] == ["bash", "find_order"]
    assert all(tool["input_schema"]["type"] == "object" for tool in counted["tools"])
    plain = {"messages": [{"role": "user", "content": "x"}, "x"], "tools": [FIND]}
    assert count_tokens_body(plain) == plain

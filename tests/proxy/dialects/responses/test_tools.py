"""The tools of a request: as the model gets them, as the client declared them, and what cannot be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.responses.tools import (
    ToolOrigin,
    chat_tool_choice,
    declared_tools,
    is_plain,
    read_tools,
    tool_origins,
)
from proxy.errors import BadRequest

FIND: Any = {"type": "function", "name": "find_order", "parameters": {"type": "object"}, "strict": False}
PATCH: Any = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": "start: begin hunk end"},
}
AGENTS: Any = {
    "type": "namespace",
    "name": "multi_agent_v1",
    "description": "Tools for agents.",
    "tools": [
        {"type": "function", "name": "spawn", "description": "Starts one.", "parameters": {"type": "object"}},
        {"type": "function", "name": "wait", "parameters": {"type": "object"}},
        {"type": "custom", "name": "tell"},
    ],
}
CLIENT_SEARCH: Any = {"type": "tool_search", "execution": "client", "description": "Finds tools."}


def names(tools: list[dict[str, Any]]) -> list[str]:
    return [tool["function"]["name"] for tool in tools]


def test_a_namespace_becomes_functions_with_its_name_before_theirs() -> None:
    box = read_tools([FIND, AGENTS, PATCH])
    assert names(box.functions) == [
        "find_order",
        "multi_agent_v1__spawn",
        "multi_agent_v1__wait",
        "multi_agent_v1__tell",
        "apply_patch",
    ]
    assert box.origins["multi_agent_v1__tell"] == ToolOrigin("custom", "tell", "multi_agent_v1")
    # what the namespace is stands with its first tool alone
    assert box.functions[1]["function"]["description"] == "multi_agent_v1: Tools for agents.\n\nStarts one."
    assert "description" not in box.functions[2]["function"]


def test_a_grammar_is_quoted() -> None:
    function = read_tools([PATCH]).functions[0]["function"]
    assert function["description"] == (
        "Edits files.\n\nThe input must match this grammar (lark):\nstart: begin hunk end"
    )
    assert function["parameters"]["required"] == ["input"]


def test_the_outline_gives_back_what_was_declared() -> None:
    tools = [FIND, AGENTS, PATCH, {"type": "local_shell"}, CLIENT_SEARCH]
    box = read_tools(tools)
    assert declared_tools(box.outline, box.functions) == tools
    assert tool_origins(box.outline) == box.origins
    assert not is_plain(box.outline)
    assert {"type": "function", "name": "find_order"} in box.outline  # the rest is recorded with the functions
    assert is_plain(read_tools([FIND]).outline)


_descriptions = st.one_of(st.none(), st.just(""), st.text(max_size=12), st.just("n: d"))
_functions = st.builds(
    lambda name, about: {"type": "function", "name": name} | ({} if about is None else {"description": about}),
    st.sampled_from(["a", "b", "c"]),
    _descriptions,
)
_namespaces = st.builds(
    lambda name, about, tools: {"type": "namespace", "name": name, "description": about, "tools": tools},
    st.sampled_from(["n", "m"]),
    st.text(max_size=8),
    st.lists(_functions, max_size=3, unique_by=lambda tool: tool["name"]),
)


@given(st.lists(st.one_of(_functions, _namespaces), max_size=4, unique_by=lambda tool: tool["name"]))
def test_any_functions_come_back_as_they_were_declared(tools: list[dict[str, Any]]) -> None:
    box = read_tools(tools)
    assert declared_tools(box.outline, box.functions) == tools
    assert tool_origins(box.outline) == box.origins


@pytest.mark.parametrize(
    "tools",
    [
        [AGENTS, {"type": "function", "name": "multi_agent_v1__spawn"}],
        [{"type": "function", "name": "multi_agent_v1__spawn"}, AGENTS],
        [PATCH, {"type": "apply_patch"}],
        [AGENTS, AGENTS],
        [PATCH, {"type": "function", "name": "apply_patch"}],
    ],
)
def test_two_tools_of_one_name_for_the_model_are_refused(tools: list[Any]) -> None:
    with pytest.raises(BadRequest, match="rename one of them"):
        read_tools(tools)


def test_what_nobody_runs_here_is_left_out_unless_it_is_all() -> None:
    box = read_tools([FIND, {"type": "web_search"}, {"type": "image_generation"}])
    assert (names(box.functions), box.dropped) == (["find_order"], ["web_search", "image_generation"])
    assert declared_tools(box.outline, box.functions) == [FIND]
    with pytest.raises(BadRequest, match="only web_search"):
        read_tools([{"type": "web_search"}])


@pytest.mark.parametrize("where", [{"server_url": "https://mcp.example"}, {"connector_id": "connector_gmail"}])
def test_an_mcp_server_is_refused_and_hones_own_named(where: dict[str, str]) -> None:
    with pytest.raises(BadRequest, match="/mcp"):
        read_tools([FIND, {"type": "mcp", "server_label": "x", **where}])


def test_deferred_tools_wait_for_the_search_that_finds_them() -> None:
    deferred = FIND | {"defer_loading": True}
    box = read_tools([deferred, CLIENT_SEARCH])
    assert names(box.functions) == ["tool_search"]
    assert declared_tools(box.outline, box.functions) == [deferred, CLIENT_SEARCH]
    found = read_tools([deferred, CLIENT_SEARCH], [("input[2].tools[0]", deferred), ("input[4].tools[0]", deferred)])
    assert names(found.functions) == ["tool_search", "find_order"]
    assert "defer_loading" not in found.functions[1]["function"]
    assert declared_tools(found.loaded, found.functions) == [FIND]


def test_deferred_tools_are_offered_where_nobody_searches() -> None:
    box = read_tools([FIND | {"defer_loading": True}, {"type": "tool_search"}])
    assert (names(box.functions), box.dropped) == (["find_order"], ["tool_search"])
    assert "defer_loading" not in box.functions[0]["function"]


def test_a_namespace_that_is_found_again_grows() -> None:
    inside = AGENTS["tools"]
    one, two = (AGENTS | {"tools": tools} for tools in (inside[:1], inside))
    box = read_tools([CLIENT_SEARCH], [("input[1].tools[0]", one), ("input[3].tools[0]", two)])
    assert names(box.functions)[1:] == ["multi_agent_v1__spawn", "multi_agent_v1__wait", "multi_agent_v1__tell"]
    assert set(tool_origins(box.loaded)) == set(names(box.functions)[1:])


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        ({"type": "function", "name": "spawn", "namespace": "multi_agent_v1"}, "multi_agent_v1__spawn"),
        ({"type": "custom", "name": "apply_patch"}, "apply_patch"),
        ({"type": "local_shell"}, "local_shell"),
    ],
)
def test_a_choice_names_the_clients_tool(choice: dict[str, str], name: str) -> None:
    box = read_tools([AGENTS, PATCH, {"type": "local_shell"}])
    assert chat_tool_choice(choice, box) == {"type": "function", "function": {"name": name}}


@pytest.mark.parametrize(
    "choice",
    [
        {"type": "web_search_preview"},
        {"type": "mcp", "server_label": "x"},
        {"type": "function", "name": "spawn"},
        {"type": "shell"},
        {"type": ["function"]},
        {"type": "function", "name": ["find_order"]},
    ],
)
def test_a_choice_that_cannot_be_is_refused(choice: dict[str, Any]) -> None:
    with pytest.raises(BadRequest) as refused:
        chat_tool_choice(choice, read_tools([FIND, AGENTS, {"type": "web_search_preview"}]))
    assert refused.value.param == "tool_choice"


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "namespace", "name": "x"}, "tools[0]"),
        ({"type": "namespace", "name": "x", "tools": [{"type": "web_search"}]}, "tools[0].tools[0]"),
        ({"type": "namespace", "name": "x", "tools": [{"type": "function"}]}, "tools[0].tools[0].name"),
        ({"type": "namespace", "name": "x", "tools": ["x"]}, "tools[0].tools[0]"),
        ({"type": "custom", "name": "x", "format": {"type": "grammar"}}, "tools[0].format"),
        ({"type": "custom", "name": "x", "format": "lark"}, "tools[0].format"),
        ({"type": "custom", "name": "x", "description": 3}, "tools[0].description"),
    ],
)
def test_a_tool_that_cannot_be_read_is_named(tool: Any, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_tools([tool])
    assert refused.value.param == param

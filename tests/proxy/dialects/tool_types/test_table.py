"""The table of tool types: every type that the official clients know has its fate in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from anthropic.types.beta import BetaToolUnionParam
from openai.types.chat import ChatCompletionCustomToolParam, ChatCompletionFunctionToolParam
from openai.types.responses import ResponseInputItemParam, ToolParam

from proxy.dialects.responses import tool_items
from proxy.dialects.tool_types import schemas, table


def types_of(union: Any) -> set[str]:
    """The values of `type` in a union of TypedDicts."""
    return {value for one in get_args(union) for value in literals(get_type_hints(one).get("type"))}


def literals(hint: Any) -> set[str]:
    if isinstance(hint, str):
        return {hint}
    return {value for one in get_args(hint) for value in literals(one)}


@pytest.mark.parametrize(
    ("form", "union"), [("responses", ToolParam), ("messages", BetaToolUnionParam)], ids=["openai", "anthropic"]
)
def test_every_tool_type_of_the_official_clients_has_a_fate(form: table.Format, union: Any) -> None:
    types = types_of(union)
    assert len(types) >= 14
    assert {type_ for type_ in types if table.find_rule(form, {"type": type_}) is None} == set()


def test_chats_tool_types_have_a_fate() -> None:
    for one in (ChatCompletionFunctionToolParam, ChatCompletionCustomToolParam):
        [type_] = literals(get_type_hints(one)["type"])
        assert table.find_rule("chat", {"type": type_}) is not None


def test_every_item_type_of_the_official_client_is_known() -> None:
    known = {"message", "reasoning", "item_reference", "additional_tools", "tool_search_output"}
    known |= {f"{call}_call_output" for call in ("function", "local_shell", "shell", "apply_patch")}
    known |= {"custom_tool_call_output", *table.FOREIGN["responses"]}
    types = {type_ for type_ in types_of(ResponseInputItemParam) if not tool_items.is_call(type_)}
    assert types - known == {"compaction", "compaction_trigger"}  # what they stand for cannot be read here


def test_every_translated_type_without_a_schema_has_a_fixed_one() -> None:
    assert {"bash", "text_editor", "memory", "computer"} == set(schemas.ANTHROPIC)
    translated = {name for name, rule in table.TABLE["messages"].items() if rule.treatment == "translated"}
    assert translated == set(schemas.ANTHROPIC)
    for type_ in types_of(BetaToolUnionParam):
        kind, version = table.split_version(type_)
        assert kind not in schemas.ANTHROPIC or version in schemas.ANTHROPIC[kind]


@pytest.mark.parametrize(
    ("tool", "treatment"),
    [
        ({"type": "shell"}, "translated"),
        ({"type": "shell", "environment": {"type": "local"}}, "translated"),
        ({"type": "shell", "environment": {"type": "container_auto"}}, "dropped"),
        ({"type": "tool_search", "execution": "client"}, "translated"),
        ({"type": "tool_search"}, "dropped"),
        ({"type": "web_search_2025_08_26"}, "dropped"),
        ({"type": "web_search_preview_2025_03_11"}, "dropped"),
        ({"type": "mcp", "server_label": "x", "server_url": "https://mcp.example"}, "refused"),
    ],
)
def test_who_runs_a_tool_decides(tool: dict[str, Any], treatment: str) -> None:
    found = table.find_rule("responses", tool)
    assert found is not None
    assert found.treatment == treatment


@pytest.mark.parametrize("tool", [None, "x", {}, {"type": None}, {"type": ["x"]}, {"type": "telepathy"}])
def test_what_is_no_known_tool_has_no_rule(tool: object) -> None:
    assert table.find_rule("responses", tool) is None
    assert "tools[3]" in str(table.tool_refusal("responses", tool, "tools[3]"))


def test_a_newer_version_is_told_as_the_newest_that_is_known() -> None:
    newer = schemas.anthropic_function("text_editor", "20991231", {"name": "str_replace_based_edit_tool"})
    assert newer == schemas.anthropic_function("text_editor", "20250728", {"name": "str_replace_based_edit_tool"})
    assert "insert_text" in newer["function"]["parameters"]["properties"]


def test_the_documentation_has_the_table() -> None:
    rows = [
        f"| {form} | `{kind}` | {rule.treatment} | {rule.how} |"
        for form, rules in table.TABLE.items()
        for kind, rule in rules.items()
    ]
    page = (Path(__file__).parents[4] / "docs" / "tools.md").read_text()
    assert [line for line in page.splitlines() if line.startswith("| ")][1:] == rows

"""What becomes of each type of tool: the one table, for Chat, Responses and Messages.

Owns: the decision, and the words of a refusal. Refuses: carrying it out (each format does). A type is
- kept: a function as the engine knows it;
- translated: a function for the model, and the client's own type in everything that the client gets;
- left out: its vendor's servers would run it, and nobody does here. The call says so, and goes on without;
- refused.
A type that is not in the table is refused by Responses and Messages; Chat passes it to the engine, which refuses it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from proxy.errors import BadRequest

Body = Mapping[str, Any]
Format = Literal["chat", "responses", "messages"]

_VERSION: Final = re.compile(r"_(\d{8}|\d{4}_\d{2}_\d{2})$")  # that ends a type's name
_MCP: Final = (
    "Hone calls no server that a request names: put the server into hone.toml as [mcp.NAME], and have the agent "
    "connect to Hone's own /mcp"
)


@dataclass(frozen=True, slots=True)
class ToolTypeRule:
    """What becomes of a type, and how or why, in words that can end a sentence."""

    fate: Literal["kept", "translated", "left out", "refused"]
    how: str


def _kept() -> ToolTypeRule:
    return ToolTypeRule("kept", "a function")


def _translated(how: str) -> ToolTypeRule:
    return ToolTypeRule("translated", how)


def _left_out(who: str) -> ToolTypeRule:
    return ToolTypeRule("left out", f"{who} would run it, and nobody does here")


_OPENAI: Final = _left_out("OpenAI's servers")
_ANTHROPIC: Final = _left_out("Anthropic's servers")

TABLE: Final[Mapping[Format, Mapping[str, ToolTypeRule]]] = {
    "chat": {
        "function": _kept(),
        "custom": _translated("a function of one text, `input`"),
        **dict.fromkeys(
            ("web_search", "web_search_preview", "file_search", "code_interpreter", "image_generation"), _OPENAI
        ),
    },
    "responses": {
        "function": _kept(),
        "namespace": _translated("its functions and custom tools, each named `<namespace>__<name>`"),
        "custom": _translated("a function of one text, `input`; custom_tool_call"),
        "local_shell": _translated("a function with a fixed schema; local_shell_call"),
        "shell": _translated("a function with a fixed schema; shell_call"),
        "hosted shell": _OPENAI,
        "apply_patch": _translated("a function with a fixed schema; apply_patch_call"),
        "tool_search": _translated("a function with the client's schema; what it finds is added to the tools"),
        "hosted tool_search": _OPENAI,
        **dict.fromkeys(
            (
                "web_search",
                "web_search_preview",
                "file_search",
                "code_interpreter",
                "image_generation",
                "programmatic_tool_calling",
            ),
            _OPENAI,
        ),
        **dict.fromkeys(
            ("computer", "computer_use", "computer_use_preview"), ToolTypeRule("left out", "it is not served")
        ),
        "mcp": ToolTypeRule("refused", _MCP),
    },
    "messages": {
        "custom": _kept(),
        **dict.fromkeys(
            ("bash", "text_editor", "memory", "computer"), _translated("a function with its version's fixed schema")
        ),
        **dict.fromkeys(
            (
                "web_search",
                "web_fetch",
                "code_execution",
                "advisor",
                "tool_search_tool_bm25",
                "tool_search_tool_regex",
                "mcp_toolset",
            ),
            _ANTHROPIC,
        ),
        **dict.fromkeys(("computer_toolset", "browser_toolset"), ToolTypeRule("left out", "toolsets are not served")),
    },
}

# What conversations tell of tools that others' servers ran: nothing of it was sampled here, and no template shows it.
FOREIGN: Final[Mapping[Format, frozenset[str]]] = {
    "responses": frozenset(
        {
            "web_search_call",
            "file_search_call",
            "code_interpreter_call",
            "image_generation_call",
            "computer_call",
            "computer_call_output",
            "mcp_call",
            "mcp_list_tools",
            "mcp_approval_request",
            "mcp_approval_response",
            "program",
            "program_output",
        }
    ),
    "messages": frozenset(
        {
            "server_tool_use",
            "web_search_tool_result",
            "web_fetch_tool_result",
            "code_execution_tool_result",
            "bash_code_execution_tool_result",
            "text_editor_code_execution_tool_result",
            "tool_search_tool_result",
            "advisor_tool_result",
            "mcp_tool_use",
            "mcp_tool_result",
            "mcp_tool_listing",
        }
    ),
}


@dataclass(slots=True)
class DroppedTool:
    """What of a request the model is not shown, by its types. It is filled as the request is read."""

    tools: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)


def find_rule(form: Format, tool: object) -> ToolTypeRule | None:
    """What becomes of a declared tool; None: its type is not known."""
    return TABLE[form].get(measure_kind(tool))


def measure_kind(tool: object) -> str:
    """The table's name of a tool's type: without a version, and told apart where OpenAI's servers would run it."""
    given = tool.get("type") if isinstance(tool, dict) else None
    if not isinstance(tool, dict) or not isinstance(given, str):
        return ""
    kind, _ = split_version(given)
    environment = tool.get("environment")
    if kind == "shell" and isinstance(environment, dict) and environment.get("type") != "local":
        return "hosted shell"
    if kind == "tool_search" and tool.get("execution") != "client":
        return "hosted tool_search"
    return kind


def split_version(given: str) -> tuple[str, str]:
    """A type's name, and the version that ends it (empty: none)."""
    found = _VERSION.search(given)
    return (given[: found.start()], found[1]) if found else (given, "")


def require_some(kept: Sequence[object], left_out: Sequence[str]) -> None:
    """Raise BadRequest where of all tools that were declared none is left."""
    if left_out and not kept:
        raise BadRequest(
            f"the field 'tools' has {', '.join(left_out)} alone, which nobody runs here: declare a tool that the agent "
            "runs itself, or leave the field out.",
            param="tools",
            code="unsupported_tool",
        )


def demanded_refusal(form: Format, kind: object) -> BadRequest | None:
    """What a client is told that demands, in tool_choice, a type of tool that nobody runs here. None: it did not."""
    fate = TABLE[form].get(split_version(kind)[0]) if isinstance(kind, str) else None
    if fate is None or fate.fate not in ("left out", "refused"):
        return None
    return BadRequest(
        f"the field 'tool_choice' demands {kind!r}: {fate.how}. Choose 'auto', or a tool that the agent runs itself.",
        param="tool_choice",
        code="unsupported_tool",
    )


def tool_refusal(form: Format, tool: object, where: str) -> BadRequest:
    """What a client is told whose tool is refused, or is of a type that is not known."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    fate = find_rule(form, tool)
    known = sorted(name for name, one in TABLE[form].items() if one.fate in ("kept", "translated"))
    why = fate.how if fate is not None else f"Hone serves {', '.join(known)}"
    return BadRequest(f"{where} is a tool of the type {kind!r:.60}: {why}.", param=where, code="unsupported_parameter")

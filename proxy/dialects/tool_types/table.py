"""How each type of tool is treated: the one table, for Chat, Responses and Messages.

Owns: the decision, and the text of a refusal. Refuses: carrying it out (each format does). A type is

- kept: a function as the engine knows it;
- translated: a function for the model, and the client's own type in everything that the client gets;
- dropped: its vendor's servers would run it, and Hone does not. The call is served without it, and reports it;
- refused.

A type that is missing in the table is refused by Responses and Messages; Chat passes it to the engine, which refuses
it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from proxy.errors import BadRequest

Body = Mapping[str, Any]
Format = Literal["chat", "responses", "messages"]

_VERSION: Final = re.compile(r"_(\d{8}|\d{4}_\d{2}_\d{2})$")  # the end of a type's name
_MCP: Final = (
    "Hone does not call servers that a request names: add the server to hone.toml as [mcp.NAME], and connect the "
    "agent to Hone's own /mcp"
)


@dataclass(frozen=True, slots=True)
class ToolTypeRule:
    """How a type is treated, and how or why, as the end of a sentence."""

    treatment: Literal["kept", "translated", "dropped", "refused"]
    how: str


def _kept() -> ToolTypeRule:
    return ToolTypeRule("kept", "a function")


def _translated(how: str) -> ToolTypeRule:
    return ToolTypeRule("translated", how)


def _dropped(who: str) -> ToolTypeRule:
    return ToolTypeRule("dropped", f"{who} would run it, and Hone does not")


_OPENAI: Final = _dropped("OpenAI's servers")
_ANTHROPIC: Final = _dropped("Anthropic's servers")

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
        "tool_search": _translated("a function with the client's schema; the tools that it finds are added"),
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
            ("computer", "computer_use", "computer_use_preview"), ToolTypeRule("dropped", "it is not served")
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
        **dict.fromkeys(("computer_toolset", "browser_toolset"), ToolTypeRule("dropped", "toolsets are not served")),
    },
}

# Items of tools that a vendor's servers ran: none of their text was sampled here, and no template shows it.
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
    """The parts of a request that the model does not get, by type. Filled while the request is read."""

    tools: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)


def find_rule(form: Format, tool: object) -> ToolTypeRule | None:
    """Return the rule of a declared tool; None: its type is unknown."""
    return TABLE[form].get(tool_kind(tool))


def tool_kind(tool: object) -> str:
    """Return the table's name of a tool's type: without a version, and marked if OpenAI's servers would run it."""
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
    """Return a type's name, and the version at its end (empty: none)."""
    match = _VERSION.search(given)
    return (given[: match.start()], match[1]) if match else (given, "")


def require_some(kept: Sequence[object], dropped: Sequence[str]) -> None:
    """Raise BadRequest if every declared tool was dropped."""
    if dropped and not kept:
        raise BadRequest(
            f"the field 'tools' has only {', '.join(dropped)}, which Hone does not run: declare a tool that the agent "
            "runs itself, or remove the field.",
            param="tools",
            code="unsupported_tool",
        )


def demanded_refusal(form: Format, kind: object) -> BadRequest | None:
    """Return the error for a tool_choice that demands a type of tool that Hone does not run; None if it demands
    none.
    """
    rule = TABLE[form].get(split_version(kind)[0]) if isinstance(kind, str) else None
    if rule is None or rule.treatment not in ("dropped", "refused"):
        return None
    return BadRequest(
        f"the field 'tool_choice' demands {kind!r}: {rule.how}. Choose 'auto', or a tool that the agent runs itself.",
        param="tool_choice",
        code="unsupported_tool",
    )


def tool_refusal(form: Format, tool: object, where: str) -> BadRequest:
    """Return the error for a tool of a refused or unknown type."""
    kind = tool.get("type") if isinstance(tool, dict) else None
    rule = find_rule(form, tool)
    known = sorted(name for name, one in TABLE[form].items() if one.treatment in ("kept", "translated"))
    why = rule.how if rule is not None else f"Hone serves {', '.join(known)}"
    return BadRequest(f"{where} is a tool of the type {kind!r:.60}: {why}.", param=where, code="unsupported_parameter")

"""What of a request has the engine's grammar pick tokens, and offering the same without it.

Owns: tool choice, strict tools and formats of answers, in chat's fields: which of them force, and the body that does
not. Refuses: whether a request is offered plainly (`proxy.strict_tools`, `proxy.forced_tools`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from proxy.dialects.base import Rules

Body = dict[str, Any]


def forced(fields: Body, rules: Rules) -> tuple[str, ...]:
    """What of tools and formats lets the engine's grammar pick tokens, where plain sampling would not."""
    form = fields.get("response_format")
    bends = [name for name in _of_tools(fields) if not _is_plain(name, rules)]
    return (*bends, "response_format") if form and form.get("type") != "text" else tuple(bends)


def offered_plainly(fields: Body, rules: Rules) -> tuple[str, ...]:
    """What of the tools would force, and is offered without."""
    return tuple(name for name in _of_tools(fields) if _is_plain(name, rules))


def plain(fields: Body, rules: Rules) -> Body:
    """What stands in the body in place of forced and strict tools, as far as these are offered plainly."""
    instead: Body = {}
    if rules.strict_tools == "plain" and fields.get("tools"):
        instead["tools"] = [_unforced(tool) for tool in fields["tools"]]
    if rules.forced_tools == "plain" and _forces(fields):
        instead["tool_choice"] = "auto"
    return instead


def _of_tools(fields: Body) -> Iterator[str]:
    # a forced choice hides what is strict, unless it is taken away: then the tools' own strictness would force
    if _forces(fields):
        yield "tool_choice"
    if fields.get("tool_choice") != "none" and any(map(_is_strict, fields.get("tools") or ())):
        yield "strict_tools"


def _forces(fields: Body) -> bool:
    choice = fields.get("tool_choice")
    return isinstance(choice, dict) or choice == "required"


def _is_plain(name: str, rules: Rules) -> bool:
    return (rules.forced_tools if name == "tool_choice" else rules.strict_tools) == "plain"


def _is_strict(tool: object) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and function.get("strict") is True


def _unforced(tool: Body) -> Body:
    if not _is_strict(tool):
        return tool
    return {**tool, "function": {name: value for name, value in tool["function"].items() if name != "strict"}}

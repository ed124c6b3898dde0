"""What of a request has the engine's grammar pick tokens, and offering the same without it.

Owns: tool choice, strict tools and formats of answers, in chat's fields: which of them force, and the body that does
not. Refuses: whether a request is offered plainly (`proxy.strict_tools`, `proxy.forced_tools`).

A request as it was read: what the client asked, and where the engine is asked something else on purpose.

Owns: the values that stand in for the client's (`override`), what is offered without a grammar, and the sampling that
is in force with both. Refuses: whether they should (the settings and `proxy.serving`), and any format's body.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from proxy.dialects import engine_fields
from proxy.dialects.base import DialectRules
from recorder.messages.calls import RecordedRequest

Body = dict[str, Any]


def forced_features(fields: Body, rules: DialectRules) -> tuple[str, ...]:
    """What of tools and formats lets the engine's grammar pick tokens, where plain sampling would not."""
    form = fields.get("response_format")
    bends = [name for name in _of_tools(fields) if not _is_plain(name, rules)]
    return (*bends, "response_format") if form and form.get("type") != "text" else tuple(bends)


def relaxed_features(fields: Body, rules: DialectRules) -> tuple[str, ...]:
    """What of the tools would force, and is offered without."""
    return tuple(name for name in _of_tools(fields) if _is_plain(name, rules))


def relax_request(fields: Body, rules: DialectRules) -> Body:
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


def _is_plain(name: str, rules: DialectRules) -> bool:
    return (rules.forced_tools if name == "tool_choice" else rules.strict_tools) == "plain"


def _is_strict(tool: object) -> bool:
    function = tool.get("function") if isinstance(tool, dict) else None
    return isinstance(function, dict) and function.get("strict") is True


def _unforced(tool: Body) -> Body:
    if not _is_strict(tool):
        return tool
    return {**tool, "function": {name: value for name, value in tool["function"].items() if name != "strict"}}


class ParsedRequest:
    """A request whose fields are the engine's own. What it answers is each dialect's."""

    __slots__ = ("_asked", "_rules", "replaced", "request")

    def __init__(self, request: RecordedRequest, asked: Body, rules: DialectRules) -> None:
        self.request = request
        self.replaced: Mapping[str, float] = {}
        self._asked = asked
        self._rules = rules

    @property
    def plainly(self) -> tuple[str, ...]:
        """What the client would have the engine hold the model to, and the engine is not told."""
        return relaxed_features(self._asked, self._rules)

    def override(self, values: Mapping[str, float]) -> None:
        """Let the engine sample with these values in place of the client's, which stay in the request's fields."""
        asked = self._asked if self._rules.defaults == "engine" else {**engine_fields.NEUTRAL, **self._said()}
        self.replaced = {name: value for name, value in values.items() if asked.get(name) != value}
        self._in_force()

    def as_asked(self) -> None:
        """Offer nothing plainly and replace nothing: whoever answers now is not learned from."""
        self._rules = replace(self._rules, strict_tools="engine", forced_tools="engine")
        self.replaced = {}
        self._in_force()

    def _said(self) -> Body:
        return {name: value for name, value in self._asked.items() if value is not None}

    def _in_force(self) -> None:
        fields = {**self._asked, **self.replaced}
        sampling = engine_fields.effective_sampling(fields, self._rules, forced_features(fields, self._rules))
        self.request = replace(self.request, sampling=sampling)

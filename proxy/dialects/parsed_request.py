"""A parsed request: the client's fields, the features that force tokens, and values that Hone replaces.

Owns: which tool choice, strict tools and answer formats force tokens, the body without them, replaced sampling values
(`override`), and the effective sampling. Refuses: whether features are relaxed or values replaced (settings and
`proxy.serving`), and any format's body.
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
    """Return the features of tools and answer formats for which the engine's grammar forces tokens."""
    form = fields.get("response_format")
    bends = [name for name in _of_tools(fields) if not _is_plain(name, rules)] if _uses_tools(fields) else ()
    return (*bends, "response_format") if form and form.get("type") != "text" else tuple(bends)


def relaxed_features(fields: Body, rules: DialectRules) -> tuple[str, ...]:
    """Return the features of tools that would force tokens and that the settings relax."""
    return tuple(name for name in _of_tools(fields) if _is_plain(name, rules))


def relax_request(fields: Body, rules: DialectRules) -> Body:
    """Return the fields that replace forced and strict tools, as far as these are relaxed."""
    changes: Body = {}
    if rules.strict_tools == "plain" and fields.get("tools"):
        changes["tools"] = [_unforced(tool) for tool in fields["tools"]]
    if rules.forced_tools == "plain" and _forces(fields):
        changes["tool_choice"] = "auto"
    return changes


def _uses_tools(fields: Body) -> bool:
    return bool(fields.get("tools")) or fields.get("tool_choice") is not None


def _of_tools(fields: Body) -> Iterator[str]:
    # without a forced choice, strict tools would force tokens themselves
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
    """A request in the engine's own fields. Its answer is each dialect's own."""

    __slots__ = ("_request_fields", "_rules", "replaced", "request")

    def __init__(self, request: RecordedRequest, fields: Body, rules: DialectRules) -> None:
        self.request = request
        self.replaced: Mapping[str, float] = {}
        self._request_fields = fields
        self._rules = rules

    @property
    def unenforced(self) -> tuple[str, ...]:
        """The features that the client wants enforced, and that the engine does not enforce."""
        fields = self._request_fields
        return relaxed_features(fields, self._rules) if _uses_tools(fields) else ()

    def override(self, values: Mapping[str, float]) -> None:
        """Replace sampling values for the engine; the client's stay in the request's fields."""
        current = (
            self._request_fields
            if self._rules.defaults == "engine"
            else {**engine_fields.NEUTRAL, **self._set_fields()}
        )
        self.replaced = {name: value for name, value in values.items() if current.get(name) != value}
        self._update_sampling()

    def undo_changes(self) -> None:
        """Restore the client's features and values: the answer to this request is not trained on."""
        self._rules = replace(self._rules, strict_tools="engine", forced_tools="engine")
        self.replaced = {}
        self._update_sampling()

    def _set_fields(self) -> Body:
        return {name: value for name, value in self._request_fields.items() if value is not None}

    def _update_sampling(self) -> None:
        fields = {**self._request_fields, **self.replaced}
        sampling = engine_fields.effective_sampling(fields, self._rules, forced_features(fields, self._rules))
        self.request = replace(self.request, sampling=sampling)

"""Free-form tools, with one text as input: functions with one text argument for the model, `custom` for clients of
chat.

Owns: such a tool as a function, its text ⇄ a function's arguments, and chat's `custom` in tools, tool_choice and tool
calls, whole and streamed. A grammar is quoted to the model and not forced: forced tokens cannot be trained on. Refuses:
the place of the text in other formats.

A call is returned as `custom` only if its text reproduces exactly the sampled arguments; others are returned as
function calls. So a turn that a client sends back always equals the recorded one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from proxy.dialects.engine_fields import is_writable
from proxy.dialects.tool_types import table
from proxy.errors import BadRequest
from recorder.base.json_limits import parse_strict_json_text

Body = dict[str, Any]

PARAMETERS: Final[Body] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as free text."}},
    "required": ["input"],
    "additionalProperties": False,
}


def custom_to_function(tool: Mapping[str, Any], name: str, where: str) -> Body:
    """Return a free-form tool as a chat function. Raises BadRequest for an invalid description or format."""
    description = tool.get("description")
    if description is not None and not isinstance(description, str):
        raise BadRequest(f"{where}.description must be a text.", param=f"{where}.description", code="invalid_type")
    texts = [text for text in (description, _grammar(tool.get("format"), where)) if text]
    function = {"name": name, **({"description": "\n\n".join(texts)} if texts else {}), "parameters": PARAMETERS}
    return {"type": "function", "function": function}


def input_to_arguments(text: str) -> str:
    """Return the arguments for this input."""
    return json.dumps({"input": text})


def arguments_to_input(arguments: Mapping[str, Any]) -> str | None:
    """Return the input of these arguments; None if they are not exactly one input."""
    text = arguments.get("input")
    return text if isinstance(text, str) and len(arguments) == 1 else None


def parse_arguments(arguments: str) -> Body | None:
    """Return a model's arguments as an object; None if they are not an object that can be sent."""
    try:
        value = parse_strict_json_text(arguments)
        same = orjson.loads(orjson.dumps(value)) == value  # a number may be too large for clients
    except (ValueError, TypeError, RecursionError):
        return None
    return value if isinstance(value, dict) and same and is_writable(value, arguments.encode()) else None


def _grammar(form: object, where: str) -> str | None:
    """Return the text that quotes a grammar. Responses puts its fields next to the type, Chat into an object of its
    own.
    """
    if form is None or (isinstance(form, dict) and form.get("type") == "text"):
        return None
    grammar = form.get("grammar", form) if isinstance(form, dict) else None
    definition = grammar.get("definition") if isinstance(grammar, dict) else None
    if not isinstance(grammar, dict) or not isinstance(definition, str):
        raise BadRequest(
            f"{where}.format must be a text or a grammar with its 'definition'.",
            param=f"{where}.format",
            code="invalid_type",
        )
    return f"The input must match this grammar ({grammar.get('syntax') or 'lark'}):\n{definition}"


@dataclass(frozen=True, slots=True)
class TranslatedRequest:
    """A request's fields for the engine, and its tools that are not functions."""

    fields: Body
    custom: frozenset[str] = frozenset()  # names of free-form tools
    dropped: tuple[str, ...] = ()


def translate_request(fields: Body) -> TranslatedRequest:
    """Return a request in the engine's form. Raises BadRequest."""
    messages = fields["messages"]
    translated = [_message(message, f"messages[{at}]") for at, message in enumerate(messages)]
    changed = {} if all(a is b for a, b in zip(messages, translated, strict=True)) else {"messages": translated}
    tools = fields.get("tools")
    if not tools or all(table.tool_kind(tool) == "function" for tool in tools):
        return TranslatedRequest({**fields, **changed} if changed else fields)
    functions, names, dropped = _tools(tools)
    table.require_some(functions, dropped)
    changed |= {"tools": functions, **_choice(fields.get("tool_choice"))}
    return TranslatedRequest({**fields, **changed}, frozenset(names), tuple(dropped))


def _tools(tools: Sequence[Any]) -> tuple[list[Body], list[str], list[str]]:
    """The functions, the names of the free-form ones, and the dropped types."""
    functions: list[Body] = []
    names: list[str] = []
    dropped: list[str] = []
    for at, tool in enumerate(tools):
        rule = table.find_rule("chat", tool)
        if rule is not None and rule.treatment == "dropped":
            dropped.append(str(tool["type"]))
        elif rule is not None and rule.treatment == "translated":
            name, function = _function(tool, f"tools[{at}]")
            names.append(name)
            functions.append(function)
        else:
            functions.append(tool)
    _require_apart(functions, names)
    return functions, names, dropped


def _function(tool: Body, where: str) -> tuple[str, Body]:
    declared = tool.get("custom")
    name = declared.get("name") if isinstance(declared, dict) else None
    if not isinstance(declared, dict) or not isinstance(name, str):
        raise BadRequest(
            f"{where}.custom must be an object with a 'name'.", param=f"{where}.custom", code="invalid_type"
        )
    return name, custom_to_function(declared, name, f"{where}.custom")


def _require_apart(functions: Sequence[Body], names: Sequence[str]) -> None:
    all_names = [
        (tool.get("function") or {}).get("name") for tool in functions if isinstance(tool.get("function"), dict)
    ]
    for name in names:
        if all_names.count(name) > 1:
            raise BadRequest(f"two tools are named {name!r:.80}: give each a name of its own.", param="tools")


def _choice(choice: object) -> Body:
    kind = choice.get("type") if isinstance(choice, dict) else None
    if isinstance(choice, dict) and kind == "custom" and isinstance(choice.get("custom"), dict):
        return {"tool_choice": {"type": "function", "function": {"name": choice["custom"].get("name")}}}
    if error := table.demanded_refusal("chat", kind):
        raise error
    return {}


# --- history


def _message(message: Body, where: str) -> Body:
    calls = message.get("tool_calls")
    if not calls or not any(call.get("type") == "custom" for call in calls):
        return message
    return {**message, "tool_calls": [_call(call, f"{where}.tool_calls[{at}]") for at, call in enumerate(calls)]}


def _call(call: Body, where: str) -> Body:
    if call.get("type") != "custom":
        return call
    custom = call.get("custom")
    if (
        not isinstance(custom, dict)
        or not isinstance(custom.get("name"), str)
        or not isinstance(custom.get("input"), str)
    ):
        raise BadRequest(
            f"{where}.custom must be an object with a 'name' and an 'input'.",
            param=f"{where}.custom",
            code="invalid_type",
        )
    rest = {name: value for name, value in call.items() if name not in ("custom", "type")}
    function = {"name": custom["name"], "arguments": input_to_arguments(custom["input"])}
    return {**rest, "type": "function", "function": function}


# --- answers


@dataclass(slots=True)
class ToolCallBuffer:
    """Calls of free-form tools. In a stream they are buffered: only a complete one shows whether it can be sent as
    `custom`.
    """

    names: frozenset[str]
    _calls: dict[tuple[int, int], Body] = field(default_factory=dict)  # by choice and index, their arguments empty
    _arguments: dict[tuple[int, int], list[str]] = field(default_factory=dict)  # of each, as received

    def client_form(self, call: Body) -> Body:
        """Return the client's form of a complete call."""
        function = call["function"]
        arguments = parse_arguments(function["arguments"]) if function["name"] in self.names else None
        text = arguments_to_input(arguments) if arguments is not None else None
        if text is None:
            return call
        rest = {name: value for name, value in call.items() if name not in ("function", "type")}
        return {**rest, "type": "custom", "custom": {"name": function["name"], "input": text}}

    def pass_on(self, choice: int, delta: Body, finished: bool) -> None:
        """Buffer the parts of such calls in a delta, and add complete calls once the choice is `finished`."""
        parts = delta.get("tool_calls") or ()
        parts_to_send = [part for at, part in enumerate(parts) if not self._hold(choice, part, at)]
        if finished:
            parts_to_send += [self.client_form(self._whole(key)) for key in sorted(self._calls) if key[0] == choice]
        if parts_to_send:
            delta["tool_calls"] = parts_to_send
        elif parts:
            del delta["tool_calls"]

    def _hold(self, choice: int, part: Body, at: int) -> bool:
        key, function = (choice, part.get("index", at)), part.get("function") or {}
        call = self._calls.get(key)
        if call is None and function.get("name") not in self.names:
            return False
        if call is None:
            begun = {"id": part.get("id"), "index": key[1], "type": "function"}
            self._calls[key] = begun | {"function": {"name": function["name"], "arguments": ""}}
        self._arguments.setdefault(key, []).append(function.get("arguments") or "")
        return True

    def _whole(self, key: tuple[int, int]) -> Body:
        call = self._calls.pop(key)
        call["function"]["arguments"] = "".join(self._arguments.pop(key))
        return call

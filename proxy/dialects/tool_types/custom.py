"""Free-form tools: what a model writes for them is one text. For the model they are functions of one text.

Owns: such a tool as a function, and its text ⇄ a function's arguments. A grammar is quoted to the model and not forced:
forced tokens cannot be trained on. Refuses: where the text stands in a format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import orjson

from proxy.dialects.depth import can_be_written
from proxy.errors import BadRequest

Body = dict[str, Any]

PARAMETERS: Final[Body] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as free text."}},
    "required": ["input"],
    "additionalProperties": False,
}


def function_of(tool: Mapping[str, Any], name: str, where: str) -> Body:
    """A free-form tool as a chat function. Raises BadRequest where its description or format cannot be read."""
    told = tool.get("description")
    if told is not None and not isinstance(told, str):
        raise BadRequest(f"{where}.description must be a text.", param=f"{where}.description", code="invalid_type")
    said = [text for text in (told, _grammar(tool.get("format"), where)) if text]
    function = {"name": name, **({"description": "\n\n".join(said)} if said else {}), "parameters": PARAMETERS}
    return {"type": "function", "function": function}


def arguments_of(text: str) -> str:
    """The arguments that mean this input."""
    return json.dumps({"input": text})


def input_of(arguments: Mapping[str, Any]) -> str | None:
    """The input that these arguments mean; None where they mean something else, which no input could bring back."""
    text = arguments.get("input")
    return text if isinstance(text, str) and len(arguments) == 1 else None


def parsed(arguments: str) -> Body | None:
    """A model's arguments as the object that they spell; None where it is none, or none that could be sent."""
    try:
        value = json.loads(arguments, parse_constant=_no_json)
        same = orjson.loads(orjson.dumps(value)) == value  # a number may be too large for any client
    except (ValueError, TypeError, RecursionError):
        return None
    return value if isinstance(value, dict) and same and can_be_written(value, arguments.encode()) else None


def _no_json(constant: str) -> object:
    raise ValueError(f"{constant} is not JSON")


def _grammar(form: object, where: str) -> str | None:
    """The words that quote a grammar: Responses gives its fields beside the type, Chat in an object of its own."""
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

"""Arguments that a JSON schema takes: what is known by name, and the least of everything else that it requires.

Owns: required properties, enums, defaults, unions and references. Refuses: checking; an agent checks its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Schema = Mapping[str, Any]

WORDS = "Look it up"
_LEAST: dict[str, Any] = {"string": WORDS, "boolean": False, "array": [], "null": None}


def arguments(schema: Schema, known: Mapping[str, Any]) -> dict[str, Any]:
    """An object after `schema`: `known` where it has a property of that name, else the least that it requires."""
    found: dict[str, Any] = _fill(schema, known, schema)
    return found


def resolved(schema: Schema, root: Schema) -> Schema:
    """A schema behind its `$ref`, of its first branch that is not null."""
    while True:
        if "$ref" in schema:
            schema = _at(root, schema["$ref"])
        elif branches := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
            schema = next((one for one in branches if one.get("type") != "null"), branches[0])
        else:
            return schema


def kind(schema: Schema) -> str:
    """The type that a value takes, the first where there are several."""
    said = schema.get("type") or ("object" if "properties" in schema else "string")
    return str(said if isinstance(said, str) else next(one for one in said if one != "null"))


def _fill(schema: Schema, known: Mapping[str, Any], root: Schema) -> Any:
    schema = resolved(schema, root)
    for fixed in ("const", "default"):
        if schema.get(fixed) is not None:
            return schema[fixed]
    if schema.get("enum"):
        return schema["enum"][0]
    named = kind(schema)
    if named == "object":
        return _object(schema, known, root)
    if named in ("integer", "number"):
        return schema.get("minimum", 30)
    if named == "array" and schema.get("minItems"):
        return [_fill(schema.get("items", {}), known, root)] * schema["minItems"]
    return _LEAST[named]


def _object(schema: Schema, known: Mapping[str, Any], root: Schema) -> dict[str, Any]:
    properties: Mapping[str, Schema] = schema.get("properties") or {}
    required = schema.get("required") or ()
    return {
        name: known[name] if name in known else _fill(one, known, root)
        for name, one in properties.items()
        if name in known or name in required
    }


def _at(root: Schema, reference: str) -> Schema:
    found: Any = root
    for step in reference.removeprefix("#/").split("/"):
        found = found[step]
    return found  # type: ignore[no-any-return]  # JSON, of whose shape nothing is known

"""Rules that check a trajectory without a judge model and without user code: their names and parameters.

Owns: the names of the rules, the type of each rule's parameter, and validating regular expressions and JSON schemas.
Rewards and rubric criteria share these rules. Refuses: checking a trajectory (`judge.rewards.rules`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

Rule = Literal[
    "answer_schema", "forbidden_tools", "required_tools", "max_turns", "max_tool_calls", "max_tokens", "regex"
]
NAMES: Final[tuple[Rule, ...]] = get_args(Rule)


def form_error(rule: Rule, value: object) -> str | None:
    """Return the error if the parameter of a rule has the wrong type, else None. Imports no library."""
    if rule == "regex":
        return None if isinstance(value, str) else f"must be a regular expression, not {value!r:.100}"
    if rule == "answer_schema":
        return None if isinstance(value, dict) else f"must be a JSON schema (a table), not {value!r:.100}"
    if rule in ("forbidden_tools", "required_tools"):
        named = isinstance(value, list) and value and all(isinstance(name, str) and name for name in value)
        return None if named else f"must be a list of tool names, not {value!r:.100}"
    is_count = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if is_count else f"must be a whole number from 0, not {value!r:.100}"


def value_error(rule: Rule, value: Any) -> str | None:
    """Return the error if a parameter of the right type is not a valid expression or schema, else None."""
    if rule == "regex":
        return _regex_error(value)
    if rule == "answer_schema":
        return _schema_error(value)
    return None


def _regex_error(expression: str) -> str | None:
    import regex  # here and below: libraries that most judge recipes do not need

    try:
        regex.compile(expression)
    except regex.error as e:
        return f"is not a regular expression: {e}"
    except RecursionError:
        return "is not a regular expression: it is nested too deeply"
    return None


def _schema_error(schema: Mapping[str, Any]) -> str | None:
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(schema.get("$schema", ""), str):
        return "is not a JSON schema: `$schema` is not a string"
    if _has_key(schema, "unevaluatedProperties") and _has_key(schema, "patternProperties"):
        return (  # the library matches both keywords' patterns against each other, without a time limit
            "is a JSON schema that cannot be checked in bounded time: it has `patternProperties` and "
            "`unevaluatedProperties`. Use `additionalProperties` together with `patternProperties`."
        )
    drafted = validator_for(schema, default=Draft202012Validator)
    try:
        drafted.check_schema(schema, format_checker=drafted.FORMAT_CHECKER)  # its patterns too
    except SchemaError as e:
        return f"is not a JSON schema: {'.'.join(map(str, e.absolute_path)) or 'it'}: {e.message:.300}"
    except RecursionError:
        return "is not a JSON schema: it is nested too deeply"
    except OverflowError as e:  # from compiling a pattern
        return f"is not a JSON schema: {e}"
    return None


def _has_key(schema: object, keyword: str) -> bool:
    """Return whether a key occurs anywhere in a schema; without recursion, because a schema may be nested deeply."""
    pending: list[object] = [schema]
    while pending:
        one = pending.pop()
        if isinstance(one, Mapping):
            if keyword in one:
                return True
            pending += one.values()
        elif isinstance(one, list):
            pending += one
    return False

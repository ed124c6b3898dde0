"""Rules that a run can be held to without a judge and without code of the user's: their names, and their values.

Owns: which rules there are, the form of the value that each is checked with, and whether an expression or a schema is
one. Refuses: checking a run (`judge.rewards.rules`). A reward's rule and a criterion's are told here, so what one takes
the other takes too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, get_args

Rule = Literal[
    "answer_schema", "forbidden_tools", "required_tools", "max_turns", "max_tool_calls", "max_tokens", "regex"
]
NAMES: Final[tuple[Rule, ...]] = get_args(Rule)


def form_error(rule: Rule, value: object) -> str | None:
    """What is wrong with the form of what a rule is checked with; None: nothing. Costs no library."""
    if rule == "regex":
        return None if isinstance(value, str) else f"must be a regular expression, not {value!r:.100}"
    if rule == "answer_schema":
        return None if isinstance(value, dict) else f"must be a JSON schema (a table), not {value!r:.100}"
    if rule in ("forbidden_tools", "required_tools"):
        named = isinstance(value, list) and value and all(isinstance(name, str) and name for name in value)
        return None if named else f"must be a list of tools' names, not {value!r:.100}"
    counts = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return None if counts else f"must be a whole number from 0, not {value!r:.100}"


def value_error(rule: Rule, value: Any) -> str | None:
    """Why no run can be checked with a value of the right form; None: it can."""
    if rule == "regex":
        return _no_expression(value)
    if rule == "answer_schema":
        return _no_schema(value)
    return None


def _no_expression(expression: str) -> str | None:
    import regex  # here and below: libraries that most recipes do not need

    try:
        regex.compile(expression)
    except regex.error as e:
        return f"is no regular expression: {e}"
    except RecursionError:
        return "is no regular expression: it is nested too deeply"
    return None


def _no_schema(schema: Mapping[str, Any]) -> str | None:
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(schema.get("$schema", ""), str):
        return "is no JSON schema: `$schema` is not a text"
    if _holds(schema, "unevaluatedProperties") and _holds(schema, "patternProperties"):
        return (  # the library looks for the expressions of both together, and nothing ends that
            "is no JSON schema that an answer can be held to in bounded time: it has `patternProperties` and "
            "`unevaluatedProperties`; beside the first use `additionalProperties`"
        )
    drafted = validator_for(schema, default=Draft202012Validator)
    try:
        drafted.check_schema(schema, format_checker=drafted.FORMAT_CHECKER)  # its patterns too
    except SchemaError as e:
        return f"is no JSON schema: {'.'.join(map(str, e.absolute_path)) or 'it'}: {e.message:.300}"
    except RecursionError:
        return "is no JSON schema: it is nested too deeply"
    except OverflowError as e:  # of a pattern
        return f"is no JSON schema: {e}"
    return None


def _holds(schema: object, keyword: str) -> bool:
    """Whether a key stands anywhere in a schema. By a stack of its own: it may be nested deeply."""
    waiting: list[object] = [schema]
    while waiting:
        one = waiting.pop()
        if isinstance(one, Mapping):
            if keyword in one:
                return True
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
    return False

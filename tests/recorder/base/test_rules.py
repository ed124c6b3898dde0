"""Rules' values: those that no run can be checked with are told, whatever they hold, and none breaks who looks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.base.rules import NAMES, Rule, form_error, value_error


def nested(times: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(times):
        schema = {"not": schema}
    return schema


@pytest.mark.parametrize(
    ("rule", "value", "said"),
    [
        ("regex", "a(", "is not a regular expression: "),
        ("regex", "a{99999999999999}", "is not a regular expression: repeat count too big"),
        ("regex", "(" * 5_000 + ")" * 5_000, "nested too deeply"),
        ("answer_schema", {"type": "thing"}, "is not a JSON schema: type: 'thing' is not valid"),
        ("answer_schema", {"pattern": "a("}, "is not a JSON schema: pattern: 'a(' is not a 'regex'"),
        ("answer_schema", {"pattern": "a{99999999999999}"}, "is not a JSON schema: the repetition number is too large"),
        ("answer_schema", {"$schema": ["x"]}, "is not a JSON schema: `$schema` is not a string"),
        ("answer_schema", nested(900), "nested too deeply"),
        (
            "answer_schema",
            {"allOf": [{"patternProperties": {"^a": {}}}], "unevaluatedProperties": False},
            "is a JSON schema that cannot be checked in bounded time",
        ),
    ],
)
def test_a_value_of_the_right_form_that_nothing_can_be_checked_with_is_told(rule: Rule, value: Any, said: str) -> None:
    assert form_error(rule, value) is None
    assert said in str(value_error(rule, value))


def test_values_that_can_be_used_are_not_told() -> None:
    assert value_error("regex", r"\bon (mon|fri)day\b") is None
    assert value_error("answer_schema", {"type": "object", "required": ["order"]}) is None
    assert value_error("answer_schema", {"properties": {"a": {}}, "unevaluatedProperties": False}) is None
    assert value_error("answer_schema", {"patternProperties": {"^a": {}}, "additionalProperties": False}) is None
    assert value_error("max_turns", 3) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["$schema", "type", "pattern", "not", "enum", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(st.sampled_from(NAMES), json_values)
def test_any_json_is_a_value_or_is_told_why_not(rule: Rule, value: Any) -> None:
    if form_error(rule, value) is None:
        assert value_error(rule, value) is None or str(value_error(rule, value)).startswith("is not a ")

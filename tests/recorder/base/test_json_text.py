"""JSON in texts of models and clients: parsed as it is, unless it would hold the interpreter."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recorder.base.json_limits import MAX_CHARS, MAX_DIGITS, MAX_VALUES, parse_json_text, parse_strict_json_text

HOSTILE = {
    "lists": "[" + "[]," * MAX_VALUES + "[]]",
    "keys": "{" + ",".join(f'"{n}":0' for n in range(MAX_VALUES + 1)) + "}",
    "long": json.dumps("a" * MAX_CHARS),
    "digits": "9" * (MAX_DIGITS + 1),
    "many digits": json.dumps([10**4000] * 100),
    "no JSON": "{",
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_a_text_above_the_limits_is_not_parsed(text: str) -> None:
    for parse in (parse_json_text, parse_strict_json_text):
        with pytest.raises(ValueError, match=r"."):
            parse(text)


@pytest.mark.parametrize(
    "value", [{}, [], "", 0, -1.5, True, None, 10**300, {"a": [{"b": "x\n"}] * 1000}, list(range(20_000)), "ü" * 10**5]
)
def test_other_texts_are(value: Any) -> None:
    text = json.dumps(value)
    assert parse_json_text(text) == parse_strict_json_text(text) == value


def test_what_is_not_json_is_refused_where_that_matters() -> None:
    assert parse_json_text("[Infinity]") == [float("inf")]
    with pytest.raises(ValueError, match="NaN is not JSON"):
        parse_strict_json_text("[NaN]")


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(TypeError):
        parse_json_text({"a": 1})  # type: ignore[arg-type]  # a client may send anything

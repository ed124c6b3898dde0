"""The values of a body are counted as a parser would find them, whatever texts hold."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.base import DialectRules
from proxy.dialects.engine_fields import load_body
from proxy.errors import BadRequest, TooLarge
from recorder.base import json_limits
from recorder.base.json_limits import count_values

TEXTS = st.text(alphabet='a,[{"\\:1\n}]é', max_size=12)
VALUES: st.SearchStrategy[Any] = st.recursive(
    TEXTS | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=30,
)


def marks(value: Any) -> int:
    """The commas and opening brackets of a value's JSON outside of its texts."""
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + sum(map(marks, value.values()))
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(marks, value))
    return 0


@given(value=VALUES, ascii_only=st.booleans(), piece=st.integers(2, 40))
def test_texts_do_not_count(value: Any, ascii_only: bool, piece: int) -> None:
    body = json.dumps(value, ensure_ascii=ascii_only).encode()
    whole = json_limits._PIECE
    json_limits._PIECE = piece  # type: ignore[misc]  # so that texts and escapes lie over the edges
    try:
        assert count_values(body, -1) == marks(value)
    finally:
        json_limits._PIECE = whole  # type: ignore[misc]


def test_ten_numbers_are_one_value() -> None:
    assert count_values(b'{"prompt":[' + b"1234," * 100_000 + b"-1]}", 20_000) == 10_002


def test_a_quick_bound_is_enough_for_ordinary_bodies() -> None:
    assert count_values(b'{"a":"[,[,"}', 10) == 5
    assert count_values(b'{"a":"[,[,"}', 4) == 1


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":[' + b"[]," * 200 + b"[]]}",
        b'{"a":{' + b",".join(b'"%d":"x"' % n for n in range(300)) + b"}}",
        b'{"a":' + b"[" * 400 + b"]" * 400 + b"}",
        b"[" * 400,
    ],
)
def test_a_body_with_more_values_is_refused_before_it_is_parsed(body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orjson, "loads", lambda _: pytest.fail("it was parsed"))
    with pytest.raises(TooLarge, match=r"the limit of one request is 250, and 20 messages.*max_body_values"):
        load_body(body, DialectRules(max_values=250, max_messages=20))


def test_a_body_with_fewer_is_read() -> None:
    fields = {"a": "[{," * 10_000, "b": ["x"] * 200}
    assert load_body(orjson.dumps(fields), DialectRules(max_values=250)) == fields


@pytest.mark.parametrize("name", ["messages", "input", "prompt"])
def test_messages_are_counted(name: str) -> None:
    rules = DialectRules(max_messages=3)
    assert load_body(orjson.dumps({name: ["x"] * 3}), rules)
    with pytest.raises(TooLarge, match=rf"'{name}' has 4 entries; the limit of one request is 3.*max_messages"):
        load_body(orjson.dumps({name: ["x"] * 4}), rules)


def test_token_ids_are_no_messages() -> None:
    assert load_body(orjson.dumps({"prompt": [1] * 4}), DialectRules(max_messages=3))


def test_a_body_that_is_no_json_stays_a_bad_request() -> None:
    with pytest.raises(BadRequest, match="not JSON"):
        load_body(b'{"a":', DialectRules(max_values=250, max_messages=20))

"""What a model asked of its tools: found by name and arguments, whatever it wrote."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.plain_text import match_key, parse_tool_requests

KEY = b"k" * 16


def asked(arguments: object, name: object = "orders__find") -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [{"id": "call_1", "function": {"name": name, "arguments": arguments}}]}


def test_a_request_is_the_call_with_its_arguments() -> None:
    [(position, id_, found)] = parse_tool_requests(KEY, asked('{"b": 2.0, "a": "x"}'))
    assert (position, id_) == (0, "call_1")
    assert found == match_key(KEY, "orders__find", {"a": "x", "b": 2})
    assert found != match_key(KEY, "orders__find", {"a": "x", "b": 3})


def test_a_clients_prefix_of_a_server_is_no_part_of_the_name() -> None:
    [(_, _, found)] = parse_tool_requests(KEY, asked("{}", "mcp__shop__orders__find"))
    assert found == match_key(KEY, "orders__find", {})


@pytest.mark.parametrize("levels", [150, 300, 900, 5000, 200_000])
def test_arguments_nested_as_deeply_as_a_model_likes_are_no_fault(levels: int) -> None:
    deep = '{"a":' * levels + "1" + "}" * levels
    assert len(parse_tool_requests(KEY, asked(deep))) <= 1
    assert len(parse_tool_requests(KEY, asked("[" * levels + "]" * levels))) <= 1


@given(st.text() | st.none() | st.integers() | st.builds(json.dumps, st.recursive(st.none() | st.floats(), st.lists)))
def test_whatever_stands_for_arguments_is_read_or_passed_over(arguments: object) -> None:
    assert len(parse_tool_requests(KEY, asked(arguments))) <= 1

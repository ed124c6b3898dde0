"""When two messages are one: the echoes of an assistant turn, and what must stay apart."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.content_hashes import (
    canonical_json,
    canonical_message,
    chain_node_ids,
    content_id,
    echoed_extras,
    implicit_group_key,
    node_id,
)

KEY = b"k" * 32
SAMPLED: dict[str, Any] = {
    "role": "assistant",
    "content": None,
    "reasoning_content": "hm",
    "tool_calls": [
        {"id": "call_1", "type": "function", "function": {"name": "find", "arguments": '{"b": 1, "a": [2, "é"]}'}}
    ],
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["system", "user", "assistant", "tool"])},
    optional={
        "content": st.none() | st.text(max_size=8),
        "name": st.text(max_size=4),
        "tool_calls": st.lists(
            st.builds(
                lambda id_, arguments: {
                    "id": id_,
                    "type": "function",
                    "function": {"name": "f", "arguments": arguments},
                },
                st.text(min_size=1, max_size=4),
                st.dictionaries(st.text(max_size=3), json_values, max_size=3).map(json.dumps) | st.text(max_size=6),
            ),
            max_size=2,
        ),
    },
)


def echoes(message: dict[str, Any]) -> list[dict[str, Any]]:
    """The ways in which SDKs send an assistant turn back."""
    bare = {k: v for k, v in message.items() if k != "content"}
    contents = [message] if message.get("content") else [bare, bare | {"content": ""}, bare | {"content": None}]
    dumped = [c | {"refusal": None, "annotations": [], "audio": None, "function_call": None} for c in contents]
    return [*contents, *dumped, *(reordered(c) for c in contents)]


def reordered(message: dict[str, Any]) -> dict[str, Any]:
    calls = []
    for call in message.get("tool_calls") or []:
        arguments = call["function"]["arguments"]
        try:
            value = json.loads(arguments)
        except ValueError:
            calls.append(call)
            continue
        if isinstance(value, dict):
            value = dict(reversed(value.items()))
        calls.append(call | {"function": call["function"] | {"arguments": json.dumps(value, indent=1)}})
    return message | ({"tool_calls": calls} if "tool_calls" in message else {})


@pytest.mark.parametrize("echo", echoes(SAMPLED))
def test_every_echo_of_an_assistant_turn_is_the_same_node(echo: dict[str, Any]) -> None:
    assert node_id(KEY, b"p" * 16, echo) == node_id(KEY, b"p" * 16, SAMPLED)


@given(messages)
def test_echoes_of_any_message_are_the_same_node(message: dict[str, Any]) -> None:
    assert {node_id(KEY, None, echo) for echo in echoes(message)} == {node_id(KEY, None, message)}


@pytest.mark.parametrize(
    "other",
    [
        SAMPLED | {"role": "user"},
        SAMPLED | {"content": "text"},
        {"role": "assistant"},
        SAMPLED | {"tool_calls": [SAMPLED["tool_calls"][0] | {"id": "call_2"}]},
        SAMPLED
        | {"tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "find", "arguments": "{}"}}]},
        {"role": "user", "content": "hi", "name": "bob"},
    ],
)
def test_another_message_is_another_node(other: dict[str, Any]) -> None:
    assert node_id(KEY, None, other) != node_id(KEY, None, SAMPLED)


def test_a_name_distinguishes_users_and_not_the_assistant() -> None:
    """LangGraph's named agents write their name on each answer that they send back."""
    assert node_id(KEY, None, SAMPLED | {"name": "supervisor"}) == node_id(KEY, None, SAMPLED)
    asked = {"role": "user", "content": "hi"}
    assert node_id(KEY, None, asked | {"name": "bob"}) != node_id(KEY, None, asked)


def test_one_text_part_equals_its_text_and_cache_marks_do_not_count() -> None:
    plain = {"role": "user", "content": "hello"}
    part = {"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}
    assert canonical_message({"role": "user", "content": [part]}) == plain
    assert canonical_message({"role": "user", "content": [part, part]}) != plain


@pytest.mark.parametrize("kind", [["text"], {}, None, 7])
def test_a_part_may_say_anything_for_its_type(kind: Any) -> None:
    part = {"type": kind, "text": "hi"}
    assert chain_node_ids(KEY, [{"role": "user", "content": [part]}]) != chain_node_ids(
        KEY, [{"role": "user", "content": "hi"}]
    )


def test_arguments_that_do_not_parse_are_compared_as_text() -> None:
    def call(arguments: str) -> dict[str, Any]:
        return {"role": "assistant", "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": arguments}}]}

    assert node_id(KEY, None, call('{"a": 1')) != node_id(KEY, None, call('{"a":1'))
    assert node_id(KEY, None, call('"{"')) != node_id(KEY, None, call("{"))
    assert node_id(KEY, None, call("[" * 5000)) != node_id(KEY, None, call("["))


def test_integers_beyond_64_bits_and_lone_surrogates_are_hashed() -> None:
    def call(number: int) -> dict[str, Any]:
        return {"role": "assistant", "tool_calls": [{"id": "1", "function": {"arguments": f'{{"id": {number}}}'}}]}

    assert node_id(KEY, None, call(123456789012345678901)) != node_id(KEY, None, call(123456789012345678902))
    assert node_id(KEY, None, {"role": "user", "content": "\ud800"}) != node_id(
        KEY, None, {"role": "user", "content": "\ud801"}
    )


def test_a_node_stands_for_the_whole_conversation_up_to_it() -> None:
    hello, again = {"role": "user", "content": "hello"}, {"role": "user", "content": "again"}
    assert chain_node_ids(KEY, [hello, again])[-1] != chain_node_ids(KEY, [again])[-1]
    assert chain_node_ids(KEY, [hello, again])[0] == chain_node_ids(KEY, [hello])[0]
    assert chain_node_ids(b"j" * 32, [hello]) != chain_node_ids(KEY, [hello])
    assert chain_node_ids(KEY, []) == []


@given(st.lists(messages, max_size=5), st.lists(messages, max_size=5))
def test_chains_agree_exactly_on_their_common_beginning(a: list[dict[str, Any]], b: list[dict[str, Any]]) -> None:
    def same(x: dict[str, Any], y: dict[str, Any]) -> bool:
        return canonical_json(canonical_message(x)) == canonical_json(canonical_message(y))  # 1 and 1.0 are two texts

    shared = 0
    while shared < min(len(a), len(b)) and same(a[shared], b[shared]):
        shared += 1
    ids_a, ids_b = chain_node_ids(KEY, a), chain_node_ids(KEY, b)
    assert ids_a[:shared] == ids_b[:shared]
    assert not set(ids_a[shared:]) & set(ids_b[shared:])


def test_extras_are_what_a_message_says_beside_its_canonical_form() -> None:
    assert echoed_extras(SAMPLED) == {"reasoning_content": "hm"}
    assert echoed_extras({"role": "assistant", "content": "x", "refusal": None, "annotations": []}) == {}


def test_blob_ids_are_keyed_and_differ_from_node_hashes() -> None:
    assert content_id(KEY, b"x") != content_id(b"j" * 32, b"x")
    assert len(content_id(KEY, b"x")) == 16


def test_runs_of_one_task_share_an_implicit_group() -> None:
    head = [{"role": "system", "content": "You help."}, {"role": "user", "content": "Where is order 4821?"}]
    tools = [{"type": "function", "function": {"name": "find_order"}}]
    key = implicit_group_key(KEY, "alias", head, tools)
    assert implicit_group_key(KEY, "alias", [*head, {"role": "assistant", "content": "hm"}], tools) == key
    different = [
        implicit_group_key(KEY, "other", head, tools),
        implicit_group_key(KEY, "alias", [head[0], {"role": "user", "content": "Where is order 4822?"}], tools),
        implicit_group_key(KEY, "alias", [{"role": "system", "content": "You rule."}, head[1]], tools),
        implicit_group_key(KEY, "alias", head, None),
        implicit_group_key(KEY, "alias", head, tools, "val"),
        implicit_group_key(b"j" * 32, "alias", head, tools),
    ]
    assert len({key, *different}) == 7

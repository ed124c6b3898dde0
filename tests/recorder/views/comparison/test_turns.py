"""Messages become turns: results stand with the calls that they answer, and ids of calls say nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.views.comparison.turns import Argument, ConversationTurn, ToolExchange, conversation_turns

ASK = {"role": "user", "content": "Where is order 4821?"}


def call(id_: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": text}}


def asking(*calls: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **more}


def result(id_: str, text: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def test_results_stand_with_their_calls_in_whichever_order_they_came() -> None:
    messages = [ASK, asking(call("a", "find", {}), call("b", "read", {})), result("b", "second"), result("a", "first")]
    _, turn = conversation_turns(messages)
    assert turn.tool_calls == (ToolExchange("find", (), "first"), ToolExchange("read", (), "second"))


def test_attempts_that_did_the_same_are_equal_whatever_their_ids() -> None:
    one, other = (
        conversation_turns([ASK, asking(call(id_, "find", {"q": 1})), result(id_, "x")]) for id_ in ("a", "b")
    )
    assert one == other


def test_what_answers_no_call_is_a_turn_of_its_own() -> None:
    turns = conversation_turns([ASK, asking(call("a", "find", {})), result("zz", "lost"), result("a", "late")])
    assert [turn.role for turn in turns] == ["user", "assistant", "tool", "tool"]


def test_the_call_that_sampled_a_turn_is_told_and_makes_no_difference() -> None:
    [_, turn] = conversation_turns([ASK, {"role": "assistant", "content": "Monday"}], {1: "call_1"})
    assert (turn.call_id, turn) == ("call_1", ConversationTurn("assistant", "Monday"))


@pytest.mark.parametrize(
    ("given_", "wanted"),
    [
        ({"q": "x", "n": 2}, (Argument("q", "x", is_json=False), Argument("n", "2", is_json=True))),
        ({"q": "2"}, (Argument("q", "2", is_json=False),)),
        ("[1, 2]", (Argument("", "[1, 2]", is_json=True),)),
        ("{broken", (Argument("", "{broken", is_json=False),)),
        ("", ()),
    ],
)
def test_arguments_are_read_one_by_one(given_: Any, wanted: tuple[Argument, ...]) -> None:
    [turn] = conversation_turns([asking(call("a", "find", given_))])
    assert turn.tool_calls[0].arguments == wanted


def test_parts_of_a_content_are_its_text_and_what_is_no_text_is_named() -> None:
    content = [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": {"url": "x"}}]
    [turn] = conversation_turns([{"role": "user", "content": content}])
    assert turn.text == "see\n[image_url]"


def test_thinking_is_told_apart_from_words() -> None:
    [turn] = conversation_turns([{"role": "assistant", "content": "Yes", "reasoning_content": "hm"}])
    assert (turn.text, turn.thinking) == ("Yes", "hm")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=6,
)
MESSAGES = st.lists(
    st.dictionaries(st.sampled_from(["role", "content", "tool_calls", "tool_call_id", "reasoning"]), JSON, max_size=5)
)


@given(MESSAGES)
def test_no_message_however_odd_is_lost_or_breaks_it(messages: list[dict[str, Any]]) -> None:
    turns = conversation_turns(messages)
    results = sum(one.result is not None for turn in turns for one in turn.tool_calls)
    assert len(turns) + results == len(messages)

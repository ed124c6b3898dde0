"""Turns in rows: nothing is lost, no order changes, and what is the same stands beside each other.

Messages become turns: results stand with the calls that they answer, and ids of calls say nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.views.comparison.alignment import (
    Argument,
    ConversationTurn,
    ToolExchange,
    align_turns,
    conversation_turns,
    shared_beginning,
)

TURNS = st.builds(
    ConversationTurn,
    role=st.sampled_from(["user", "assistant"]),
    text=st.sampled_from(["", "yes", "no"]),
    thinking=st.sampled_from(["", "hm"]),
    tool_calls=st.lists(
        st.builds(
            ToolExchange,
            name=st.sampled_from(["find", "read"]),
            arguments=st.sampled_from([(), (Argument("q", "1", is_json=True),)]),
            result=st.sampled_from([None, "found"]),
        ),
        max_size=2,
    ).map(tuple),
)
RUNS = st.lists(TURNS, max_size=8)
ATTEMPTS = st.lists(RUNS, min_size=1, max_size=4)


def common(one: Sequence[object], other: Sequence[object]) -> int:
    """The length of the longest common subsequence."""
    best = [[0] * (len(other) + 1) for _ in range(len(one) + 1)]
    for a in range(len(one)):
        for b in range(len(other)):
            best[a + 1][b + 1] = best[a][b] + 1 if one[a] == other[b] else max(best[a][b + 1], best[a + 1][b])
    return best[-1][-1]


@given(ATTEMPTS)
def test_every_turn_stands_in_one_row_and_in_its_order(attempts: list[list[ConversationTurn]]) -> None:
    rows = align_turns(attempts)
    for number, turns in enumerate(attempts):
        assert [row[number] for row in rows if row[number] is not None] == list(range(len(turns)))
    assert all(len(row) == len(attempts) and any(place is not None for place in row) for row in rows)


@given(ATTEMPTS)
def test_a_row_holds_turns_of_one_role(attempts: list[list[ConversationTurn]]) -> None:
    for row in align_turns(attempts):
        there = [attempts[number][place] for number, place in enumerate(row) if place is not None]
        assert len({turn.role for turn in there}) == 1


@given(RUNS, st.integers(1, 4))
def test_equal_attempts_stand_in_rows_of_their_own(run: list[ConversationTurn], times: int) -> None:
    assert align_turns([run] * times) == [[place] * times for place in range(len(run))]


@given(RUNS, RUNS)
def test_as_many_turns_that_did_the_same_share_a_row_as_any_order_allows(
    one: list[ConversationTurn], other: list[ConversationTurn]
) -> None:
    together = [(one[a], other[b]) for a, b in align_turns([one, other]) if a is not None and b is not None]
    same = sum(left.act == right.act for left, right in together)
    assert same == common([turn.act for turn in one], [turn.act for turn in other])


@given(st.lists(RUNS, min_size=1, max_size=3), RUNS)
def test_the_shared_beginning_is_the_longest_that_all_have(
    attempts: list[list[ConversationTurn]], begin: list[ConversationTurn]
) -> None:
    runs = [[*begin, *run] for run in attempts]
    count = shared_beginning(runs)
    assert count >= len(begin)
    assert all(run[:count] == runs[0][:count] for run in runs)
    longer = [run[count] for run in runs if len(run) > count]
    assert len(longer) < len(runs) or any(turn != longer[0] for turn in longer)


def said(text: str) -> ConversationTurn:
    return ConversationTurn("assistant", text)


def called(name: str, query: str) -> ConversationTurn:
    return ConversationTurn("assistant", "", tool_calls=(ToolExchange(name, (Argument("q", query, is_json=False),)),))


def test_an_attempt_that_left_a_step_out_stands_beside_the_rest_of_the_other() -> None:
    long = [called("find", "order"), called("read", "parcel"), said("Monday")]
    short = [called("find", "order"), said("Tuesday")]
    assert align_turns([long, short]) == [[0, 0], [1, None], [2, 1]]


def test_a_call_with_other_arguments_stands_beside_the_call_of_the_same_tool() -> None:
    one = [called("read", "a"), called("find", "x"), said("done")]
    other = [called("find", "y"), said("done")]
    assert align_turns([one, other]) == [[0, None], [1, 0], [2, 1]]


def test_nothing_to_compare_has_no_beginning() -> None:
    assert shared_beginning([]) == 0
    assert align_turns([]) == []


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

"""Whose turn a call goes on from: the decision, as a pure function, and what it is made of.

A turn as its client retells it: white space trimmed, stop strings and notes appended, and never another text.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.lineage import (
    MOST_READ_CHARS,
    MOST_WRITTEN,
    Match,
    answer_nodes,
    decide_parent,
    equals_but_space,
    is_about,
    issued_tool_call_ids,
    matched_length,
)
from recorder.states import Confidence
from tests.recorder.talk import assistant, tool_result, tool_turn, user

matches = st.lists(
    st.builds(
        Match,
        call_id=st.uuids().map(str),
        choice=st.just(0),
        trajectory_id=st.sampled_from(["t1", "t2", "t3"]),
        open=st.booleans(),
        continued=st.booleans(),
        at=st.floats(0, 10),
    ),
    max_size=6,
)


def test_nothing_that_matches_is_a_new_run() -> None:
    assert decide_parent([]).match is None
    assert decide_parent([]).confidence is Confidence.NEW


@given(matches.filter(bool))
def test_a_match_is_exact_when_one_trajectory_is_in_question(found: list[Match]) -> None:
    decision = decide_parent(found)
    in_question = {m.trajectory_id for m in found if m.open} or {m.trajectory_id for m in found}
    assert decision.confidence is (Confidence.EXACT if len(in_question) == 1 else Confidence.AMBIGUOUS)
    assert decision.match in found
    assert decision.match.trajectory_id in in_question


@given(matches.filter(bool))
def test_runs_that_are_equal_so_far_are_dealt_out_one_by_one(found: list[Match]) -> None:
    chosen = decide_parent(found).match
    assert chosen is not None
    rivals = [m for m in found if m.open] or found
    assert not chosen.continued or all(m.continued for m in rivals)


def test_a_closed_run_does_not_make_an_open_one_ambiguous() -> None:
    closed = Match("c1", 0, "t1", open=False, continued=False, at=9.0)
    running = Match("c2", 0, "t2", open=True, continued=True, at=1.0)
    assert decide_parent([closed, running]) == decide_parent([running])
    assert decide_parent([running]).confidence is Confidence.EXACT


ID, OTHER_ID = "chatcmpl-tool-0123456789abcdef", "call_fedcba9876543210"


def written(*ids: str) -> dict[str, str]:
    calls = [{"id": id_, "type": "function", "function": {"name": "find", "arguments": {}}} for id_ in ids]
    return assistant(f"Let me look.\nCalling tools:\n{calls}")


@pytest.mark.parametrize("id_", [ID, OTHER_ID, "call_3_0123456789abcdef", "chatcmpl-tool-" + "0123456789abcdef" * 2])
def test_ids_that_an_agent_writes_as_text_are_seen(id_: str) -> None:
    assert issued_tool_call_ids([user("hi"), written(id_), user(f"Call id: {id_}\nfound")]) == [id_]
    parts = {"role": "assistant", "content": [{"type": "text", "text": written(id_)["content"]}]}
    assert issued_tool_call_ids([user("hi"), parts]) == [id_]


@pytest.mark.parametrize(
    "id_",
    ["call_3", "functions.find:0", "call_0123456789abcde", "call_0123456789abcdefg", "call_0123456789ABCDEF",
     "xcall_0123456789abcdef", "call_12345_0123456789abcdef", "0123456789abcdef", "toolu_0123456789abcdef"],
)  # fmt: skip
def test_what_is_no_random_id_of_ours_is_no_id_in_a_text(id_: str) -> None:
    assert issued_tool_call_ids([user("hi"), written(id_)]) == []


@pytest.mark.parametrize("role", ["user", "system", "tool", "developer"])
def test_ids_count_in_what_the_agent_wrote_alone(role: str) -> None:
    assert issued_tool_call_ids([user("hi"), {"role": role, "content": f"'id': '{ID}'"}, assistant("I see")]) == []
    # and what it may have copied from there is no evidence either
    assert issued_tool_call_ids([{"role": role, "content": f"see {ID}"}, written(ID, OTHER_ID)]) == [OTHER_ID]


def test_ids_of_openais_form_are_read_from_texts_too() -> None:
    issued = "call_Ab12Cd34Ef56Gh78Ij90Kl12"
    assert issued_tool_call_ids([user("hi"), written(issued)]) == [issued]
    assert issued_tool_call_ids([user("hi"), assistant("call_weather_of_tomorrow and call_" + "a" * 40)]) == []


def test_tool_calls_count_before_texts_about_them() -> None:
    assert issued_tool_call_ids([user("hi"), tool_turn("a"), tool_result("a"), written(ID)]) == ["a"]


@given(st.text("call_-chmptol0123456789abcdef '\n", max_size=400))
def test_no_text_gives_an_id_that_does_not_stand_in_it(text: str) -> None:
    found = issued_tool_call_ids([user("hi"), assistant(text)])
    assert all(id_ in text and id_.startswith(("call_", "chatcmpl-tool-")) for id_ in found)


def test_a_long_text_is_read_from_its_end_and_costs_little() -> None:
    for hostile in ("call_" * 400_000, "chatcmpl-tool-0123456789abcde" * 80_000, "call_1_" * 300_000):
        assert issued_tool_call_ids([user("hi"), assistant(hostile)]) == []
    assert issued_tool_call_ids([user("hi"), assistant("x" * 2_000_000 + " " + ID)]) == [ID]
    assert issued_tool_call_ids([user("hi"), assistant(ID + " " + "x" * MOST_READ_CHARS)]) == []
    many = [f"call_{n:016x}" for n in range(200)]
    assert issued_tool_call_ids([user("hi"), assistant(" ".join(many))]) == many[:MOST_WRITTEN]


def test_issued_ids_are_those_of_the_last_turn_with_tool_calls() -> None:
    talk = [user("hi"), tool_turn("a"), tool_result("a"), tool_turn("b", "c"), tool_result("b"), assistant("done")]
    assert issued_tool_call_ids(talk) == ["b", "c"]
    assert issued_tool_call_ids(talk[:3]) == ["a"]
    assert issued_tool_call_ids([user("hi"), assistant("hello")]) == []


def test_the_ends_of_a_conversation_are_its_assistant_turns_last_first() -> None:
    talk = [user("1"), assistant("2"), user("3"), assistant("4"), user("5")]
    chain = [bytes([i]) for i in range(5)]
    assert answer_nodes(talk, chain) == [bytes([3]), bytes([1])]
    assert answer_nodes(talk, chain, limit=1) == [bytes([3])]


texts = st.text("ab .\n<`", max_size=12)


@given(texts, texts)
def test_a_grown_turn_begins_with_all_that_was_said(said: str, told: str) -> None:
    length = matched_length(assistant(said), assistant(told))
    assert 0 <= length <= len(told)
    if length:
        assert said.strip()
        assert told[:length].strip() == said.strip()


@given(texts.filter(str.strip), texts)
def test_notes_on_a_new_line_and_closing_tags_may_be_appended(said: str, notes: str) -> None:
    for appended in ("\n" + notes, "</code>" + notes, "```\n" + notes):
        assert matched_length(assistant(said), assistant(said + appended)) >= len(said.strip())
        assert matched_length(assistant(said), assistant(said.strip() + appended)) >= len(said.strip())


@given(texts)
def test_white_space_at_the_ends_alone_makes_no_other_turn(said: str) -> None:
    for told in (said, said.strip(), said.rstrip(), said.lstrip()):
        assert equals_but_space(assistant(said), assistant(told))
    assert not equals_but_space(assistant(said), assistant(f" {said} x"))


def test_stop_strings_of_the_call_may_be_appended() -> None:
    assert matched_length(assistant("Look"), assistant("Look!")) == 0
    assert matched_length(assistant("Look"), assistant("LookEND"), ["END"]) == len("Look")
    assert matched_length(assistant("Look"), assistant("LookEND"), ["\nEND\n"]) == len("Look")
    assert matched_length(assistant("Look"), assistant("Look!"), [""]) == 0


def test_what_stands_beside_the_text_must_be_the_same() -> None:
    called = tool_turn("functions.find:0") | {"content": "Look\n"}
    assert equals_but_space(called, called | {"content": "Look"})
    assert not equals_but_space(called, assistant("Look"))
    assert matched_length(called, assistant("Look\n</code>")) == 0


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [("Fix it", "A title for: Fix it", True), ("Fix it", "Fix items", False), ("", "x", False), ("a", "again", False)],
)
def test_an_errand_is_about_whole_words(words: str, text: str, found: bool) -> None:
    assert is_about(words, [user(text)]) is found
    assert is_about(words, [assistant(text)]) is False

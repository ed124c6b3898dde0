"""Whose turn a call goes on from: the decision, as a pure function, and what it is made of."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recorder.lineage.match import Match, assistant_ends, decide, issued_in
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
    assert decide([]).match is None
    assert decide([]).confidence is Confidence.NEW


@given(matches.filter(bool))
def test_a_match_is_exact_when_one_trajectory_is_in_question(found: list[Match]) -> None:
    decision = decide(found)
    in_question = {m.trajectory_id for m in found if m.open} or {m.trajectory_id for m in found}
    assert decision.confidence is (Confidence.EXACT if len(in_question) == 1 else Confidence.AMBIGUOUS)
    assert decision.match in found
    assert decision.match.trajectory_id in in_question


@given(matches.filter(bool))
def test_runs_that_are_equal_so_far_are_dealt_out_one_by_one(found: list[Match]) -> None:
    chosen = decide(found).match
    assert chosen is not None
    rivals = [m for m in found if m.open] or found
    assert not chosen.continued or all(m.continued for m in rivals)


def test_a_closed_run_does_not_make_an_open_one_ambiguous() -> None:
    closed = Match("c1", 0, "t1", open=False, continued=False, at=9.0)
    running = Match("c2", 0, "t2", open=True, continued=True, at=1.0)
    assert decide([closed, running]) == decide([running])
    assert decide([running]).confidence is Confidence.EXACT


def test_issued_ids_are_those_of_the_last_turn_with_tool_calls() -> None:
    talk = [user("hi"), tool_turn("a"), tool_result("a"), tool_turn("b", "c"), tool_result("b"), assistant("done")]
    assert issued_in(talk) == ["b", "c"]
    assert issued_in(talk[:3]) == ["a"]
    assert issued_in([user("hi"), assistant("hello")]) == []


def test_the_ends_of_a_conversation_are_its_assistant_turns_last_first() -> None:
    talk = [user("1"), assistant("2"), user("3"), assistant("4"), user("5")]
    chain = [bytes([i]) for i in range(5)]
    assert assistant_ends(talk, chain) == [bytes([3]), bytes([1])]
    assert assistant_ends(talk, chain, limit=1) == [bytes([3])]

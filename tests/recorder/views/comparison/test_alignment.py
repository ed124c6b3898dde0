"""Turns in rows: nothing is lost, no order changes, and what is the same stands beside each other."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from recorder.views.comparison.alignment import align_turns, shared_beginning
from recorder.views.comparison.turns import Argument, ConversationTurn, ToolExchange

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

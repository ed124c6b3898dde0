"""The tree of a trajectory's calls, its main leaf and path, retries: the rules, as pure functions."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.call_tree import (
    CallNode,
    RetryAttempt,
    continued_choices,
    find_superseded,
    find_unselected,
    main_leaf,
    path_to,
    split_choices,
)
from recorder.messages.calls import ParentCall
from recorder.states import CallKind, CallState


@st.composite
def trees(draw: st.DrawFn) -> list[CallNode]:
    """Any forest of calls: each goes on from a choice of an earlier one, or from nothing."""
    nodes: list[CallNode] = []
    for number in range(draw(st.integers(0, 8))):
        able = [ParentCall(n.id, index) for n in nodes for index in range(n.choices)]
        nodes.append(
            CallNode(
                id=f"c{number}",
                parent=draw(st.sampled_from([None, *able])),
                choices=draw(st.integers(0, 3)),
                state=draw(st.sampled_from([CallState.COMPLETE, CallState.COMPLETE, CallState.ABORTED])),
                call_kind=draw(st.sampled_from([CallKind.MAIN, CallKind.MAIN, CallKind.AUX])),
                superseded=draw(st.integers(0, 3)) == 0,
                at=float(number),
            )
        )
    return nodes


@given(trees())
def test_the_main_leaf_is_the_last_complete_main_call(nodes: list[CallNode]) -> None:
    leaf = main_leaf(nodes)
    able = [n.id for n in nodes if n.call_kind is CallKind.MAIN and n.state is CallState.COMPLETE and n.choices]
    able = [id_ for id_ in able if not next(n for n in nodes if n.id == id_).superseded]
    assert leaf == (ParentCall(able[-1], 0) if able else None)


@given(trees())
def test_a_path_leads_from_a_root_along_parents_to_its_leaf(nodes: list[CallNode]) -> None:
    by_id = {n.id: n for n in nodes}
    leaf = main_leaf(nodes)
    path = path_to(by_id, leaf)
    if leaf is None:
        assert path == []
        return
    assert path[-1] == leaf
    assert by_id[path[0].call_id].parent is None
    for above, below in pairwise(path):
        assert by_id[below.call_id].parent == above


@given(trees())
def test_a_choice_is_not_selected_when_it_is_one_of_several_and_leads_nowhere(nodes: list[CallNode]) -> None:
    path = path_to({n.id: n for n in nodes}, main_leaf(nodes))
    unselected = find_unselected(nodes, path)
    went_on = continued_choices(nodes)
    for node in nodes:
        for index in range(node.choices):
            choice = ParentCall(node.id, index)
            leads_nowhere = node.choices > 1 and choice not in went_on and choice not in path
            assert (choice in unselected) == leads_nowhere


def test_a_path_ends_where_its_calls_are_in_another_trajectory() -> None:
    node = CallNode("c2", ParentCall("elsewhere", 0), 1, CallState.COMPLETE, CallKind.MAIN, False, 1.0)
    assert path_to({"c2": node}, ParentCall("c2", 0)) == [ParentCall("c2", 0)]


def test_only_a_first_call_that_nobody_went_on_with_is_split() -> None:
    first = CallNode("c1", None, 3, CallState.COMPLETE, CallKind.MAIN, False, 1.0)
    later = CallNode("c2", ParentCall("c1", 1), 2, CallState.COMPLETE, CallKind.MAIN, False, 2.0)
    aside = CallNode("c3", None, 1, CallState.COMPLETE, CallKind.AUX, False, 3.0)
    retried = CallNode("c0", None, 3, CallState.ABORTED, CallKind.MAIN, True, 0.0)
    assert split_choices([first]) == [1, 2]
    assert split_choices([retried, first, aside]) == [1, 2]
    assert split_choices([first, later]) == []
    assert split_choices([later]) == []
    assert split_choices([]) == []


# --- attempts at one turn


def attempt(id_: str, count: int, *, complete: bool = True, continued: bool = False, at: float = 0.0) -> RetryAttempt:
    return RetryAttempt(id_, count, CallState.COMPLETE if complete else CallState.ABORTED, at, continued)


def test_a_retry_takes_the_place_of_an_attempt_that_nobody_went_on_with() -> None:
    assert find_superseded([attempt("first", 0, complete=False), attempt("again", 1)]) == {"first": "again"}
    assert find_superseded([attempt("first", 0), attempt("again", 1)]) == {"first": "again"}


def test_the_attempt_that_was_gone_on_with_is_the_turn() -> None:
    assert find_superseded([attempt("first", 0, continued=True), attempt("again", 1)]) == {"again": "first"}
    assert find_superseded([attempt("first", 0), attempt("again", 1, continued=True)]) == {"first": "again"}
    assert find_superseded([attempt("first", 0, continued=True), attempt("again", 1, continued=True)]) == {}


def test_a_chain_of_retries_is_one_turn() -> None:
    chain = [attempt("first", 0, complete=False), attempt("second", 1, complete=False), attempt("third", 2)]
    assert find_superseded(chain) == {"first": "third", "second": "third"}
    went_on = [attempt("first", 0, continued=True), attempt("second", 1), attempt("third", 2)]
    assert find_superseded(went_on) == {"second": "first", "third": "first"}


def test_a_broken_retry_does_not_replace_a_complete_answer() -> None:
    assert find_superseded([attempt("first", 0), attempt("again", 1, complete=False)]) == {"again": "first"}


def test_equal_requests_without_a_retry_are_separate_samples() -> None:
    assert find_superseded([attempt("one", 0), attempt("two", 0)]) == {}


def test_a_retry_answers_for_the_one_of_two_samples_that_broke() -> None:
    one, two = attempt("one", 0, at=1.0), attempt("two", 0, complete=False, at=0.5)
    assert find_superseded([one, two, attempt("again", 1, at=2.0)]) == {"two": "again"}


attempts = st.lists(
    st.builds(
        RetryAttempt,
        call_id=st.uuids().map(str),
        retry_count=st.integers(0, 3),
        state=st.sampled_from([CallState.COMPLETE, CallState.ABORTED]),
        started_at=st.floats(0, 10),
        continued=st.booleans(),
    ),
    max_size=6,
    unique_by=lambda a: a.call_id,
)


@given(attempts)
def test_settling_loses_no_turn_and_does_not_depend_on_order(made: list[RetryAttempt]) -> None:
    settled = find_superseded(made)
    by_id = {a.call_id: a for a in made}
    assert not any(by_id[loser].continued for loser in settled)
    assert not set(settled.values()) & set(settled)  # a winner is a turn
    firsts = [a for a in made if a.retry_count == min(b.retry_count for b in made)] if made else []
    assert len(made) - len(settled) >= len(firsts)
    assert find_superseded(list(reversed(made))) == settled

"""Which turn a follow-up answers, and what counts as one: a table, and properties."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.calls import Message, ParentCall
from recorder.states import CallState, Confidence, ToolOutcome, TrajectoryState
from recorder.views.follow_ups.events import FollowUpKind
from recorder.views.follow_ups.rules import (
    MOST_EVENTS,
    LinkedCall,
    TrajectoryEnd,
    attach_follow_ups,
    is_similar,
    is_tool_error,
    normal_form,
)
from recorder.views.trajectories.shapes import ToolCallView
from tests.recorder.talk import assistant, tool_result, user

END = TrajectoryEnd(TrajectoryState.COMPLETED, 100.0, None)


def call(
    number: int,
    parent: int | None = None,
    *tail: Message,
    trajectory: str = "traj_1",
    at: float | None = None,
    prompt: bytes | None = None,
    state: CallState = CallState.COMPLETE,
) -> LinkedCall:
    started = float(number) if at is None else at
    continued = None if parent is None else ParentCall(f"call_{parent}", 0)
    return LinkedCall(f"call_{number}", trajectory, continued, prompt, tail, state, started, started + 0.5)


def attached(
    own: Sequence[LinkedCall], others: Sequence[LinkedCall] = (), end: TrajectoryEnd = END
) -> list[tuple[str, str, str]]:
    found = attach_follow_ups(own, others, end)
    return [(str(one.kind), one.call_id, one.text) for one in found]


FIRST = call(1, None, user("Where is it?"), prompt=b"a")


@pytest.mark.parametrize(
    ("later", "expected"),
    [
        (call(2, 1, user("Thanks")), [("message", "Thanks")]),
        (call(2, 1, user("One"), user("Two")), [("message", "One\nTwo")]),
        (call(2, 1, tool_result("id", "found")), []),
        (call(2, 1, tool_result("id", "Error: none")), [("tool_error", "Error: none")]),
        (
            call(2, 1, tool_result("id", "Error: none"), user("Stop")),
            [("tool_error", "Error: none"), ("message", "Stop")],
        ),
        (call(2, 1, user("")), []),
        (call(2, None, user("Where is it?"), prompt=b"a"), [("retry", "Where is it?")]),
        (call(2, None, user("Where is it now?"), prompt=b"b"), [("edited", "Where is it now?")]),
        (call(2, None, user("Write a poem"), prompt=b"b"), []),
        (call(2, 7, user("Where is it?"), prompt=b"b"), []),
        # it was sent while the first was still being answered
        (call(2, None, user("Where is it?"), prompt=b"a", at=1.2), []),
    ],
)
def test_what_came_next_of_another_trajectory(later: LinkedCall, expected: list[tuple[str, str]]) -> None:
    other = LinkedCall(**{name: getattr(later, name) for name in later.__slots__} | {"trajectory_id": "traj_2"})
    assert attached([FIRST], [other]) == [(kind, "call_1", text) for kind, text in expected]


def test_an_answer_that_goes_on_was_not_retried() -> None:
    again = call(2, None, user("Where is it?"), prompt=b"a", trajectory="traj_2")
    goes_on = call(3, 1, user("Thanks"), trajectory="traj_3")
    assert attached([FIRST], [again, goes_on]) == [("message", "call_1", "Thanks")]


def test_an_answer_that_the_client_cut_off_is_left_unless_something_came_next() -> None:
    broken = call(1, None, user("Where is it?"), state=CallState.ABORTED)
    assert [kind for kind, _, _ in attached([broken])] == ["abandoned"]
    found = attached([broken], [call(2, 1, user("Stop, not that"), trajectory="traj_2")])
    assert found == [("message", "call_1", "Stop, not that")]


@pytest.mark.parametrize(
    ("result", "more"),
    [
        (tool_result("id_1", "Error: something else"), []),  # the same call
        (tool_result("other", "Error: no such order (404)"), []),  # the same words
        (tool_result("other", "Error: it is down"), ["Error: it is down"]),
    ],
)
def test_an_error_that_the_gateway_saw_is_told_once(result: dict[str, Any], more: list[str]) -> None:
    failed = ToolCallView(
        "tool_1", "traj_1", "call_1", 0, "id_1", "tool_call_id", Confidence.EXACT, "orders", "find", "find", {},
        ToolOutcome.FAILED, None, "no such order", None, 1.5, 1.6,
    )  # fmt: skip
    end = TrajectoryEnd(TrajectoryState.COMPLETED, 9.0, None, tool_calls=[failed])
    found = attached([FIRST], [call(2, 1, result, trajectory="traj_2")], end)
    assert found == [("tool_error", "call_1", text) for text in ("no such order", *more)]


def test_a_call_that_failed_was_no_answer() -> None:
    failed = call(1, None, user("Where is it?"), state=CallState.ERRORED)
    assert attached([failed], [call(2, 1, user("Thanks"), trajectory="traj_2")]) == []


def test_a_trajectory_that_is_open_is_not_abandoned() -> None:
    assert attached([FIRST], end=TrajectoryEnd(TrajectoryState.OPEN, None, None, waits_for_tools=True)) == []
    assert len(attached([FIRST], end=TrajectoryEnd(TrajectoryState.COMPLETED, 9.0, None, waits_for_tools=True))) == 1


def test_the_earliest_follow_ups_are_kept_and_each_once() -> None:
    many = [call(n, 1, user(f"word {n}"), trajectory="traj_2") for n in range(2, 9)]
    twice = call(9, 1, user("WORD  2!"), trajectory="traj_3", at=1.9)
    found = attached([FIRST], [*many, twice])
    assert [text for _, _, text in found] == ["WORD  2!", "word 3", "word 4", "word 5"]
    assert len(found) == MOST_EVENTS


@pytest.mark.parametrize(
    ("message", "error"),
    [
        (tool_result("id", "Error: no such order"), True),
        (tool_result("id", "  KeyError: 'x'"), True),
        (tool_result("id", "json.decoder.JSONDecodeError: line 1"), True),
        (tool_result("id", "Traceback (most recent call last):\n  File"), True),
        (tool_result("id", '{"error": "no such order"}'), True),
        (tool_result("id", '{"isError": true, "content": []}'), True),
        (tool_result("id", '{"error": null, "order": 1}'), False),
        (tool_result("id", '{"error'), False),
        (tool_result("id", "Error handling in Python"), False),
        (tool_result("id", "no error"), False),
        ({**tool_result("id", "it is down"), "is_error": True}, True),
        ({"role": "tool", "tool_call_id": "id", "content": [{"type": "text", "text": "Error: x"}]}, True),
        ({"role": "tool", "tool_call_id": "id", "content": None}, False),
        (user("Error: x"), False),
        (assistant("Error: x"), False),
    ],
)
def test_a_tools_error_is_known_by_its_mark_or_by_how_it_begins(message: dict[str, Any], error: bool) -> None:
    assert is_tool_error(message) is error


@pytest.mark.parametrize(
    ("one", "other", "similar"),
    [
        ("Where is order 4821?", "where is ORDER 4821", True),
        ("Where is order 4821?", "Where is my order 4821 now?", True),
        ("Where is order 4821?", "Write a poem", False),
        ("", "", False),
        ("?!", "?!", False),
    ],
)
def test_texts_that_share_half_of_their_words_are_similar(one: str, other: str, similar: bool) -> None:
    assert is_similar(one, other) is similar
    assert is_similar(other, one) is similar


texts = st.sampled_from(["", "Thanks", "No, wrong", "Where is it?", "Error: x"])
tails = st.lists(st.one_of(texts.map(user), texts.map(lambda text: tool_result("id", text))), max_size=3)


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[LinkedCall], list[LinkedCall]]:
    """Calls of three trajectories; each continues an earlier call, or begins a conversation."""
    calls: list[LinkedCall] = []
    for number in range(draw(st.integers(1, 8))):
        parent = draw(st.none() | st.integers(0, number - 1)) if number else None
        state = draw(st.sampled_from([CallState.COMPLETE, CallState.COMPLETE, CallState.ABORTED]))
        prompt, home = draw(st.sampled_from([b"a", b"b"])), draw(st.sampled_from(["traj_1", "traj_2", "traj_3"]))
        calls.append(call(number, parent, *draw(tails), trajectory=home, prompt=prompt, state=state))
    return [one for one in calls if one.trajectory_id == "traj_1"], [
        one for one in calls if one.trajectory_id != "traj_1"
    ]


@given(trees(), st.randoms(use_true_random=False))
def test_every_follow_up_is_attached_once_to_an_earlier_answer_of_the_trajectory(
    tree: tuple[list[LinkedCall], list[LinkedCall]], random: Any
) -> None:
    own, others = tree
    found = attach_follow_ups(own, others, END)
    by_id = {one.id: one for one in own}
    sources = {one.id: one for one in (*own, *others)}
    for one in found:
        answered = by_id[one.call_id]
        assert one.at >= answered.started_at
        if one.kind in (FollowUpKind.MESSAGE, FollowUpKind.TOOL_ERROR):
            source = sources[one.source_call_id or ""]
            assert source.parent == ParentCall(one.call_id, one.choice)
            assert source.trajectory_id == one.source_trajectory_id
        elif one.kind in (FollowUpKind.RETRY, FollowUpKind.EDITED):
            assert sources[one.source_call_id or ""].parent == answered.parent
            assert not any(other.parent == ParentCall(answered.id, 0) for other in sources.values())
    for call_id in by_id:
        events = [one for one in found if one.call_id == call_id]
        assert len(events) <= MOST_EVENTS
        assert len({(one.kind, normal_form(one.text) or one.text) for one in events}) == len(events)
        assert all(first.at <= second.at for first, second in pairwise(events))
    shuffled_own, shuffled = list(own), list(others)
    random.shuffle(shuffled_own)
    random.shuffle(shuffled)
    assert attach_follow_ups(shuffled_own, shuffled, END) == found

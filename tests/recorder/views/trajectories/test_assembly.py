"""What a run's last conversation does not tell: found again, once, and in order."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.states import CallKind
from recorder.views.trajectories.assembly import HistoryBranch, other_histories

MAIN, SUB = CallKind.MAIN, CallKind.SUB


class Run:
    """Conversations as nodes, each message under the hash of all up to it."""

    def __init__(self) -> None:
        self.nodes: dict[bytes, tuple[bytes | None, dict[str, Any]]] = {}
        self.branches: list[HistoryBranch] = []
        self.last: bytes | None = None

    def call(self, *messages: dict[str, Any], kind: CallKind = MAIN) -> None:
        node: bytes | None = None
        for message in messages:
            above, node = node, hashlib.sha256((node or b"") + json.dumps(message).encode()).digest()
            self.nodes[node] = (above, message)
        assert node is not None
        self.branches.append(HistoryBranch(node, kind, float(len(self.branches))))
        if kind is MAIN:
            self.last = node

    def told(self) -> list[tuple[CallKind, list[str]]]:
        found = other_histories(self.nodes, self.last, self.branches)
        return [(one.kind, [str(message.get("content")) for message in one.messages]) for one in found]


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def test_a_conversation_that_only_grows_has_no_other_history() -> None:
    run = Run()
    run.call(user("a"), said("b"))
    run.call(user("a"), said("b"), user("c"), said("d"))
    assert run.told() == []


def test_a_turn_that_was_deleted_is_told() -> None:
    run = Run()
    call = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "1", "function": {"name": "rm", "arguments": ""}}],
    }
    run.call(user("a"), call)
    run.call(user("a"), call, {"role": "tool", "tool_call_id": "1", "content": "gone"}, said("oops"))
    run.call(user("a"), said("All is well."))
    assert run.told() == [(MAIN, ["", "gone", "oops"])]


def test_what_was_summarised_is_told() -> None:
    run = Run()
    run.call(user("task"), said("one"))
    run.call(user("task"), said("one"), user("go on"), said("two"))
    run.call(user("summary: one, two"), said("three"))
    assert run.told() == [(MAIN, ["task", "one", "go on", "two"])]


def test_a_sub_agent_is_told_as_such_and_histories_in_the_order_of_their_ends() -> None:
    run = Run()
    run.call(user("task"), said("ask helper"))
    run.call(user("helper, look"), said("found"), kind=SUB)
    run.call(user("task"), said("ask helper"), user("found"), said("done"))
    run.call(user("later"), said("last"))
    assert run.told() == [(SUB, ["helper, look", "found"]), (MAIN, ["task", "ask helper", "found", "done"])]


def test_a_window_that_slides_tells_each_turn_once() -> None:
    run = Run()
    turns = [user("task")] + [one for n in range(9) for one in (user(f"u{n}"), said(f"a{n}"))]
    for end in range(3, len(turns) + 1, 2):
        run.call(turns[0], *turns[max(1, end - 4) : end])
    told = [text for _, texts in run.told() for text in texts]
    assert told == [turn["content"] for turn in turns[1 : len(turns) - 4]]


def test_an_answer_that_came_back_changed_at_its_ends_is_no_other_history() -> None:
    run = Run()
    run.call(user("a"), said(" yes \n"))
    run.call(user("a"), said("yes"), user("b"), said("no"))
    run.call(user("a"), said("yes"), user("b"), said("no\n[note of the agent]"), user("c"), said("d"))
    assert run.told() == []


def test_an_answer_that_came_back_as_another_is_told() -> None:
    run = Run()
    run.call(user("a"), said("I deleted it."))
    run.call(user("a"), said("I kept it."), user("b"), said("no"))
    assert run.told() == [(MAIN, ["I deleted it."])]


TURNS = st.lists(st.sampled_from([user("a"), user("b"), said("x"), said("y"), said("z")]), min_size=1, max_size=6)


@given(st.lists(st.tuples(TURNS, st.sampled_from([MAIN, SUB])), min_size=1, max_size=6))
def test_no_turn_is_lost_and_no_history_is_empty(conversations: list[tuple[list[dict[str, Any]], CallKind]]) -> None:
    run = Run()
    for messages, kind in conversations:
        run.call(*messages, kind=kind)
    told = [texts for _, texts in run.told()]
    main: list[str] = []
    node = run.last
    while node is not None:
        node, message = run.nodes[node]
        main.append(message["content"])
    assert all(told)
    assert {m["content"] for messages, _ in conversations for m in messages} == {*main, *(t for ts in told for t in ts)}

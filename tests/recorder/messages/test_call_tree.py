"""Which calls of a run are main, which are sub-agents', which are errands: the rule, and what it does in a store."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.call_tree import CallFacts, ThreadTexts, side_call_kinds
from recorder.messages.calls import Address
from recorder.states import CallKind
from recorder.store.database import Store
from recorder.views.trajectories import transcripts
from tests.recorder.talk import PROJECT, Talk, choice, tool_result, tool_turn, user

OWN, OTHER = b"own tools", b"other tools"
FIND = [{"type": "function", "function": {"name": "find"}}]
SEARCH = [{"type": "function", "function": {"name": "search"}}]


def call(
    id_: str,
    began: float,
    ended: float,
    *,
    after: str | None = None,
    tools: bytes | None = OWN,
    calls_tools: bool = False,
) -> CallFacts:
    return CallFacts(id_, after, tools, began, ended, calls_tools)


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 9), st.integers(-1, 8), st.booleans()), min_size=1, max_size=9
    ),
    st.sampled_from([None, OWN]),
)
def test_calls_that_all_have_the_same_tools_are_all_main(
    made: list[tuple[int, int, int, bool]], tools: bytes | None
) -> None:
    calls = [
        call(f"c{n}", began, began + took, after=f"c{after}" if 0 <= after < n else None, tools=tools, calls_tools=asks)
        for n, (began, took, after, asks) in enumerate(made)
    ]
    assert side_call_kinds(calls, {}) == {}


@given(st.lists(st.sampled_from([None, OWN, OTHER]), min_size=1, max_size=8))
def test_turns_that_go_on_from_each_other_are_all_main_whatever_their_tools(tools: list[bytes | None]) -> None:
    calls = [
        call(f"c{n}", n, n + 0.5, after=f"c{n - 1}" if n else None, tools=some, calls_tools=True)
        for n, some in enumerate(tools)
    ]
    assert side_call_kinds(calls, {}) == {}


@given(st.lists(st.sampled_from([None, OWN, OTHER]), min_size=1, max_size=8))
def test_stages_that_follow_one_another_are_all_main(tools: list[bytes | None]) -> None:
    calls = [call(f"c{n}", n, n + 0.5, tools=some) for n, some in enumerate(tools)]
    assert side_call_kinds(calls, {}) == {}


def test_a_thread_of_other_tools_while_the_main_one_waits_is_a_sub_agents() -> None:
    calls = [
        call("m1", 0, 1, calls_tools=True),
        call("s1", 2, 3, tools=OTHER, calls_tools=True),
        call("s2", 4, 5, after="s1", tools=OTHER),
        call("m2", 6, 7, after="m1"),
    ]
    assert side_call_kinds(calls, {}) == {"s1": CallKind.SUB, "s2": CallKind.SUB}
    assert side_call_kinds(calls[:-1], {}) == {}  # the main thread never goes on: a stage that follows


def test_a_thread_without_tools_while_the_main_one_waits_or_runs_is_auxiliary() -> None:
    calls = [call("m1", 0, 3, calls_tools=True), call("t", 1, 2, tools=None), call("m2", 6, 7, after="m1")]
    assert side_call_kinds(calls, {}) == {"t": CallKind.AUX}
    about = {"m1": ThreadTexts(user="Fix it"), "t": ThreadTexts(prompt="A title for: Fix it")}
    assert side_call_kinds(calls[:2], about) == {"t": CallKind.AUX}
    assert side_call_kinds(calls[:2], {}) == {}
    while_it_waits = [calls[0], call("t", 4, 5, tools=None), calls[2]]
    assert side_call_kinds(while_it_waits, {}) == {"t": CallKind.AUX}


def test_a_title_that_is_asked_for_first_is_auxiliary_and_a_plan_is_not() -> None:
    calls = [call("t", 0, 1, tools=None), call("m", 2, 3)]
    title = {"t": ThreadTexts("Fix it", "Topic of: Fix it", "Repair"), "m": ThreadTexts("Fix it", "Fix it", "done")}
    assert side_call_kinds(calls, title) == {"t": CallKind.AUX}
    plan = {"t": title["t"], "m": ThreadTexts("Fix it", "Fix it. The plan: Repair", "done")}
    assert side_call_kinds(calls, plan) == {}
    unrelated = {"t": title["t"], "m": ThreadTexts("Something else", "Something else", "done")}
    assert side_call_kinds(calls, unrelated) == {}


# --- in a store

AT = Address(trajectory="run")


async def kinds(store: Store, talk: Talk, trajectory_id: str) -> dict[str, str]:
    await talk.recorder.close(PROJECT, trajectory_id)
    view = await transcripts.load_trajectory(store, trajectory_id)
    return {c.id: c.call_kind for c in view.calls}


def calls_tool(id_: str) -> list[Any]:
    return [choice(tool_turn(id_), finish_reason="tool_calls")]


async def test_a_sub_agent_is_trained_and_is_not_the_leaf(store: Store, talk: Talk) -> None:
    history = [user("Do it"), tool_turn("task-1"), tool_result("task-1")]
    first = await talk.call(history[:1], calls_tool("task-1"), AT, tools=FIND)
    sub = await talk.call([user("The task")], "Its answer", AT, tools=SEARCH)
    last = await talk.call(history, "Done", AT, tools=FIND)
    late = await talk.call([user("A title")], "Title", AT)  # nothing goes on behind it: a stage that follows
    assert await kinds(store, talk, first.attribution.trajectory.id) == {
        first.call_id: "main", sub.call_id: "sub", last.call_id: "main", late.call_id: "main"
    }  # fmt: skip
    view = await transcripts.load_trajectory(store, first.attribution.trajectory.id)
    assert all(c.choices[0].trainable for c in view.calls)


async def test_an_errand_is_neither_trained_nor_the_leaf(store: Store, talk: Talk) -> None:
    title = await talk.call([user("Topic of: Do it")], "Work", AT)
    first = await talk.call([user("Do it")], calls_tool("task-1"), AT, tools=FIND)
    home = first.attribution.trajectory.id
    view = await transcripts.load_trajectory(store, home)
    assert [c.call_kind for c in view.calls] == ["main", "main"]  # not yet settled
    summary = await talk.call([user("Sum up")], "So far so good", AT)
    last = await talk.call([user("Do it"), tool_turn("task-1"), tool_result("task-1")], "Done", AT, tools=FIND)
    assert await kinds(store, talk, home) == {
        title.call_id: "aux", first.call_id: "main", summary.call_id: "aux", last.call_id: "main"
    }  # fmt: skip
    view = await transcripts.load_trajectory(store, home)
    reasons = {c.id: c.choices[0].untrainable_reason for c in view.calls}
    assert [reasons[c.call_id] for c in (title, first, summary, last)] == ["auxiliary_call", None] * 2
    assert view.main_path == [(first.call_id, 0), (last.call_id, 0)]


async def test_an_errand_that_was_the_leaf_gives_it_back(store: Store, talk: Talk) -> None:
    first = await talk.call([user("Do it")], "Done", AT, tools=FIND, started_at=1.0, finished_at=4.0)
    errand = await talk.call([user("Topic of: Do it")], "Work", AT, started_at=2.0, finished_at=3.0)
    home = first.attribution.trajectory.id
    before = await transcripts.load_trajectory(store, home)
    assert before.main_path == [(errand.call_id, 0)]
    assert await kinds(store, talk, home) == {first.call_id: "main", errand.call_id: "aux"}
    after = await transcripts.load_trajectory(store, home)
    assert after.main_path == [(first.call_id, 0)]


async def test_who_says_the_kinds_is_believed_throughout(store: Store, talk: Talk) -> None:
    stated = Address(trajectory="run", call_kind=CallKind.MAIN)
    title = await talk.call([user("Topic of: Do it")], "Work", stated)
    first = await talk.call([user("Do it")], calls_tool("task-1"), AT, tools=FIND)
    assert await kinds(store, talk, first.attribution.trajectory.id) == {
        title.call_id: "main", first.call_id: "main"
    }  # fmt: skip

"""A run as a conversation: results beside what asked for them, and branches where they begin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.calls import Message, SamplingParameters
from recorder.states import CallKind, CallState, Confidence, Origin, Purpose, ToolOutcome, TrajectoryState
from recorder.views.trajectories.shapes import CallView, ChoiceView, ToolCallView, TrajectoryView
from recorder.views.trajectory_detail.conversation import (
    AUXILIARY,
    DROPPED,
    RETRY,
    SUB_AGENT,
    AnswerFacts,
    Conversation,
    build_conversation,
)
from tests.recorder.talk import assistant, tool_result, tool_turn, user

SYSTEM: Message = {"role": "system", "content": "Be brief."}


def call(id_: str, messages: Sequence[Message], *answers: Message, at: float = 0.0, **changes: Any) -> CallView:
    choices = [ChoiceView(i, answer, None, None, "stop", True, None) for i, answer in enumerate(answers)]
    fields: dict[str, Any] = dict.fromkeys(CallView.__slots__)
    fields |= {
        "id": id_, "trajectory_id": "run", "state": CallState.COMPLETE, "call_kind": CallKind.MAIN,
        "attribution_source": "path", "attribution_confidence": Confidence.STATED, "model": "helpdesk",
        "sampling": SamplingParameters(), "messages": list(messages), "rest": {}, "choices": choices, "retry_count": 0,
        "started_at": at, "finished_at": at + 0.5,
    }  # fmt: skip
    return CallView(**fields | changes)


def run(messages: Sequence[Message], calls: Sequence[CallView], path: Sequence[str], **changes: Any) -> TrajectoryView:
    fields: dict[str, Any] = {
        "id": "run", "project_id": "default", "external_id": None, "group_id": None, "alias_id": None,
        "state": TrajectoryState.COMPLETED, "end_reason": None, "purpose": Purpose.TRAIN, "origin": Origin.LIVE,
        "selection": None, "continues": None, "forked_from_call": None, "version_id": None, "mixed": False, "tags": {},
        "started_at": 0.0, "last_call_at": 9.0, "ended_at": 9.0, "tools": None, "messages": messages, "calls": calls,
        "main_path": [(id_, 0) for id_ in path], "feedback": (), "scenario": None,
    }  # fmt: skip
    return TrajectoryView(**fields | changes)


def worked(call_id: str | None, tool_call_id: str | None) -> ToolCallView:
    fields: dict[str, Any] = dict.fromkeys(ToolCallView.__slots__)
    fields |= {
        "id": f"tool-{call_id}-{tool_call_id}",
        "call_id": call_id,
        "choice": 0,
        "tool_call_id": tool_call_id,
        "name": "find",
    }
    fields |= {"outcome": ToolOutcome.COMPLETE, "started_at": 0.6, "finished_at": 0.9}
    return ToolCallView(**fields)


def told(view: TrajectoryView, **facts: Any) -> Conversation:
    return build_conversation(view, AnswerFacts(**facts))


ASKED = [SYSTEM, user("Where is it?")]
FIRST = tool_turn("a", "b")
THEN = [*ASKED, FIRST, tool_result("b", "two"), tool_result("a", "one")]
LAST = assistant("On Monday.")


def two_calls(*more: CallView, **changes: Any) -> TrajectoryView:
    calls = [call("c1", ASKED, FIRST, at=0), call("c2", THEN, LAST, at=1, parent_call_id="c1", parent_choice=0), *more]
    return run([*THEN, LAST], calls, ["c1", "c2"], **changes)


def test_results_stand_beside_what_asked_for_them() -> None:
    turns = told(two_calls()).messages
    assert [turn.role for turn in turns] == ["system", "user", "assistant", "assistant"]
    results = [(one.id, one.result and one.result.texts) for one in turns[2].tool_calls]
    assert results == [("a", ("one",)), ("b", ("two",))]
    assert [turn.sampled and turn.sampled.call_id for turn in turns] == [None, None, "c1", "c2"]


def test_a_tool_call_stands_with_the_request_it_answers_and_one_that_answers_none_apart() -> None:
    work = (worked("c1", "b"), worked("c1", None), worked(None, None))
    found = told(two_calls(tool_calls=work))
    turn = found.messages[2]
    assert [len(one.gateway_calls) for one in turn.tool_calls] == [0, 1]
    assert (turn.gateway_calls, found.unplaced_tool_calls) == ((work[1],), (work[2],))


def test_tool_calls_are_counted_whether_or_not_they_went_through_the_gateway() -> None:
    assert told(two_calls()).count_tool_calls() == 2
    assert told(two_calls(tool_calls=(worked("c1", "a"), worked("c1", "b")))).count_tool_calls() == 2
    assert told(two_calls(tool_calls=(worked("c1", "a"), worked(None, None)))).count_tool_calls() == 3
    sub = call("s1", [user("Find 4821")], tool_turn("c"), at=0.6, call_kind=CallKind.SUB)
    repeated = call("c0", ASKED, FIRST, at=0, superseded_by="c1")
    assert told(two_calls(sub, repeated)).count_tool_calls() == 3
    assert told(run(ASKED, [], [])).count_tool_calls() == 0


def test_a_result_that_nobody_asked_for_is_a_turn_of_its_own() -> None:
    messages = [*ASKED, assistant("Well."), tool_result("x", "stray"), user("And?")]
    found = told(run(messages, [], []))
    assert [turn.role for turn in found.messages] == ["system", "user", "assistant", "tool", "user"]


def test_a_request_that_was_sent_again_is_a_branch_behind_its_question() -> None:
    retried = call("c0", ASKED, at=0, state=CallState.ABORTED, superseded_by="c1")
    found = told(two_calls(retried))
    [branch] = found.messages[1].branches
    assert (branch.kind, branch.calls) == (RETRY, 1)
    [answer] = branch.messages
    assert answer.sampled is not None
    assert (answer.sampled.state, answer.sampled.why) == (CallState.ABORTED, "not_complete")


def test_a_sub_agent_is_a_branch_behind_the_turn_that_it_began_after_with_all_its_turns() -> None:
    task = [{"role": "system", "content": "Search."}, user("Find 4821")]
    more = [*task, assistant("Which?"), user("This.")]
    sub = [
        call("s1", task, assistant("Which?"), at=0.6, call_kind=CallKind.SUB),
        call("s2", more, assistant("Here."), at=0.7, call_kind=CallKind.SUB, parent_call_id="s1", parent_choice=0),
    ]
    [branch] = told(two_calls(*sub)).messages[2].branches
    assert (branch.kind, branch.calls) == (SUB_AGENT, 2)
    assert [turn.sampled and turn.sampled.call_id for turn in branch.messages] == [None, None, "s1", None, "s2"]


def test_an_errand_before_the_first_answer_stands_behind_the_question() -> None:
    errand = call("e", [user("A title, please")], assistant("Parcels"), at=-0.1, call_kind=CallKind.AUX)
    assert [branch.kind for branch in told(two_calls(errand)).messages[1].branches] == [AUXILIARY]


def test_turns_that_the_agent_cut_are_a_branch_where_the_conversation_parts() -> None:
    other = call("c3", [*ASKED, assistant("No idea."), user("Try!")], assistant("Monday?"), at=0.8)
    [branch] = told(two_calls(other)).messages[1].branches
    assert branch.kind == DROPPED
    assert [turn.texts for turn in branch.messages] == [("No idea.",), ("Try!",), ("Monday?",)]


def test_two_ends_of_one_branch_tell_its_beginning_once() -> None:
    task = [{"role": "system", "content": "Search."}, user("Find 4821")]
    first = call("s1", task, assistant("Which?"), at=0.6, call_kind=CallKind.SUB)
    ends = [
        call(f"s{n}", [*task, assistant("Which?"), user(f"No {n}.")], assistant("Here."), at=0.6 + n / 100,
             call_kind=CallKind.SUB, parent_call_id="s1", parent_choice=0)
        for n in (2, 3)
    ]  # fmt: skip
    one, other = told(two_calls(first, *ends)).messages[2].branches
    assert [turn.at for turn in one.messages] == [0, 1, 2, 3, 4]
    assert [turn.at for turn in other.messages] == [3, 4]


def test_answers_that_the_agent_did_not_go_on_with_stand_beside_the_one_it_did() -> None:
    both = call("c1", ASKED, assistant("Yes"), assistant("No"))
    [*_, turn] = told(run([*ASKED, assistant("Yes")], [both], ["c1"])).messages
    assert [other.texts for other in turn.unselected_choices] == [("No",)]


def test_a_run_without_an_answer_tells_what_was_asked_and_that_none_came() -> None:
    failed = call("c1", ASKED, state=CallState.ERRORED, error="the engine is gone")
    found = told(run(ASKED, [failed], []))
    [branch] = found.messages[-1].branches
    assert branch.kind == "errored"
    assert branch.messages[-1].sampled is not None
    assert branch.messages[-1].sampled.error == "the engine is gone"


def test_calls_without_a_conversation_stand_apart() -> None:
    errand = call("e", [user("A title, please")], assistant("Parcels"), call_kind=CallKind.AUX)
    found = told(run([], [errand], []))
    assert (found.messages, [branch.kind for branch in found.unplaced_branches]) == ((), [AUXILIARY])


def test_an_answer_is_trained_on_where_its_run_was_and_the_trainer_passed_over_nothing() -> None:
    sampled = [
        t.sampled for t in told(two_calls(), trained=True, skipped={("c1", 0): "over_age"}).messages if t.sampled
    ]
    assert [(one.trained, one.why) for one in sampled] == [(False, "over_age"), (True, None)]


def test_media_are_named_and_never_shown() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
    content = [{"type": "text", "text": "Look:"}, picture]
    [turn] = told(run([{"role": "user", "content": content}], [], [])).messages
    assert turn.texts == ("Look:",)
    assert turn.media[0].startswith("image_url, 5,0")


anything = st.recursive(st.none() | st.booleans() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "id", "function", "name", "arguments"]), inner, max_size=3), max_leaves=6)  # fmt: skip  # noqa: E501 - one strategy
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "tool", "odd"])},
    optional={"content": anything, "tool_calls": anything, "tool_call_id": anything, "reasoning": anything},
)


@given(st.lists(messages, max_size=6))
def test_whatever_a_conversation_holds_is_told_each_message_once(said: list[Message]) -> None:
    turns = told(run(said, [], [])).messages
    results = [one.result.at for turn in turns for one in turn.tool_calls if one.result is not None]
    assert sorted([turn.at for turn in turns] + results) == list(range(len(said)))

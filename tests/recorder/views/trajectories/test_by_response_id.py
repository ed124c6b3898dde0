"""Calls found by the ids of their answers, and the conversations up to them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address
from recorder.states import CallState
from recorder.store.database import Project, Store
from recorder.views.trajectories import by_response_id
from tests.recorder.talk import PROJECT, Talk, assistant, choice, tool_result, tool_turn, user

AT = Address(trajectory="run-1")


def given(response_id: str, kind: str = "response") -> dict[str, Any]:
    return {"issued_ids": [(response_id, kind, 0)]}


async def test_a_call_is_found_by_the_id_of_its_answer(store: Store, talk: Talk) -> None:
    made = await talk.call([user("?")], "42", AT, rest={"metadata": {}}, **given("resp_1"))
    found = await by_response_id.find_answered_call(Project(store, PROJECT), "resp_1")
    assert found is not None
    assert (found.call.id, found.call.messages, found.call.rest) == (made.call_id, [user("?")], {"metadata": {}})
    assert found.choice is not None
    assert found.choice.message == assistant("42")
    assert await by_response_id.find_answered_call(Project(store, "other"), "resp_1") is None
    assert await by_response_id.find_answered_call(Project(store, PROJECT), "resp_2") is None


async def test_an_id_of_another_kind_is_no_answers(store: Store, talk: Talk) -> None:
    await talk.call([user("?")], "42", AT, **given("call_1", "tool_call"))
    assert await by_response_id.find_answered_call(Project(store, PROJECT), "call_1") is None
    assert not await by_response_id.forget_response_id(Project(store, PROJECT), "call_1")


async def test_what_many_answers_said_is_found_at_once(store: Store, talk: Talk) -> None:
    await talk.call([user("?")], {**assistant("42"), "reasoning": "hm"}, AT, response_meta={"a": 1}, **given("resp_1"))
    await talk.call([user("!")], [], AT, state=CallState.ERRORED, **given("resp_2"))
    said = await by_response_id.load_answers(Project(store, PROJECT), ["resp_1", "resp_2", "resp_3"])
    assert said.keys() == {"resp_1", "resp_2"}
    assert said["resp_1"].message == {**assistant("42"), "reasoning": "hm"}
    assert (said["resp_1"].meta["a"], said["resp_1"].streamed) == (1, False)
    assert said["resp_2"].message is None
    assert await by_response_id.load_answers(Project(store, "other"), ["resp_1"]) == {}


async def test_a_forgotten_answer_stays_recorded(store: Store, talk: Talk, recorder: Recorder) -> None:
    made = await talk.call([user("?")], "42", AT, **given("resp_1"))
    assert not await by_response_id.forget_response_id(Project(store, "other"), "resp_1")
    assert await by_response_id.forget_response_id(Project(store, PROJECT), "resp_1")
    recorder.forget_issued(PROJECT, "resp_1")
    assert await by_response_id.find_answered_call(Project(store, PROJECT), "resp_1") is None
    assert await recorder.find.answered(PROJECT, "resp_1") is None
    assert not await by_response_id.forget_response_id(Project(store, PROJECT), "resp_1")
    later = await talk.call([user("?"), assistant("42"), user("And?")], "43", AT)
    assert later.attribution.parent is not None
    assert later.attribution.parent.call_id == made.call_id


async def test_an_answers_id_names_the_choice_and_the_run(talk: Talk, recorder: Recorder) -> None:
    made = await talk.call([user("?")], "42", **given("resp_1"))
    found = await recorder.find.answered(PROJECT, "resp_1")
    assert found is not None
    assert (found[0].call_id, found[0].choice) == (made.call_id, 0)
    assert found[1].id == made.attribution.trajectory.id
    assert await recorder.find.answered(PROJECT, "resp_2") is None


async def test_a_run_that_was_closed_is_continued(talk: Talk, recorder: Recorder) -> None:
    made = await talk.call([user("?")], "42", **given("resp_1"))
    await recorder.close(PROJECT, made.attribution.trajectory.id)
    found = await recorder.find.answered(PROJECT, "resp_1")
    assert found is not None
    assert found[1].id != made.attribution.trajectory.id
    assert await recorder.find.answered(PROJECT, "resp_1") == found


async def test_reasoning_comes_back_with_the_turns_that_it_was_sampled_with(store: Store, talk: Talk) -> None:
    system, asked = {"role": "system", "content": "Help."}, user("?")
    thought = {**tool_turn("chatcmpl-1"), "reasoning": "first"}
    one = await talk.call([system, asked], thought, AT)
    # without the system message, as another request of the same conversation may be
    history = [asked, tool_turn("chatcmpl-1"), tool_result("chatcmpl-1")]
    two = await talk.call(history, {**assistant("Done"), "reasoning": "second"}, AT)
    assert two.attribution.parent is not None
    assert two.attribution.parent.call_id == one.call_id
    history += [assistant("Done"), user("Thanks")]
    await talk.call(history, [choice(assistant("Bye"))], AT, **given("resp_3"))
    found = await by_response_id.find_answered_call(Project(store, PROJECT), "resp_3")
    assert found is not None
    messages = await by_response_id.add_reasoning(store, found.call)
    assert [m.get("reasoning") for m in messages] == [None, "first", None, "second", None]
    assert [{k: v for k, v in m.items() if k != "reasoning"} for m in messages] == history


async def test_reasoning_of_an_edited_turn_is_left_out(store: Store, talk: Talk) -> None:
    await talk.call([user("?")], {**assistant("42"), "reasoning": "hm"}, AT, **given("resp_1"))
    edited = [user("?"), assistant("43"), user("And?")]
    await talk.call(edited, "44", AT, **given("resp_2"))
    found = await by_response_id.find_answered_call(Project(store, PROJECT), "resp_2")
    assert found is not None
    assert await by_response_id.add_reasoning(store, found.call) == edited


@pytest.mark.parametrize("end", [CallState.COMPLETE, CallState.ABORTED])
async def test_a_call_is_shown_at_once_and_ends_as_ever(
    store: Store, talk: Talk, recorder: Recorder, end: CallState
) -> None:
    opened = await talk.attributed([user("?")], [], AT, state=CallState.OPEN, finished_at=None, **given("resp_1"))
    recorder.begin(opened)
    await recorder.show(opened)
    found = await by_response_id.find_answered_call(Project(store, PROJECT), "resp_1")
    assert found is not None
    assert (found.call.state, found.choice) == (CallState.OPEN, None)
    ended = await talk.attributed([user("?")], [choice(assistant("42"))], AT, state=end, **given("resp_1"))
    await recorder.commit(replace(ended, call_id=opened.call_id))
    found = await by_response_id.find_answered_call(Project(store, PROJECT), "resp_1")
    assert found is not None
    assert (found.call.id, found.call.state) == (opened.call_id, end)
    assert found.choice is not None

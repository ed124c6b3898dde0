"""What came next is attached to the answer that it is about, whichever trajectory recorded it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import update

from benchmarks.pages import listening, walks
from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address, RecordedCall
from recorder.queue.feedback import add_feedback
from recorder.states import CallState, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import calls, trajectories
from recorder.views.follow_ups.events import FollowUp
from recorder.views.follow_ups.loader import load_follow_ups
from recorder.views.trajectories.transcripts import load_trajectory
from tests.recorder.talk import PROJECT, Talk, assistant, tool_result, tool_turn, user

ASKED = user("Where is order 4821?")
HERE = Address(trajectory="chat-1")


async def follow_ups(store: Store, call: RecordedCall) -> list[FollowUp]:
    return await load_follow_ups(store, await load_trajectory(store, call.attribution.trajectory.id))


def facts(found: Sequence[FollowUp]) -> list[tuple[str, str, str]]:
    """Kind, answered call, words."""
    return [(str(one.kind), one.call_id, one.text) for one in found]


async def ended(talk: Talk, call: RecordedCall, reason: str = "idle") -> None:
    await talk.recorder.close(PROJECT, call.attribution.trajectory.id, TrajectoryState.COMPLETED, reason)


@pytest.mark.parametrize("address", [Address(), HERE], ids=["no address", "an address"])
@pytest.mark.parametrize("echo", ["It is lost.", "It is lost.\n"], ids=["verbatim", "with other white space"])
async def test_a_message_after_the_trajectory_ended_is_attached_to_its_last_answer(
    store: Store, talk: Talk, address: Address, echo: str
) -> None:
    first = await talk.call([ASKED], "It is lost.", address)
    await ended(talk, first)
    again = await talk.call([ASKED, assistant(echo), user("No, it is on its way.")], "Sorry.", address)
    assert again.attribution.trajectory.id != first.attribution.trajectory.id
    [found] = await follow_ups(store, first)
    assert facts([found]) == [("message", first.call_id, "No, it is on its way.")]
    assert (found.source_call_id, found.source_trajectory_id) == (again.call_id, again.attribution.trajectory.id)
    assert await follow_ups(store, again) == []


async def test_a_message_two_trajectories_later_is_attached_to_the_answer_before_it(store: Store, talk: Talk) -> None:
    said = [ASKED]
    made = []
    for answer, word in (("It is lost.", "Really?"), ("Yes.", "Who has it?"), ("Nobody.", "Thanks")):
        made.append(await talk.call(said, answer + " ", HERE))
        await ended(talk, made[-1])
        said = [*said, assistant(answer), user(word)]
    await talk.call(said, "You are welcome.", HERE)
    assert [facts(await follow_ups(store, one))[0][2] for one in made] == ["Really?", "Who has it?", "Thanks"]


async def test_a_message_in_the_same_trajectory_is_attached_to_the_answer_before_it(store: Store, talk: Talk) -> None:
    first = await talk.call([ASKED], "It is lost.")
    second = await talk.call([ASKED, assistant("It is lost."), user("Thanks")], "Good.")
    assert second.attribution.trajectory.id == first.attribution.trajectory.id
    assert facts(await follow_ups(store, first)) == [("message", first.call_id, "Thanks")]


async def test_a_tools_error_is_attached_to_the_answer_that_called_it(store: Store, talk: Talk) -> None:
    first = await talk.call([ASKED], tool_turn("call_1", "call_2"))
    await ended(talk, first, "idle")
    results = [tool_result("call_1", "Error: no such order"), tool_result("call_2", "found")]
    await talk.call([ASKED, tool_turn("call_1", "call_2"), *results], "It does not exist.")
    assert facts(await follow_ups(store, first)) == [("tool_error", first.call_id, "Error: no such order")]


async def test_a_result_after_the_end_is_known_by_its_id_behind_another_history(store: Store, talk: Talk) -> None:
    first = await talk.call([ASKED], tool_turn("call_1"), HERE)
    await ended(talk, first)
    shorter = [user("An order is missing"), tool_turn("call_1"), tool_result("call_1", "Error: no such order")]
    await talk.call(shorter, "It does not exist.", HERE)
    assert facts(await follow_ups(store, first)) == [("tool_error", first.call_id, "Error: no such order")]


async def test_the_same_request_again_is_a_retry_of_the_answer(store: Store, talk: Talk) -> None:
    await talk.call([ASKED], "It is lost.")
    history = [ASKED, assistant("It is lost."), user("Who has it?")]
    second = await talk.call(history, "Nobody.")
    await ended(talk, second)
    again = await talk.call(history, "The post office.")
    [found] = [one for one in await follow_ups(store, second) if one.call_id == second.call_id]
    assert (str(found.kind), found.call_id, found.source_call_id) == ("retry", second.call_id, again.call_id)


async def test_an_edited_and_resent_message_is_attached_to_the_answer_it_replaces(store: Store, talk: Talk) -> None:
    await talk.call([ASKED], "It is lost.")
    history = [ASKED, assistant("It is lost.")]
    second = await talk.call([*history, user("Who has it?")], "Nobody.")
    await ended(talk, second)
    await talk.call([*history, user("Which post office has it?")], "Bern.")
    found = [one for one in facts(await follow_ups(store, second)) if one[1] == second.call_id]
    assert found == [("edited", second.call_id, "Which post office has it?")]


@pytest.mark.parametrize(
    ("words", "kind"),
    [("Where is order 4821?", "retry"), ("So where is order 4821 now?", "edited"), ("Write a poem", None)],
)
async def test_a_first_message_sent_again_at_the_same_address_is_known(
    store: Store, talk: Talk, words: str, kind: str | None
) -> None:
    first = await talk.call([ASKED], "It is lost.", HERE)
    await ended(talk, first)
    await talk.call([user(words)], "It is here.", HERE)
    assert [str(one.kind) for one in await follow_ups(store, first)] == ([kind] if kind else [])


async def test_equal_first_messages_of_others_are_no_retries(store: Store, talk: Talk) -> None:
    first = await talk.call([ASKED], "It is lost.")
    await ended(talk, first)
    await talk.call([ASKED], "It is here.")
    assert await follow_ups(store, first) == []


async def test_both_answers_of_a_request_sent_twice_may_go_on(store: Store, talk: Talk) -> None:
    """Parallel samples of an agent are not retries."""
    one = await talk.call([ASKED], tool_turn("call_1"), HERE)
    two = await talk.call([ASKED], tool_turn("call_2"), HERE)
    await talk.call([ASKED, tool_turn("call_1"), tool_result("call_1")], "a", HERE)
    await talk.call([ASKED, tool_turn("call_2"), tool_result("call_2")], "b", HERE)
    assert await follow_ups(store, one) == [] == await follow_ups(store, two)


async def test_feedback_with_a_comment_is_attached_to_its_call_or_to_the_last_answer(store: Store, talk: Talk) -> None:
    first = await talk.call([ASKED], "It is lost.", HERE)
    second = await talk.call([ASKED, assistant("It is lost."), user("Who has it?")], "Nobody.", HERE)
    run, project = first.attribution.trajectory.id, Project(store, PROJECT)
    await add_feedback(project, run, "thumbs", False, call_id=first.call_id, comment="it was on its way")
    await add_feedback(project, run, "thumbs", True, comment="polite")
    await add_feedback(project, run, "solved", True)
    by_feedback = [one for one in await follow_ups(store, first) if one.name]
    assert facts(by_feedback) == [
        ("feedback", first.call_id, "it was on its way"),
        ("feedback", second.call_id, "polite"),
    ]
    assert [(one.name, one.value) for one in by_feedback] == [("thumbs", False), ("thumbs", True)]


@pytest.mark.parametrize(
    ("answer", "state", "changes", "why"),
    [
        (tool_turn("call_1"), TrajectoryState.COMPLETED, {}, "the answer called tools, and no result came"),
        ("It is lost.", TrajectoryState.ABANDONED, {}, "the trajectory was ended as abandoned"),
        (
            "It is",
            TrajectoryState.COMPLETED,
            {"state": CallState.ABORTED},
            "the client ended the connection before the answer was complete",
        ),
        ("It is lost.", TrajectoryState.COMPLETED, {}, None),
    ],
)
async def test_a_conversation_that_was_left_says_so(
    store: Store, talk: Talk, answer: Any, state: TrajectoryState, changes: dict[str, Any], why: str | None
) -> None:
    call = await talk.call([ASKED], answer, HERE, **changes)
    await talk.recorder.close(PROJECT, call.attribution.trajectory.id, state, "idle")
    assert facts(await follow_ups(store, call)) == ([("abandoned", call.call_id, why)] if why else [])


async def test_what_is_not_attributed_for_certain_is_attached_to_nothing(store: Store, talk: Talk) -> None:
    first = await talk.call([ASKED], "It is lost.")
    await ended(talk, first)
    again = await talk.call([ASKED, assistant("It is lost."), user("Thanks")], "Good.")
    async with store.write() as conn:
        doubt = update(calls).where(calls.c.id == again.call_id).values(attribution_confidence="ambiguous")
        await conn.execute(doubt)
    assert await follow_ups(store, first) == []


@pytest.mark.parametrize("change", [{"origin": "shadow"}, {"origin": "replay"}, {"made_by": "key_other"}])
async def test_neither_hones_own_calls_nor_those_of_another_key_are_attached(
    store: Store, talk: Talk, change: dict[str, str]
) -> None:
    first = await talk.call([ASKED], "It is lost.")
    await ended(talk, first)
    again = await talk.call([ASKED, assistant("It is lost."), user("Thanks")], "Good.")
    async with store.write() as conn:
        other = trajectories.c.id == again.attribution.trajectory.id
        await conn.execute(update(trajectories).where(other).values(**change))
    assert await follow_ups(store, first) == []


@pytest.mark.sqlite_only("its plans")
async def test_follow_ups_are_found_by_indexes_alone(store: Store, recorder: Recorder) -> None:
    talk = Talk(recorder)
    first = await talk.call([ASKED], "It is lost.", HERE)
    await ended(talk, first)
    await talk.call([ASKED, assistant("It is lost."), user("Thanks")], "Good.", HERE)
    view = await load_trajectory(store, first.attribution.trajectory.id)
    with listening(store) as heard:
        assert await load_follow_ups(store, view)
    assert len(heard) <= 6
    assert await walks(store, heard) == []

"""What the tools of Hone's own MCP server answer with: long conversations in parts, long texts cut, nothing lost."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.api.mcp.answers import MAX_PAGE, Transcript, build_transcript, next_page
from recorder.messages.calls import Message
from recorder.queue.judging.scores import NewPart
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.views.trajectories.shapes import FeedbackView, TrajectoryView
from tests.recorder.score_rows import stored_score


def run(*messages: Message, **more: Any) -> TrajectoryView:
    values: dict[str, Any] = {
        **dict.fromkeys((one.name for one in fields(TrajectoryView)), None),
        "id": "traj_1",
        "state": TrajectoryState.COMPLETED,
        "purpose": Purpose.TRAIN,
        "origin": Origin.LIVE,
        "tags": {"team": "support"},
        "started_at": 100.0,
        "messages": messages,
        "calls": [],
        "feedback": [],
    }
    return TrajectoryView(**values | more)


def pages(view: TrajectoryView, max_chars: int) -> list[Transcript]:
    found = [build_transcript(view, None, 0, max_chars)]
    while (at := found[-1].next_message) is not None:
        found.append(build_transcript(view, None, at, max_chars))
    return found


@given(st.lists(st.text(max_size=300), max_size=40), st.integers(100, 400))
def test_the_pages_of_a_conversation_are_all_of_it_and_none_is_too_long(texts: list[str], max_chars: int) -> None:
    found = pages(run(*({"role": "user", "content": text} for text in texts)), max_chars)
    said = [message for page in found for message in page.messages]
    assert [m.index for m in said] == list(range(len(texts)))
    assert [(m.text, m.cut) for m in said] == [(text[:max_chars], len(text) > max_chars) for text in texts]
    assert all(sum(len(m.text) for m in page.messages) <= max_chars for page in found)


def test_a_page_has_so_many_messages_at_the_most() -> None:
    found = pages(run(*[{"role": "user", "content": ""}] * (MAX_PAGE + 1)), 100)
    assert [len(page.messages) for page in found] == [MAX_PAGE, 1]


def test_what_is_not_text_is_shown_as_json() -> None:
    tool_call = {"function": {"name": "find"}}
    image: Message = {"role": "user", "content": [{"type": "image_url"}]}
    asked: Message = {"role": "assistant", "content": "Let me look.", "tool_calls": [tool_call], "refusal": None}
    huge: Message = {"role": "tool", "content": [2**70]}
    assert [m.text for m in build_transcript(run(image, asked, huge), None, 0, 1000).messages] == [
        '[{"type":"image_url"}]',
        'Let me look.\n{"tool_calls":[{"function":{"name":"find"}}]}',
        f"[{2**70}]",
    ]


def test_a_run_tells_its_own_score_the_reward_first_and_long_texts_are_cut() -> None:
    long = "x" * 5000
    score = stored_score(
        NewPart("traj_1", "check", 1.0), NewPart("traj_2", "reward", 0.0), NewPart("traj_1", "reward", 0.5, None, long)
    )
    view = run(feedback=[FeedbackView("comment", long, None, long, {}, 101.0)])
    told = build_transcript(view, score, 0, 100)
    assert [(o.name, o.value) for o in told.score] == [("reward", 0.5), ("check", 1.0)]
    [comment] = told.feedback
    assert {len(str(text)) for text in (told.score[0].text, comment.value, comment.text)} == {2000}
    assert (told.state, told.purpose, told.tags) == ("completed", "train", {"team": "support"})


def test_there_is_a_next_page_where_more_came_than_was_asked_for() -> None:
    assert next_page([1, 2, 3], 2, 10) == 12
    assert next_page([1, 2], 2, 10) is None

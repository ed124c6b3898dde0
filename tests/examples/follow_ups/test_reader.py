"""The scripted reader: what it understands, how often it errs, and that Hone can read its replies."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import httpx
import pytest

from examples.helpdesk.scripted_judge import PromptError, make_server
from examples.live.follow_ups.phrasings import FIRST_HALF, SECOND_HALF
from examples.live.follow_ups.reader import (
    CORRECTED,
    NAME,
    NOTHING,
    SATISFIED,
    handler_of,
    is_misread,
    read_text,
    reply_to,
)
from judge.llm.follow_up import Verdict, read_follow_up_reply
from judge.llm.follow_up_prompt import AnsweredTurn, build_follow_up_prompt
from judge.llm.group_text import PromptTrajectory
from recorder.views.follow_ups.events import FollowUp, FollowUpKind

ANSWER = {"role": "assistant", "content": "Your order 4821 arrives on Friday."}


def event(text: str, kind: FollowUpKind = FollowUpKind.MESSAGE, **facts: Any) -> FollowUp:
    return FollowUp(kind, "call_1", 0, text, 1.0, "traj_2", **facts)


def prompt(*events: FollowUp, question: str = "Where is my order 4821?") -> tuple[list[dict[str, str]], list[str]]:
    run = PromptTrajectory("traj_1", [{"role": "user", "content": question}, ANSWER])
    made = build_follow_up_prompt(run, [AnsweredTurn(ANSWER, events)], max_chars=10_000, rng=random.Random(1))
    return made.messages, list(made.ids)


def verdict(*events: FollowUp, error_rate: float = 0.0) -> str:
    """The reader's verdict, as Hone reads the reply."""
    messages, ids = prompt(*events)
    [found] = read_follow_up_reply(json.dumps(reply_to(messages, error_rate)), ids).values()
    assert "scripted reader" in found.reason
    return found.verdict


@pytest.mark.parametrize("text", [*FIRST_HALF.content, *SECOND_HALF.content])
def test_content_is_read_in_either_half(text: str) -> None:
    assert read_text(text) == SATISFIED == Verdict.SATISFIED


@pytest.mark.parametrize("text", [*FIRST_HALF.discontent, *SECOND_HALF.discontent])
def test_discontent_is_read_in_either_half(text: str) -> None:
    assert read_text(text) == CORRECTED == Verdict.CORRECTED


def test_other_words_say_nothing() -> None:
    assert read_text("What is the weather like?") == NOTHING == Verdict.NOTHING


def test_a_prompt_of_hone_is_answered_and_an_error_is_the_opposite() -> None:
    said = event("No, that is wrong.")
    assert verdict(said) == CORRECTED
    assert verdict(said, error_rate=1.0) == SATISFIED
    assert verdict(event("What is the weather like?"), error_rate=1.0) == NOTHING


def test_feedback_with_a_value_is_not_misread_and_a_demonstration_alone_is_no_verdict() -> None:
    for value, expected in ((1.0, SATISFIED), (0.0, CORRECTED)):
        stated = event("It arrives on Monday.", FollowUpKind.FEEDBACK, name="reference", value=value)
        assert verdict(stated, error_rate=1.0) == expected
        imitated = event("It arrives on Monday.", FollowUpKind.FEEDBACK, name="demonstration")
        assert verdict(imitated, stated) == expected
        assert verdict(imitated) == NOTHING


def test_one_of_ten_messages_is_misread_and_always_the_same_ones() -> None:
    content = [["Where is my order?", number] for number in range(10_000)]
    misread = [is_misread(one, 0.1) for one in content]
    assert sum(misread) / len(misread) == pytest.approx(0.1, abs=0.01)
    assert misread == [is_misread(one, 0.1) for one in content]
    assert not any(is_misread(one, 0.0) for one in content)


def test_the_ids_of_a_prompt_do_not_change_what_is_misread() -> None:
    """Ids are drawn for each prompt: an answer that is asked about twice is read alike."""
    for number in range(50):
        said = event(f"No, that is wrong. {number}")
        assert len({verdict(said, error_rate=0.5) for _ in range(3)}) == 1


def test_a_prompt_without_data_is_refused() -> None:
    with pytest.raises(PromptError):
        reply_to([{"role": "user", "content": "hello"}], 0.0)


@pytest.mark.slow
def test_the_server_says_that_it_is_scripted() -> None:
    messages, ids = prompt(event("No, that is wrong."))
    with make_server(0, handler_of(0.0)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/v1"
        answered = httpx.post(f"{url}/chat/completions", json={"model": NAME, "messages": messages}).json()
        listed = httpx.get(f"{url}/models").json()
        server.shutdown()
    assert answered["model"] == listed["data"][0]["id"] == NAME
    assert "scripted" in NAME
    reply = read_follow_up_reply(answered["choices"][0]["message"]["content"], ids)
    assert [one.verdict for one in reply.values()] == [Verdict.CORRECTED]

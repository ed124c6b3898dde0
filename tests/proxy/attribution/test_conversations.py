"""Prompts that go on from an earlier answer become the conversation they are. Pure."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.attribution.conversations import ConversationMatcher
from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules, RecordableAnswer
from recorder.messages.calls import Address, SampledChoice

HERE = Address(trajectory="run", group="g")


def reading(prompt: Any) -> Any:
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    return DIALECTS["/v1/completions"].read(body, {}, DialectRules())


def answered(prompt_ids: list[int], ids: list[int], text: str) -> RecordableAnswer:
    message = {"role": "assistant", "content": text or None}
    return RecordableAnswer(
        prompt_token_ids=prompt_ids, choices=[SampledChoice(0, message, ids, [-1.0] * len(ids), "stop")]
    )


def after(first: Any, sampled: RecordableAnswer, then: Any, address: Address = HERE) -> list[Any]:
    """The messages of a prompt that comes after an answered one at the same address."""
    known, one, two = ConversationMatcher(), reading(first), reading(then)
    known.recognise(HERE, one)
    known.note(HERE, one, sampled)
    known.recognise(address, two)
    return list(two.request.messages)


def user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


SAID = {"role": "assistant", "content": "Monday"}


def test_ids_that_begin_with_prompt_and_answer_continue_it() -> None:
    sampled = answered([1, 2], [3, 4], "Monday")
    assert after([1, 2], sampled, [1, 2, 3, 4, 5]) == [user("[1,2]"), SAID, user("[5]")]
    assert after([1, 2], sampled, [1, 2, 3, 4]) == [user("[1,2]"), SAID]


def test_text_that_begins_with_prompt_and_answer_continues_it() -> None:
    sampled = answered([1, 2], [3, 4], "Monday")
    assert after("When? ", sampled, "When? Monday\nSure?") == [user("When? "), SAID, user("\nSure?")]
    assert after("When? ", sampled, [1, 2, 3, 4, 5]) == [user("When? "), SAID, user("[5]")]


def test_what_differs_in_one_token_is_a_prompt_of_its_own() -> None:
    sampled = answered([1, 2], [3, 4], "Monday")
    assert after([1, 2], sampled, [1, 2, 3, 5, 5]) == [user("[1,2,3,5,5]")]
    assert after([1, 2], sampled, [1, 2, 3]) == [user("[1,2,3]")]
    assert after("When? ", sampled, "When? monday") == [user("When? monday")]


def test_other_addresses_and_calls_without_one_are_left_alone() -> None:
    sampled = answered([1, 2], [3, 4], "Monday")
    for address in (replace(HERE, group=None), replace(HERE, trajectory="other"), Address()):
        assert after([1, 2], sampled, [1, 2, 3, 4, 5], address) == [user("[1,2,3,4,5]")]


def test_a_chat_is_left_alone() -> None:
    body = {"model": "m", "messages": [user("[1,2,3,4]")]}
    chat: Any = DIALECTS["/v1/chat/completions"].read(json.dumps(body).encode(), {}, DialectRules())
    known = ConversationMatcher()
    known.note(HERE, reading([1, 2]), answered([1, 2], [3, 4], "x"))
    known.recognise(HERE, chat)
    assert chat.request.messages == [user("[1,2,3,4]")]


IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=5)


@given(st.lists(st.tuples(IDS, IDS), min_size=1, max_size=5))
def test_a_run_of_turns_is_recorded_once_each(turns: list[tuple[list[int], list[int]]]) -> None:
    """However long it grows, each turn adds what is new and its answer; all of it is the prompt, in order."""
    known = ConversationMatcher()
    prompt: list[int] = []
    messages: list[Any] = []
    for at, (new, sampled) in enumerate(turns):
        prompt = [*prompt, *new]
        asked = reading(prompt)
        known.recognise(HERE, asked)
        assert list(asked.request.messages) == [*messages, user(json.dumps(new, separators=(",", ":")))]
        known.note(HERE, asked, answered(prompt, sampled, f"answer {at}"))
        messages = [*asked.request.messages, {"role": "assistant", "content": f"answer {at}"}]
        prompt = [*prompt, *sampled]

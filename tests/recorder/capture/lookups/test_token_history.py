"""The exact tokens behind a sampled choice: the same from memory and store, bounded, and none where unknown."""

from __future__ import annotations

from typing import Any

from recorder.capture.lookups.token_history import RecentTokenHistories, TokenHistory
from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address, ParentCall
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from tests.recorder.talk import PROJECT, Talk, assistant, choice, user

RUN = Address(trajectory="one")
LONG = list(range(1000, 1300))  # more than two blocks, so that prompts are stored as differences


async def three_turns(talk: Talk) -> tuple[list[Any], list[int]]:
    """A conversation of three turns, each prompt beginning with what was before; its messages and the last prompt."""
    messages: list[Any] = []
    prompt: list[int] = []
    for at in range(3):
        messages = [*messages, user(f"question {at}")]
        prompt = [*prompt, *(LONG if at == 0 else []), 10 + at]
        sampled = choice(assistant(f"answer {at}"), token_ids=[500 + at] * 100, logprobs=[-0.5] * 100)
        await talk.call(messages, [sampled], RUN, prompt_token_ids=prompt, base_fingerprint="base")
        messages = [*messages, assistant(f"answer {at}")]
        prompt = [*prompt, *([500 + at] * 100)]
    return messages, prompt


async def parent_of(talk: Talk, messages: list[Any]) -> ParentCall:
    parent = (await talk.attributed(messages, [], RUN)).attribution.parent
    assert parent is not None
    return parent


async def test_the_past_of_a_long_conversation_is_its_prompt_and_sample(talk: Talk, recorder: Recorder) -> None:
    recorder.keep_token_histories(1 << 20)
    messages, ids = await three_turns(talk)
    asked = [*messages, user("and?")]
    parent = await parent_of(talk, asked)
    found = await recorder.past(PROJECT, parent, asked)
    assert found is not None
    past, at = found
    assert list(past.ids()) == ids
    assert at == len(messages) - 1
    assert (past.finish_reason, past.base_fingerprint, past.alone) == ("stop", "base", True)


async def test_the_store_tells_the_same_as_memory(talk: Talk, recorder: Recorder, store: Store) -> None:
    recorder.keep_token_histories(1 << 20)
    messages, _ = await three_turns(talk)
    asked = [*messages, user("and?")]
    parent = await parent_of(talk, asked)
    kept = await recorder.past(PROJECT, parent, asked)
    another = Recorder(store, RecorderSettings())
    await another.start()
    try:
        assert await another.past(PROJECT, parent, asked) == kept
    finally:
        await another.stop()


async def test_an_edited_conversation_has_no_place_for_the_choice(talk: Talk, recorder: Recorder) -> None:
    messages, _ = await three_turns(talk)
    parent = await parent_of(talk, [*messages, user("and?")])
    edited = [user("another question"), *messages[1:], user("and?")]
    found = await recorder.past(PROJECT, parent, edited)
    assert found is not None
    assert found[1] is None


async def test_a_choice_without_ids_has_no_past_to_go_on_from(talk: Talk, recorder: Recorder) -> None:
    recorder.keep_token_histories(1 << 20)
    turn = await talk.call(
        [user("hi")], [choice(assistant("ho"), token_ids=None, logprobs=None)], RUN, prompt_token_ids=None
    )
    found = await recorder.past(PROJECT, ParentCall(turn.call_id, 0), [user("hi"), assistant("ho"), user("and?")])
    assert found is not None
    assert not found[0].ids()


async def test_an_unknown_choice_has_no_past(recorder: Recorder) -> None:
    assert await recorder.past(PROJECT, ParentCall("call_0", 0), [user("hi")]) is None


async def test_equal_choices_of_one_call_are_not_alone(talk: Talk, recorder: Recorder) -> None:
    twins = [choice(assistant("ho"), 0), choice(assistant("ho"), 1, token_ids=[7, 8, 10]), choice(assistant("hey"), 2)]
    turn = await talk.call([user("hi")], twins, RUN)
    asked = [user("hi"), assistant("ho"), user("and?")]
    found = [await recorder.past(PROJECT, ParentCall(turn.call_id, at), asked) for at in (0, 2)]
    alone = [past is not None and past[0].alone for past in found]
    assert alone == [False, True]


def test_memory_is_bounded_in_bytes_and_the_oldest_go() -> None:
    def past(ids: int) -> TokenHistory:
        return TokenHistory(b"x" * 4 * ids, b"y" * 4, None, "stop", None, {}, {}, None, alone=True)

    recent = RecentTokenHistories(max_bytes=20_000)
    for at in range(4):
        recent.put(ParentCall(f"call_{at}", 0), past(1000))
    assert len(recent) == 3
    assert recent.get(ParentCall("call_0", 0)) is None
    assert recent.get(ParentCall("call_1", 0)) is not None  # now the newest
    recent.put(ParentCall("call_4", 0), past(1000))
    assert recent.get(ParentCall("call_2", 0)) is None
    recent.put(ParentCall("call_4", 0), past(10))  # the same again: counted once
    recent.put(ParentCall("call_5", 0), past(1000))
    assert len(recent) == 4
    recent.put(ParentCall("call_6", 0), past(100_000))
    assert len(recent) == 0


def test_nothing_is_kept_unless_asked_for() -> None:
    recent = RecentTokenHistories()
    recent.put(ParentCall("call_0", 0), TokenHistory(b"x" * 4, b"y" * 4, None, "stop", None, {}, {}, None, alone=True))
    assert len(recent) == 0

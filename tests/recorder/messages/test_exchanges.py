"""When a conversation is a recorded one: properties of the comparison."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.exchanges import Fit, conversation_forms, exchange_id, last_exchange, prior_turns, question_form

KEY = b"k" * 16
TEXT = st.text(max_size=12)
SYSTEM = st.builds(lambda role, text: {"role": role, "content": text}, st.sampled_from(["system", "developer"]), TEXT)


def message(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "content": text}


@st.composite
def conversations(draw: st.DrawFn, fewest: int = 1) -> list[dict[str, Any]]:
    """Questions and answers, without system messages."""
    turns = draw(st.lists(st.tuples(TEXT, TEXT), min_size=fewest, max_size=6))
    return [m for asked, said in turns for m in (message("user", asked), message("assistant", said))]


@st.composite
def sprinkled(draw: st.DrawFn, turns: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The conversation with system messages anywhere."""
    shown: list[dict[str, Any]] = []
    for turn in turns:
        shown += [*draw(st.lists(SYSTEM, max_size=2)), turn]
    return shown


@given(data=st.data(), turns=conversations())
def test_system_messages_make_no_difference(data: st.DataObject, turns: list[dict[str, Any]]) -> None:
    recorded, sent = data.draw(sprinkled(turns)), data.draw(sprinkled(turns))
    sent.append(message("user", "next"))
    assert last_exchange(KEY, sent) == exchange_id(KEY, question_form(KEY, recorded[:-1]), recorded[-1])
    assert prior_turns(KEY, sent).fit(conversation_forms(KEY, recorded)) is Fit.WHOLE


@given(data=st.data(), turns=conversations(fewest=2))
def test_a_part_fits_if_it_is_long(data: st.DataObject, turns: list[dict[str, Any]]) -> None:
    kept = [turn for turn in turns[:-2] if data.draw(st.booleans())]
    fit = prior_turns(KEY, [*kept, *turns[-2:]]).fit(conversation_forms(KEY, turns))
    if len(kept) == len(turns) - 2:
        assert fit is Fit.WHOLE
    else:
        length = sum(len(turn["content"]) for turn in [*kept, *turns[-2:]])
        assert fit is (Fit.PART if length >= 32 else None)


@given(data=st.data(), turns=conversations())
def test_any_changed_message_is_another_conversation(data: st.DataObject, turns: list[dict[str, Any]]) -> None:
    at = data.draw(st.integers(0, len(turns) - 1))
    changed = [*turns[:at], turns[at] | {"content": turns[at]["content"] + "!"}, *turns[at + 1 :]]
    assert prior_turns(KEY, changed).fit(conversation_forms(KEY, turns)) is None
    if at >= len(turns) - 2:
        assert last_exchange(KEY, changed) != exchange_id(KEY, question_form(KEY, turns[:-1]), turns[-1])


def test_nothing_to_find() -> None:
    assert last_exchange(KEY, [message("user", "a")]) is None
    assert last_exchange(KEY, [message("system", "a"), message("assistant", "b"), message("user", "c")]) is None
    assert last_exchange(KEY, []) is None

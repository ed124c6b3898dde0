"""What a right answer that a user states is used for."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples.helpdesk.making.conversations import (
    answers_at_once,
    ideal,
    opening,
    rambles,
    skips_tracking,
    training_order,
    wrong_id,
)
from examples.helpdesk.orders import DAYS
from examples.helpdesk.wording import answer
from examples.live.follow_ups.corrections import agrees, feedback_on, find_facts, is_grounded

Messages = list[dict[str, Any]]
seeds = st.integers(0, 2**32)


def conversation(behave: Any, seed: int) -> tuple[str, Messages]:
    """The right answer, and a conversation of the demo's model about the same order."""
    chance = random.Random(seed)
    order = training_order(chance)
    return answer(order.order_id, order.day), [*opening(order.order_id, chance), *behave(order, chance)]


def names(stated: str, messages: Messages) -> list[str]:
    return [one["name"] for one in feedback_on(stated, messages)]


@given(seeds)
def test_a_right_answer_is_a_reference_of_1_and_is_imitated(seed: int) -> None:
    stated, messages = conversation(ideal, seed)
    reference, demonstration = feedback_on(stated, messages)
    assert reference == {"name": "reference", "value": 1.0, "comment": stated}
    assert demonstration == {"name": "demonstration", "value": stated}


@pytest.mark.parametrize("behave", [skips_tracking, answers_at_once, rambles])
@given(seed=seeds)
def test_a_day_that_no_tool_said_is_a_reference_and_never_imitated(behave: Any, seed: int) -> None:
    stated, messages = conversation(behave, seed)
    assert not is_grounded(stated, messages)
    right = float(agrees(messages[-1]["content"], stated))
    assert feedback_on(stated, messages) == [{"name": "reference", "value": right, "comment": stated}]


@given(seeds)
def test_what_the_tools_said_and_the_answer_did_not_is_imitated_and_not_rewarded(seed: int) -> None:
    stated, messages = conversation(ideal, seed)
    messages[-1] = {"role": "assistant", "content": "Please be patient, good things take time."}
    reference, demonstration = feedback_on(stated, messages)
    assert (reference["value"], demonstration["value"]) == (0.0, stated)


def test_a_guess_of_the_model_is_no_evidence() -> None:
    asked = {"role": "user", "content": "Where is my order 4821?"}
    guessed = {"role": "assistant", "content": "It is Friday or Monday."}
    assert not is_grounded("Your order 4821 arrives on Friday.", [asked, guessed])


@given(seeds)
def test_an_answer_about_another_parcel_is_not_imitated_unless_its_tools_said_the_day(seed: int) -> None:
    stated, messages = conversation(wrong_id, seed)
    told = {fact for one in messages if one["role"] == "tool" for fact in find_facts(str(one["content"]))}
    assert ("demonstration" in names(stated, messages)) <= bool(find_facts(stated) & set(DAYS) & told)


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("Your order 4821 arrives on Friday.", True),
        ("It arrives on Friday.", True),
        ("It arrives on Friday or Monday.", False),
        ("Your order 4822 arrives on Friday.", False),
        ("Your order 4821 is shipped.", False),
        ("", False),
    ],
)
def test_an_answer_agrees_if_it_names_the_day_and_nothing_else(said: str, right: bool) -> None:
    assert agrees(said, "Your order 4821 arrives on Friday.") == right

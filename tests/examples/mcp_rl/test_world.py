"""The words, the warehouse and the check: what is split stays split, and only the truth is right."""

from __future__ import annotations

import random

import pytest

from examples.mcp_rl import facts, wording
from examples.mcp_rl.names import IMAGINED, served, taught
from examples.mcp_rl.warehouse import Item, warehouse
from examples.mcp_rl.wording import QUESTIONS, Fact, Question

HINGE = Item("417", "brass hinge", "C", 37, 12)
ITEMS = {HINGE.name: HINGE}


def test_no_name_is_both_the_servers_and_the_makings() -> None:
    assert not set(served()) & set(taught())
    assert not set(served(IMAGINED)) & set(taught(IMAGINED))
    assert len(served()) == len(taught()) == 96


def test_a_warehouse_is_its_seeds() -> None:
    assert warehouse(7) == warehouse(7) != warehouse(8)
    assert {item.name for item in warehouse(7)} == set(served())
    assert len({item.number for item in warehouse(7)}) == len(served())


@pytest.mark.parametrize("fact", list(Fact))
def test_every_question_is_understood_and_no_other_text(fact: Fact) -> None:
    asked = Question(fact, "glass funnel")
    for words in QUESTIONS[fact]:
        assert wording.understood(words.format(name=asked.name)) == asked
    assert wording.question(asked, random.Random(1)) in [w.format(name=asked.name) for w in QUESTIONS[fact]]
    assert wording.understood("Which shelf has it?") is None


def said(question: str, answer: str, *, called: bool = True) -> bool:
    call: dict[str, object] = {"role": "assistant", "content": None, "tool_calls": [{"id": "c"}]}
    messages: list[dict[str, object]] = [{"role": "user", "content": question}, *([call] if called else [])]
    return facts.right(question, [*messages, {"role": "assistant", "content": answer}], ITEMS)


@pytest.mark.parametrize("fact", [Fact.SHELF, Fact.LEFT, Fact.PRICE])
def test_the_answer_that_the_tools_give_is_right_and_anothers_is_not(fact: Fact) -> None:
    asked = Question(fact, HINGE.name)
    question = wording.question(asked, random.Random(1))
    assert said(question, wording.answer(asked, HINGE))
    assert not said(question, wording.answer(asked, Item("1", HINGE.name, "D", 38, 13)))
    assert not said(question, wording.answer(Question(fact, "brass bucket"), HINGE))
    assert not said(question, wording.answer(asked, HINGE) + " Or 99.")
    assert not said(question, wording.absent(HINGE.name))


def test_what_is_not_there_must_be_said_not_to_be_there() -> None:
    question = "How much is the brass unicorn?"
    assert said(question, "There is no brass unicorn.")
    assert not said(question, "The brass unicorn costs 12 euros.")
    assert not said(question, "")


def test_small_talk_takes_no_tool_and_no_fact() -> None:
    question = "Thank you, the brass hinge fits."
    assert said(question, wording.WELCOME, called=False)
    assert not said(question, wording.WELCOME, called=True)
    assert not said(question, "The brass hinge is on shelf C.", called=False)


def test_an_attempt_that_ends_in_a_call_said_nothing() -> None:
    question = "How much is the brass hinge?"
    calling = {"role": "assistant", "content": "12", "tool_calls": [{"id": "c"}]}
    assert not facts.right(question, [{"role": "user", "content": question}, calling], ITEMS)


def test_a_question_in_other_words_is_refused() -> None:
    with pytest.raises(ValueError, match="not in this example"):
        facts.right("Sing!", [], ITEMS)

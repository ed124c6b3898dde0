"""The sentences that the tasks, the tools and the model's training share.

Owns: the wording of questions, tool results and right answers, and parsing a question. The tiny model was trained on
nothing else, so a changed word needs a new model. Pure.
"""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from examples.mcp_rl.warehouse import Item


class Fact(StrEnum):
    """The requested fact of an item. `NOTHING`: small talk."""

    SHELF = "shelf"
    LEFT = "left"
    PRICE = "price"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Question:
    """A question about an item: the requested fact, and the name of the item."""

    fact: Fact
    name: str


QUESTIONS: Final[dict[Fact, tuple[str, ...]]] = {
    Fact.SHELF: ("Which shelf has the {name}?", "Where do I find the {name}?"),
    Fact.LEFT: ("How many of the {name} are left?", "Is the {name} in stock, and how many?"),
    Fact.PRICE: ("What does the {name} cost?", "How much is the {name}?"),
    Fact.NOTHING: ("Thank you, the {name} fits.", "The {name} came today, thank you."),
}
WELCOME: Final = "You are welcome."
_PATTERNS: Final = [
    (re.compile(re.escape(wording).replace(re.escape("{name}"), r"([a-z]+ [a-z]+)")), fact)
    for fact, wordings in QUESTIONS.items()
    for wording in wordings
]


def question(asked: Question, rng: random.Random) -> str:
    """Return the question as a user writes it."""
    return rng.choice(QUESTIONS[asked.fact]).format(name=asked.name)


def understood(text: str) -> Question | None:
    """Parse a question; None if it has another wording."""
    for pattern, fact in _PATTERNS:
        if found := pattern.fullmatch(text.strip()):
            return Question(fact, found[1])
    return None


def answer(asked: Question, item: Item) -> str:
    """Return the right answer."""
    match asked.fact:
        case Fact.SHELF:
            return f"The {asked.name} is on shelf {item.shelf}."
        case Fact.LEFT:
            return f"There are {item.left} of the {asked.name}."
        case Fact.PRICE:
            return f"The {asked.name} costs {item.euros} euros."
        case Fact.NOTHING:
            return WELCOME


def absent(name: str) -> str:
    """Return the right answer if there is no such item."""
    return f"There is no {name}."


def found(item: Item | None) -> str:
    """Return the result of find_item."""
    return _said({"item": item.number, "shelf": item.shelf} if item else None)


def stocked(item: Item | None) -> str:
    """Return the result of stock."""
    return _said({"left": item.left} if item else None)


def priced(item: Item | None) -> str:
    """Return the result of price."""
    return _said({"euros": item.euros} if item else None)


def _said(value: dict[str, str | int] | None) -> str:
    return json.dumps(value or {"error": "no such item"})

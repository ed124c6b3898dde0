"""Check whether an attempt was right, by the committed warehouse. The campaign never sees the result.

Owns: the comparison. Refuses: how the agent found the answer, except that small talk must use no tool. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from examples.mcp_rl.names import IMAGINED, MATERIALS, THINGS
from examples.mcp_rl.warehouse import Item
from examples.mcp_rl.wording import Fact, Question, understood

Json = Mapping[str, Any]
_FACT: Final = re.compile(r"\d+|(?<=\bshelf )[A-Z]\b")
_NAMED: Final = re.compile(rf"\b(?:{'|'.join(MATERIALS)}) (?:{'|'.join([*THINGS, *IMAGINED])})\b")
_NONE: Final = re.compile(r"\bno\b")


def told(text: str) -> set[str]:
    """Return the facts in an answer: numbers and shelves."""
    return set(_FACT.findall(text))


def named(text: str) -> set[str]:
    """Return the items that an answer names, whether or not they exist."""
    return set(_NAMED.findall(text))


def right(question: str, messages: Sequence[Json], items: Mapping[str, Item]) -> bool:
    """Whether a conversation ends in the right answer to the question. `items`: the warehouse's, by name.

    Raises:
        ValueError: the question is not in this example's wording.
    """
    asked = understood(question)
    if asked is None:
        raise ValueError(f"the question is not in this example's wording: {question[:200]!r}")
    return says(asked, last_words(messages), items, called=any(m.get("tool_calls") for m in messages))


def says(asked: Question, answer: str, items: Mapping[str, Item], *, called: bool) -> bool:
    """Whether an answer has the requested fact and no other."""
    if asked.fact is Fact.NOTHING:
        return bool(answer) and not called and not told(answer)
    item = items.get(asked.name)
    if not named(answer) <= {asked.name}:
        return False
    if item is None:
        return not told(answer) and bool(_NONE.search(answer))
    return told(answer) == {truth(asked.fact, item)}


def truth(fact: Fact, item: Item) -> str:
    """Return a fact of an item, as an answer writes it."""
    return {Fact.SHELF: item.shelf, Fact.LEFT: str(item.left), Fact.PRICE: str(item.euros)}[fact]


def last_words(messages: Sequence[Json]) -> str:
    """Return the last message if the model wrote it; else an empty string."""
    last = messages[-1] if messages else {}
    content = last.get("content") if last.get("role") == "assistant" and not last.get("tool_calls") else None
    return content if isinstance(content, str) else ""

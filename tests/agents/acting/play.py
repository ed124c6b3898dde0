"""What is to be said next in the helpdesk's game: look up an order, track its parcel, answer.

Owns: reading from a conversation how far the game is. Refuses: how a move is said.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

MOST_TURNS = 12  # of the engine's own; a game that goes on is lost

_QUESTION = re.compile(r"[Ww]here is my order (\d{4})")
_TRACKING = re.compile(r"tracking\W+(P\d{5})")
_DAY = re.compile(r"arrives\W+(\w+day)")


@dataclass(frozen=True, slots=True)
class Look:
    """Call a tool of the desk: `find_order` with an order's number, or `track_parcel` with a parcel's."""

    tool: str
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class Answer:
    """Say this, and be done."""

    text: str


Move = Look | Answer


def move(messages: list[dict[str, Any]]) -> Move:
    """The next move. What was asked and found is read from what the agent wrote, never from the engine's own turns."""
    given = "\n".join(text_of(message) for message in messages if message["role"] != "assistant")
    asked = _QUESTION.findall(given)
    if not asked:
        return Answer("A question about an order")  # a title, a summary: another errand
    if sum(message["role"] == "assistant" for message in messages) > MOST_TURNS:
        return Answer("I cannot find it.")
    if day := _DAY.search(given):
        return Answer(f"Your order {asked[-1]} arrives on {day[1]}.")
    if tracking := _TRACKING.search(given):
        return Look("track_parcel", "tracking", tracking[1])
    return Look("find_order", "order_id", asked[-1])


def text_of(message: dict[str, Any]) -> str:
    """The text of a message, of one part or several."""
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part.get("text") or "" for part in content)

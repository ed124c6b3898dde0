"""The demo's success function: whether an attempt's answer is right, by the orders database.

Owns one reward function. It uses only the scenario's reference, which scenarios.py copies from the database. Refuses
to look at how the agent found the answer: the judge does that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

_DAY = re.compile("Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday")
_ORDER = re.compile(r"\b\d{4}\b")


def solved(trajectory: Any) -> float:
    """1.0 if the last message names the order's day of arrival, no other day and no other order; else 0.0.

    ``trajectory`` has ``messages`` (OpenAI's format) and ``scenario`` (``{"reference": {"order_id", "day"}}``).

    Raises:
        ValueError: the attempt has no scenario, and so no reference.
    """
    if not trajectory.scenario:
        raise ValueError("solved() needs a scenario's reference, and this attempt has no scenario")
    reference = trajectory.scenario["reference"]
    return float(is_right(last_words(trajectory.messages), reference["order_id"], reference["day"]))


def is_right(answer: str, order_id: str, day: str) -> bool:
    """Whether the answer names this day, no other day and no other order."""
    return set(_DAY.findall(answer)) == {day} and set(_ORDER.findall(answer)) <= {order_id}


def last_words(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the last message if the model wrote it; else an empty string."""
    last = messages[-1] if messages else {}
    content = last.get("content") if last.get("role") == "assistant" and not last.get("tool_calls") else None
    return content if isinstance(content, str) else ""

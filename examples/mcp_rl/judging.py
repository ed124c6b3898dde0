"""The scripted judge's rules: a conversation is scored by its content alone.

It scores four things: the call of the right tool, an argument from the question or an earlier tool result, the tool's
result in the answer, and no invented facts. Owns: these rules and their weights. Refuses: the warehouse, which it never
sees. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from examples.helpdesk.scripted_judge import Json, calls_of
from examples.mcp_rl.facts import last_words, named, told

_ITEM: Final = re.compile(r"\bthe ([a-z]+ [a-z]+)\b")
# From a question's words to the tool that knows the fact, and its place in the result. The first match counts.
_NEEDS: Final = (
    (re.compile(r"\bthank", re.IGNORECASE), None),
    (re.compile(r"\bshelf\b|\bwhere\b", re.IGNORECASE), ("find_item", "shelf")),
    (re.compile(r"\bhow many\b|\bin stock\b", re.IGNORECASE), ("stock", "left")),
    (re.compile(r"\bcost\b|\bhow much\b", re.IGNORECASE), ("price", "euros")),
)
_A_CALL_TOO_MANY: Final = 0.05

Call = tuple[str, Json, Json]


def score(messages: Sequence[Json], beside: Sequence[Json] = ()) -> tuple[float, str]:
    """Return a conversation's score in 0..1 and the reason. `beside`: other histories; their calls are too many."""
    question = " ".join(_text(m.get("content")) for m in messages if m["role"] == "user")
    need = next((need for words, need in _NEEDS if words.search(question)), None)
    calls, answer = calls_of(messages), last_words(messages)
    if need is None:
        points, why = _left_alone(calls, answer)
    else:
        item = _ITEM.search(question)
        points, why = _looked_up(need, item[1] if item else "", calls, answer)
    return round(min(1.0, max(0.0, points - _A_CALL_TOO_MANY * len(calls_of(beside)))), 4), why


def _left_alone(calls: Sequence[Call], answer: str) -> tuple[float, str]:
    """Score small talk: the right answer has no call and no fact."""
    silent, plain = not calls, bool(answer) and not told(answer)
    remarks = (
        "called nothing" if silent else "called a tool that nobody needs",
        "made up nothing" if plain else "rambled",
    )
    return 0.5 * silent + 0.5 * (silent and plain), ", ".join(remarks)


def _looked_up(need: tuple[str, str], item: str, calls: Sequence[Call], answer: str) -> tuple[float, str]:
    """0.3 for looking up the requested item; 0.2 for calling the right tool; 0.5 for answering with its result."""
    tool, key = need
    found = [result for name, given, result in calls if name == "find_item" and given.get("name") == item and result]
    numbers = [result["item"] for result in found if "item" in result]
    absent = bool(found) and not numbers
    knows = found if tool == "find_item" else _results(calls, tool, numbers)
    facts = {str(result[key]) for result in knows if key in result}
    tells = told(answer)
    says_none = not tells and bool(re.search(r"\bno\b", answer))
    says = (says_none if absent else bool(facts) and tells == facts) and named(answer) <= {item}
    heard = {str(value) for _, _, result in calls for value in result.values()}
    invented = bool(tells - heard)
    needed = 1 if absent or tool == "find_item" else 2
    excess = max(0, len(calls) - needed)
    points = 0.3 * bool(found) + 0.2 * (bool(facts) or absent) + 0.5 * says - _A_CALL_TOO_MANY * excess - 0.1 * invented
    return points, ", ".join(_remarks(bool(found), bool(facts) or absent, says, invented, excess))


def _results(calls: Sequence[Call], tool: str, numbers: Sequence[Any]) -> list[Json]:
    """Return the results of a tool for numbers that a look-up returned."""
    return [result for name, given, result in calls if name == tool and given.get("item") in numbers]


def _remarks(found: bool, knows: bool, says: bool, invented: bool, excess: int) -> list[str]:
    return [
        "looked up the item" if found else "did not look up the item",
        "asked the tool that knows" if knows else "did not ask the tool that knows",
        "says what the tool said" if says else "does not say what the tool said",
        *(["invents"] if invented else []),
        *([f"{excess} calls too many"] if excess else []),
    ]


def _text(content: Any) -> str:
    """Return the text of a message's content, which is a string, a list of parts, or None."""
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content)
    return content or ""

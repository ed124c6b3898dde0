"""What a right answer that a user states is used for: it is a reference, and it may be imitated. Pure.

Owns: the facts of the helpdesk's answers, and this rule. Refuses: sending (`examples.live.follow_ups.writers`).

A stated answer is imitated only if every fact in it occurs in the trajectory's own context. Otherwise the model would
learn to name a day that it has not looked up. Imitated or not, it is a reference: the reward is 1 if the agent's answer
agrees with it, else 0. If only what is not imitated were rewarded, nearly all such rewards would be 0, and the running
baseline would be too low for all others.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from examples.helpdesk.checks import last_words
from examples.helpdesk.orders import DAYS
from recorder.queue.feedback import DEMONSTRATION

REFERENCE: Final = "reference"  # the feedback's name; its comment is the stated answer
_FACT: Final = re.compile(rf"\b(?:{'|'.join(DAYS)}|\d{{4}})\b")

Message = Mapping[str, Any]
Feedback = Mapping[str, Any]  # the body of a request with feedback


def find_facts(text: str) -> set[str]:
    """Return the days and order numbers in a text."""
    return set(_FACT.findall(text))


def agrees(answer: str, stated: str) -> bool:
    """Whether an answer names the stated day, no other day, and no other order."""
    days, facts = set(DAYS), find_facts(stated)
    named = find_facts(answer)
    return named & days == facts & days and named <= facts


def is_grounded(stated: str, conversation: Sequence[Message]) -> bool:
    """Whether every fact of a stated answer is in a question or in a tool's result. The model's own words do not count:
    a guess is no evidence."""
    given = " ".join(str(one.get("content")) for one in conversation if one["role"] in ("user", "tool"))
    return find_facts(stated) <= find_facts(given)


def feedback_on(stated: str, conversation: Sequence[Message]) -> list[Feedback]:
    """Return what the answer that a user states after a conversation becomes: a reference, and a demonstration if it
    may be imitated."""
    right = agrees(last_words(conversation), stated)
    found: list[Feedback] = [{"name": REFERENCE, "value": float(right), "comment": stated}]
    if is_grounded(stated, conversation):
        found.append({"name": DEMONSTRATION, "value": stated})
    return found

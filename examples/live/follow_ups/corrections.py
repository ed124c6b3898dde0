"""What a right answer that a user states is used for: it is imitated, or it is a reference. Pure.

Owns: the facts of the helpdesk's answers, and this rule. Refuses: sending (`examples.live.follow_ups.writers`).

A correction is imitated only if every fact in it occurs in the trajectory's own context. Otherwise the model would
learn to name a day that it has not looked up. A correction that is not imitated is a reference: the reward is 1 if the
answer agrees with it, else 0. A statement that agrees with the answer corrects nothing, and is a reference too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from examples.helpdesk.checks import last_words
from examples.helpdesk.orders import DAYS
from recorder.queue.feedback import DEMONSTRATION

REFERENCE: Final = "reference"  # the feedback's name; its comment is the stated answer
_FACT: Final = re.compile(rf"\b(?:{'|'.join(DAYS)}|\d{{4}})\b")

Message = Mapping[str, Any]
CorrectionUse = Literal["imitated", "reference"]


@dataclass(frozen=True, slots=True)
class StatementUse:
    """What a stated answer is used for, and the body of the feedback that says so."""

    use: CorrectionUse
    feedback: Mapping[str, Any]


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


def use_of(stated: str, conversation: Sequence[Message]) -> StatementUse:
    """Return what the answer that a user states after a conversation is used for."""
    right = agrees(last_words(conversation), stated)
    if not right and is_grounded(stated, conversation):
        return StatementUse("imitated", {"name": DEMONSTRATION, "value": stated})
    return StatementUse("reference", {"name": REFERENCE, "value": float(right), "comment": stated})

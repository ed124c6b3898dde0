"""The example's success: whether an attempt's answer is right, according to the mail in question.

Owns one reward function. It needs only the scenario's reference. Refuses to look at how the answer was found, and to
train: that is for the judge.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from examples.helpdesk.checks import last_words
from examples.inbox.mails import DAYS

# Facts are numbers of three or four digits, or days: how many mails somebody claims to have read is neither.
_FACT = re.compile(rf"\b(?:\d{{3,}}|{'|'.join(DAYS)})\b")


def solved(trajectory: Any) -> float:
    """1.0 if the last message names the value that was asked for and no other fact; else 0.0.

    ``trajectory`` has ``messages`` (OpenAI's format) and ``scenario`` (``{"reference": {"kind", "value"}}``).

    Raises:
        ValueError: the attempt belongs to no scenario, so there is nothing to compare with.
    """
    if not trajectory.scenario:
        raise ValueError("solved() compares with a scenario's reference, and this attempt has no scenario")
    reference: Mapping[str, Any] = trajectory.scenario["reference"]
    return float(is_right(last_words(trajectory.messages), str(reference["value"])))


def is_right(answer: str, value: str) -> bool:
    """Whether the answer names this value and no other fact."""
    return facts(answer) == {value}


def facts(text: str) -> set[str]:
    """The facts that a text names."""
    return set(_FACT.findall(text))

"""The example's success function: whether an attempt's answer is right, by the requested mail.

Owns one reward function. It uses only the scenario's reference. Refuses to look at how the agent found the answer, and
is not trained on: the judge's score is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from examples.helpdesk.checks import last_words
from examples.inbox.mails import DAYS

# Facts are numbers of three or four digits, or days. The number of mails in a claim is neither.
_FACT = re.compile(rf"\b(?:\d{{3,}}|{'|'.join(DAYS)})\b")


def solved(trajectory: Any) -> float:
    """1.0 if the last message has the requested value and no other fact; else 0.0.

    ``trajectory`` has ``messages`` (OpenAI's format) and ``scenario`` (``{"reference": {"kind", "value"}}``).

    Raises:
        ValueError: the attempt has no scenario, and so no reference.
    """
    if not trajectory.scenario:
        raise ValueError("solved() needs a scenario's reference, and this attempt has no scenario")
    reference: Mapping[str, Any] = trajectory.scenario["reference"]
    return float(is_right(last_words(trajectory.messages), str(reference["value"])))


def is_right(answer: str, value: str) -> bool:
    """Whether the answer has this value and no other fact."""
    return facts(answer) == {value}


def facts(text: str) -> set[str]:
    """Return the facts in a text."""
    return set(_FACT.findall(text))

"""The example's success function: whether an answer is what its prompt asks for.

Owns one reward function, and the share of criteria that an answer meets by code. `solved` reads only the prompt, no
criteria and no verdicts, so that it reveals a wrong judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from examples.rlvr.forms import read as asked_for
from examples.rlvr.kinds import Text, read


def solved(trajectory: Any) -> float:
    """1.0 if the whole last message is what its scenario's prompt asks for; else 0.0.

    ``trajectory`` has ``answer`` (a text or None) and ``scenario`` (``{"input": prompt}``).

    Raises:
        ValueError: the attempt has no scenario, or one that is not of this example.
    """
    if not trajectory.scenario:
        raise ValueError("solved() needs a scenario's prompt, and this attempt has no scenario")
    return float(asked_for(trajectory.scenario["input"]).fulfilled_by(trajectory.answer or ""))


def share_met(criteria: Sequence[str], answer: str) -> float:
    """Return the share of these criteria that an answer meets. A criterion that code does not know is not met."""
    text = Text(answer)
    known = [read(sentence) for sentence in criteria]
    return sum(one is not None and one.met_by(text) for one in known) / len(criteria)

"""Hone's own agent `hone:answer`: the scenario's input is one turn, and what the model says to it is the attempt.

Owns: what that turn is. Refuses: tools, and going on. The agent's host runs it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from trainer.agents.asking import complete

NAME: Final = "hone:answer"  # what `campaign.agent` calls it


def messages(given: Any) -> list[Any]:
    """The turn: a text is what the user says, messages are sent as they are, anything else is said as JSON."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if isinstance(given, list) and given and all(isinstance(one, Mapping) and "role" in one for one in given):
        return list(given)
    return [{"role": "user", "content": json.dumps(given, ensure_ascii=False)}]


def run(task: Any) -> Any:
    """One attempt; returns what the model answered. `task.sampling` is what it is asked with."""
    return complete(task, {**task.sampling, "messages": messages(task.input)}).get("content")

"""Tasks as tables of prompts have them: `prompt`, `task_id`, and a column for each criterion.

Owns: the form of such an object (`{"prompt", "task_id"?, "rubric - 1. criterion", …}`) as a scenario. Other columns,
and criteria without a text, as a table's shorter rows have them, are passed over. Refuses: an object that has no prompt
or no criterion, and a criterion whose number stands there twice.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from trainer.tasks.objects import Unfit

_CRITERION: Final = re.compile(r"rubric\s*-\s*([0-9]{1,9})\s*\.\s*criterion", re.ASCII)


def is_task(value: Mapping[str, Any]) -> bool:
    """Whether an object is of this form, and not a scenario's."""
    return "input" not in value and ("prompt" in value or any(_CRITERION.fullmatch(key.strip()) for key in value))


def prompt(value: Mapping[str, Any]) -> str:
    """What is asked. Raises `Unfit`."""
    said = value.get("prompt")
    if said is None:
        raise Unfit('"prompt" is missing')
    if not isinstance(said, str):
        raise Unfit('"prompt" is not a text', "prompt")
    if not said.strip():
        raise Unfit('"prompt" is empty', "prompt")
    return said


def rubric(value: Mapping[str, Any]) -> list[dict[str, str]]:
    """The criteria by their numbers, each as a scenario's `rubric` has them. Raises `Unfit`."""
    found: dict[int, dict[str, str] | None] = {}
    for key, text in value.items():
        match = _CRITERION.fullmatch(key.strip())
        if match is None:
            continue
        number = int(match[1])
        if number in found:
            raise Unfit(f"{key!r}: criterion {number} is there twice", key)
        if text is not None and not isinstance(text, str):
            raise Unfit(f"{key!r} is not a text", key)
        found[number] = {"id": str(number), "text": text.strip()} if text and text.strip() else None
    listed = [one for number in sorted(found) if (one := found[number]) is not None]
    if not listed:
        raise Unfit('it has no criterion: write "rubric - 1. criterion": "…"')
    return listed

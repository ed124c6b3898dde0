"""Sub-scores: several named scores for each trajectory instead of one, so that a score explains itself. Pure.

Owns: their text in the prompt, their schema in the reply, and the mean that they make. Refuses: reading replies
(`judge.llm.reply_reader`), settings (`judge.panel_settings`).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from judge.llm.judge_model import REPLY_FORMAT
from judge.panel_settings import SubscoreSettings


def reply_format(subscores: Sequence[SubscoreSettings]) -> Mapping[str, Any]:
    """The structured-output schema; every sub-score and its reason are required."""
    if not subscores:
        return REPLY_FORMAT
    one = _object({"reason": {"type": "string"}, "score": {"type": "number"}})
    each = _object({"id": {"type": "string"}, "subscores": _object({sub.name: one for sub in subscores})})
    schema = _object({"trajectories": {"type": "array", "items": each}})
    return {"type": "json_schema", "json_schema": {"name": "verdict", "strict": True, "schema": schema}}


def _object(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }


def scores_wanted(subscores: Sequence[SubscoreSettings]) -> str:
    """The instruction on scores, to follow "give each …"."""
    if not subscores:
        return "a score from 0 to 1"
    told = "\n".join(f"- {json.dumps(sub.name)}: {sub.about}" for sub in subscores)
    return f"a score from 0 to 1 in each of these respects, each by itself:\n{told}"


def reply_form(subscores: Sequence[SubscoreSettings]) -> str:
    """The form of the reply, and the order in which to write it."""
    if not subscores:
        return (
            '{"trajectories": [{"id": "<id>", "explanation": "<one or two sentences>", "score": <number from 0 to 1>}]}'
            "\nwith every id of the data exactly once. Write the explanation before the score."
        )
    each = ", ".join(f'{json.dumps(sub.name)}: {{"reason": "<one sentence>", "score": <number>}}' for sub in subscores)
    return (
        f'{{"trajectories": [{{"id": "<id>", "subscores": {{{each}}}}}]}}'
        "\nwith every id of the data exactly once, and all of the sub-scores under each. Write the reason before the "
        "score."
    )


def mean_score(subscores: Sequence[SubscoreSettings], scores: Mapping[str, float]) -> float:
    """The weighted mean of the sub-scores, in 0..1."""
    heaviest = max(sub.weight for sub in subscores)
    shares = [(sub.weight / heaviest, scores[sub.name]) for sub in subscores]  # so no sum of weights overflows
    whole = math.fsum(share for share, _ in shares)
    counted = [value for share, value in shares if share > 0]
    found = math.fsum(share * value for share, value in shares) / whole
    return min(max(found, min(counted)), max(counted))  # whatever was rounded

"""Scores as tests need them: a row in which no judge was asked, with what a test says of it."""

from __future__ import annotations

from typing import Any, Final

from recorder.queue.judging.scores import NewPart, NewScore, StoredScore

NOBODY_ASKED: Final[dict[str, Any]] = {
    **dict.fromkeys(
        ("judge_model", "judge_version", "prompt_hash", "order_seed", "reply", "cost_usd", "latency_s", "agreement")
    ),
    **dict.fromkeys(("tokens_in", "tokens_cached", "tokens_out"), 0),
    "replies": (),
}


def new_score(recipe_hash: str = "recipe", **values: Any) -> NewScore:
    """A score to be written."""
    return NewScore(**NOBODY_ASKED | {"recipe_hash": recipe_hash} | values)


def stored_score(*parts: NewPart, **values: Any) -> StoredScore:
    """A score as it was written."""
    given: dict[str, Any] = {"id": "score", "group_id": "group", "recipe_hash": "recipe"}
    given |= {"absolute": False, "judge_hash": None, "follow_up": False, "created_at": 0.0}
    return StoredScore(**NOBODY_ASKED | given | {"parts": parts} | values)

"""A judge context under some settings, and a group judged there: what the tests of scoring share."""

from collections.abc import Callable
from typing import Any

from judge.scoring.group_score import GroupScore, score_group
from recorder.store.database import Store
from recorder.views.trajectories.transcripts import load_group

HELPFUL = {"kind": "feedback", "name": "helpful"}


def function(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "function", "function": f"checks:{name}"} | more


async def judged(store: Store, judging: Callable[..., Any], group_id: str, **more: Any) -> GroupScore:
    async with judging(**more) as context:
        return await score_group(await load_group(store, group_id), context)


def rewards(scored: GroupScore) -> list[float | None]:
    """By the order of the group's members, which is that of their making."""
    return [part.value for part in scored.rewards.values()]

"""The rewards that whole trajectories got, read from the store at the end, and how often they say the truth.

Owns: the query and the comparison. Refuses: the other records (`examples.live.record`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy import select

from examples.live.record import PROJECT
from examples.live.users import Run
from recorder.queue.judging.scores import REWARD
from recorder.settings import RecorderSettings
from recorder.states import Origin, Purpose
from recorder.store.bootstrap import open_store
from recorder.store.schema import groups, score_parts, scores, trajectories

HALF: Final = 0.5  # a reward above it says that the answer was right


@dataclass(frozen=True, slots=True)
class RewardTruth:
    """How many trajectories got a reward, and how many of the rewards say what the orders database says."""

    given: int
    true: int


async def read_rewards(data: Path, recording: RecorderSettings) -> dict[str, float]:
    """Return the reward of each live trajectory by its id; without those that only compare a single turn."""
    query = (
        select(score_parts.c.trajectory_id, score_parts.c.value)
        .join(scores, scores.c.id == score_parts.c.score_id)
        .join(groups, groups.c.current_score_id == scores.c.id)
        .join(trajectories, trajectories.c.id == score_parts.c.trajectory_id)
        .where(groups.c.project_id == PROJECT, scores.c.absolute)
        .where(score_parts.c.part == REWARD, score_parts.c.value.is_not(None))
        .where(trajectories.c.purpose == Purpose.TRAIN, trajectories.c.origin == Origin.LIVE)
    )
    store = await open_store(data, recording, migrate=False)
    try:
        async with store.read() as conn:
            return {trajectory: float(value) for trajectory, value in await conn.execute(query)}
    finally:
        await store.close()


def compare_with_truth(rewards: Mapping[str, float], runs: Iterable[Run]) -> RewardTruth:
    """Count the rewards of users' trajectories, and those that say the truth."""
    found = [(rewards.get(run.id or ""), run.right) for run in runs]
    rewarded = [(reward > HALF) == right for reward, right in found if reward is not None]
    return RewardTruth(len(rewarded), sum(rewarded))

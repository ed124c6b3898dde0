"""Group-relative advantages, and which members count for them.

Owns: the rule, the zero-variance rule, and why a member has no advantage. Refuses: baselines of earlier trajectories
and what a step does with advantages (`trainer.batch.advantages`, which takes the rule from here).

The advantage is the reward minus the group's mean (GRPO, arXiv 2402.03300, without the division by the standard
deviation, which Dr. GRPO, arXiv 2503.20783, section 3.1, shows to favour tasks that are almost always or almost never
solved). Dividing is an option (`trainer.advantage_std`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

from recorder.states import Purpose, TrajectoryState

ZERO_VARIANCE: Final = 1e-6  # rewards closer together than this differ only by rounding
STD_FLOOR: Final = 1e-4  # prevents huge advantages of nearly equal rewards when dividing by the deviation


def group_advantages(rewards: Mapping[str, float], *, divide_by_std: bool = False) -> dict[str, float] | None:
    """Return trajectory id → advantage, or None if no advantage can be computed.

    That is so with fewer than two rewards, or if all lie within `ZERO_VARIANCE`. `rewards`: of the members that count
    for the mean; the caller omits errored and unjudged ones.
    """
    values = list(rewards.values())
    if len(values) < 2 or max(values) - min(values) <= ZERO_VARIANCE:
        return None
    mean = math.fsum(values) / len(values)
    scale = 1.0
    if divide_by_std:
        scale = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)) + STD_FLOOR
    return {trajectory: (reward - mean) / scale for trajectory, reward in rewards.items()}


def exclusion_from_mean(
    state: TrajectoryState, selection: str | None, purpose: Purpose, reward: float | None
) -> str | None:
    """Return why a member does not count for its group's mean; None: it does."""
    if state is not TrajectoryState.COMPLETED:
        return state.value
    if selection is not None:
        return selection
    if purpose is not Purpose.TRAIN:
        return f"it is for {purpose}"
    return "reward_missing" if reward is None or not math.isfinite(reward) else None

"""Group-relative advantages, and which members count for them.

Owns: the rules, the zero-variance rule, and why a member has no advantage. Refuses: baselines of earlier trajectories
and what a step does with advantages (`trainer.objectives.running_baseline`, which takes the rules from here).

By default the advantage is the reward minus the group's mean (GRPO, arXiv 2402.03300, without the division by the
standard deviation, which Dr. GRPO, arXiv 2503.20783, section 3.1, shows to favour tasks that are almost always or
almost never solved). `trainer.advantage` chooses another rule.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from typing import Final, Literal

from recorder.states import Purpose, TrajectoryState

ZERO_VARIANCE: Final = 1e-6  # rewards closer together than this differ only by rounding
STD_FLOOR: Final = 1e-4  # prevents huge advantages of nearly equal rewards when dividing by the deviation

AdvantageRule = Literal["mean", "mean_std", "rloo", "rank"]


def group_advantages(rewards: Mapping[str, float], rule: AdvantageRule = "mean") -> dict[str, float] | None:
    """Return trajectory id → advantage, or None if no advantage can be computed.

    That is so with fewer than two rewards, or if all lie within `ZERO_VARIANCE`. `rewards`: of the members that count
    for the mean; the caller omits errored and unjudged ones. `mean_std` divides by the sample's standard deviation
    (n − 1). `rloo` compares with the mean of the others (arXiv 2402.14740). `rank` is linear in the rank, from −1 to 1,
    and equal rewards have the mean of their ranks.
    """
    values = sorted(rewards.values())
    number = len(values)
    if number < 2 or values[-1] - values[0] <= ZERO_VARIANCE:
        return None
    if rule == "rank":
        ranks = {one: bisect_left(values, one) + bisect_right(values, one) - 1 for one in values}
        return {trajectory: ranks[reward] / (number - 1) - 1 for trajectory, reward in rewards.items()}
    mean = math.fsum(values) / number
    if rule == "rloo":
        return {trajectory: (reward - mean) * number / (number - 1) for trajectory, reward in rewards.items()}
    scale = 1.0
    if rule == "mean_std":
        scale = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (number - 1)) + STD_FLOOR
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

"""Advantages against a running baseline.

Owns: the baseline of a trajectory, and its advantage over it. Refuses: advantages inside a group
(`recorder.stats.advantages`), tokens and torch.

A trajectory without a group is compared with earlier trajectories of its alias (reinforcement comparison, Williams
1992); its own reward is never part of that baseline.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from recorder.queue.training.baselines import FEWEST, MOST, Baseline, EarlierReward
from recorder.stats.advantages import STD_FLOOR, ZERO_VARIANCE, AdvantageRule


def running_baseline(history: Sequence[EarlierReward], own: str, at: float, tools: bytes | None) -> Baseline | None:
    """The baseline of trajectory `own`, judged at `at`; None if there are fewer than `FEWEST` rewards.

    `history` is newest first, of one alias and recipe. The last `MOST` rewards before its own count: those of
    trajectories with the same tools, if there are enough. The first trajectories of a recipe have too few before them:
    for these all others count, so that none is excluded for being early.
    """
    others = [one for one in history if one.trajectory_id != own]
    before = [one for one in others if one.at < at]
    pool = before if len(before) >= FEWEST else others
    same = [one for one in pool if one.tools == tools]
    chosen = (same if len(same) >= FEWEST else pool)[:MOST]
    if len(chosen) < FEWEST:
        return None
    rewards = [one.reward for one in chosen]
    mean = math.fsum(rewards) / len(rewards)
    std = math.sqrt(math.fsum((reward - mean) ** 2 for reward in rewards) / len(rewards))
    return Baseline(mean, std, len(rewards), all(one.tools == tools for one in chosen))


def running_advantages(
    rewards: Mapping[str, float], baselines: Mapping[str, Baseline], rule: AdvantageRule = "mean"
) -> dict[str, float] | None:
    """Return trajectory id → advantage over its baseline, or None if every reward is within `ZERO_VARIANCE` of it.

    `baselines` has one for each of `rewards`. `mean_std` divides by the baseline's standard deviation; the other rules
    subtract its mean alone, because a reward is never part of its own baseline.
    """
    over = {trajectory: reward - baselines[trajectory].mean for trajectory, reward in rewards.items()}
    if all(abs(difference) <= ZERO_VARIANCE for difference in over.values()):
        return None
    if rule != "mean_std":
        return over
    return {trajectory: value / (_sample_std(baselines[trajectory]) + STD_FLOOR) for trajectory, value in over.items()}


def _sample_std(baseline: Baseline) -> float:
    """The deviation that the rewards' mean was estimated with: the stored one divides by their number, not one less."""
    return baseline.std * math.sqrt(baseline.rewards / max(1, baseline.rewards - 1))

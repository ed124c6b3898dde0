"""Advantages, and the weight of each token in a step.

Owns: one advantage for each trajectory, inside a group or against a running baseline, the zero-variance rule, and the
normalisation of the loss. Refuses: tokens and torch.

The advantage is the reward minus the group's mean: GRPO (arXiv 2402.03300) without the division by the standard
deviation, which favours tasks that are almost always or almost never solved (Dr. GRPO, arXiv 2503.20783, section 3.1).
Dividing is an option. A trajectory without a group is compared with earlier trajectories of its alias (reinforcement
comparison, Williams 1992); its own reward is never part of that baseline. Every whole trajectory has the same weight in
the loss, so that long ones do not dominate; a single call (`recorder.queue.groups.same_request`) may have less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from recorder.queue.training.baselines import FEWEST, MOST, Baseline, EarlierReward
from recorder.stats.advantages import STD_FLOOR, ZERO_VARIANCE


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
    rewards: Mapping[str, float], baselines: Mapping[str, Baseline], *, divide_by_std: bool = False
) -> dict[str, float] | None:
    """Return trajectory id → advantage over its baseline, or None if every reward is within `ZERO_VARIANCE` of it.

    `baselines` has one for each of `rewards`.
    """
    over = {trajectory: reward - baselines[trajectory].mean for trajectory, reward in rewards.items()}
    if all(abs(difference) <= ZERO_VARIANCE for difference in over.values()):
        return None
    if not divide_by_std:
        return over
    return {trajectory: value / (baselines[trajectory].std + STD_FLOOR) for trajectory, value in over.items()}


def token_weights(trained_tokens: Mapping[str, int], shares: Mapping[str, float]) -> dict[str, float]:
    """Return trajectory id → the weight of each of its trained tokens, over all its rows.

    `shares` is a trajectory's weight relative to others, 1 if not named. A trajectory of share s, among shares that sum
    to S, has the token weight s / (S · tokens): the loss is the mean over trajectories, by their shares, of the mean
    over their tokens. Trajectories without a trained token are not counted.
    """
    counted = {trajectory: tokens for trajectory, tokens in trained_tokens.items() if tokens > 0}
    whole = math.fsum(shares.get(trajectory, 1.0) for trajectory in counted)
    return {trajectory: shares.get(trajectory, 1.0) / (whole * tokens) for trajectory, tokens in counted.items()}

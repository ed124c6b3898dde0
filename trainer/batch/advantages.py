"""From rewards to the weights of a step: who did better than its group, and how much each token counts.

Owns: advantages once a trajectory, the zero-variance rule, the normalisation of the loss. Refuses: tokens and torch.

The advantage is the reward minus the group's mean (GRPO, arXiv 2402.03300, without the division by the standard
deviation, which Dr. GRPO, arXiv 2503.20783, section 3.1, shows to favour tasks that are almost always or almost never
solved). Dividing is an option. Every whole run weighs the same in the loss, so that a long one does not dominate; a
single turn (`recorder.groups.shadows`) may weigh less.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

ZERO_VARIANCE = 1e-6  # rewards closer together than this teach nothing: their differences are rounding

_STD_FLOOR = 1e-4  # keeps a nearly equal group from being blown up when the deviation is divided out


def group_advantages(rewards: Mapping[str, float], *, divide_by_std: bool = False) -> dict[str, float] | None:
    """Return trajectory id → advantage, or None when the group teaches nothing.

    A group teaches nothing when it has fewer than two rewards or when they lie within `ZERO_VARIANCE`.
    `rewards` holds the members that count for the mean: errored and unjudged ones are the caller's to leave out.
    """
    values = list(rewards.values())
    if len(values) < 2 or max(values) - min(values) <= ZERO_VARIANCE:
        return None
    mean = math.fsum(values) / len(values)
    scale = 1.0
    if divide_by_std:
        scale = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)) + _STD_FLOOR
    return {trajectory: (reward - mean) / scale for trajectory, reward in rewards.items()}


def token_weights(trained_tokens: Mapping[str, int], shares: Mapping[str, float]) -> dict[str, float]:
    """Return trajectory id → the weight of each of its trained tokens, over all its rows.

    `shares` is what a trajectory counts against others, 1 where it is not named. A trajectory of share s among shares
    that add up to S has the weight s / (S · tokens): the loss is the mean over trajectories, by their shares, of the
    mean over their tokens. Trajectories without a trained token are not counted.
    """
    counted = {trajectory: tokens for trajectory, tokens in trained_tokens.items() if tokens > 0}
    whole = math.fsum(shares.get(trajectory, 1.0) for trajectory in counted)
    return {trajectory: shares.get(trajectory, 1.0) / (whole * tokens) for trajectory, tokens in counted.items()}

"""What the sum of a step's token losses is divided by.

Owns: the weight of each trained token of a trajectory, for each `trainer.normaliser`. Refuses: rows and torch.

Each function takes the trained tokens of every trajectory of one optimizer step, and the share that a trajectory has
relative to others (1 if not named; a single call with shadow answers may have less). Trajectories without a trained
token are not counted. With equal shares, `trajectory` is the mean over trajectories of the mean over their tokens
(GRPO, arXiv 2402.03300), `token` the mean over all tokens (DAPO, arXiv 2503.14476), and `constant` the mean over
trajectories of the sum over their tokens, divided by a length that does not depend on them (Dr. GRPO,
arXiv 2503.20783).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from trainer.settings import TrainerSettings


def token_weights(
    trained_tokens: Mapping[str, int], shares: Mapping[str, float], settings: TrainerSettings
) -> dict[str, float]:
    """Return trajectory id → the weight of each of its trained tokens, over all its rows."""
    tokens = {trajectory: number for trajectory, number in trained_tokens.items() if number > 0}
    own = {trajectory: shares.get(trajectory, 1.0) for trajectory in tokens}
    if settings.normaliser == "trajectory":
        whole = math.fsum(own.values())
        return {trajectory: share / (whole * tokens[trajectory]) for trajectory, share in own.items()}
    if settings.normaliser == "token":
        whole = math.fsum(share * tokens[trajectory] for trajectory, share in own.items())
    else:
        assert settings.constant_length is not None  # the settings require it
        whole = math.fsum(own.values()) * settings.constant_length
    return {trajectory: share / whole for trajectory, share in own.items()}

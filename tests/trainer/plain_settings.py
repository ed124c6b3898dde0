"""Settings with which a step is the update alone, as large from the first one on: what the defaults add is off.

By default first steps are smaller, gradients are clipped by recent ones, turns that the engine computed otherwise are
masked, close groups and the follow-ups of one key are limited, and a drift set is kept. Tests of what a step computes,
many of them on made-up logprobs, set these values beside their own.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

PLAIN: Final[Mapping[str, Any]] = {
    "warmup_steps": 0,
    "min_spread": 0.0,
    "grad_clip_recent": math.inf,
    "mask_ratio": math.inf,
    "drift_trajectories": 0,
    "follow_up_share": 1.0,
}
PLAIN_TOML: Final = "".join(f"{name} = {value}\n" for name, value in PLAIN.items())  # lines of [trainer]

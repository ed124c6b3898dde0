"""One part of a trajectory's reward, as every kind returns it.

Refuses: where parts come from (`judge.rewards.kinds`) and how they are combined (`judge.scoring.reward_parts`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RewardPart:
    """One part of a trajectory's reward; `value` None: it could not be had, and `explanation` says why.

    `extra`: named numbers that were given beside the value; they are kept, and move nothing. `reasons`: why, by the
    same names. `of_run`: where there is no value, that is the run's own doing (a check that failed on it), not the
    judge's nor the users'. `unasked`: the value stands for nobody having been asked; it ties its group, and says
    nothing outside.
    """

    value: float | None
    explanation: str | None = None
    extra: Mapping[str, float] = field(default_factory=dict)
    reasons: Mapping[str, str] = field(default_factory=dict)
    of_run: bool = True
    unasked: bool = False

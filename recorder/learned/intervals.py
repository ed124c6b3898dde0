"""How sure a share or a mean is: its 95 % interval.

Owns: the two formulas. Pure. Refuses: tests of one against another (`proxy.gate.betting`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

_Z: Final = 1.96  # of the normal distribution, for 95 %


@dataclass(frozen=True, slots=True)
class Interval:
    """From `low` to `high`."""

    low: float
    high: float


def of_share(share: float, number: int) -> Interval | None:
    """Wilson's interval of a share (0..1) of `number` yes-or-no outcomes (Wilson 1927); None: of none."""
    if number < 1:
        return None
    spread = _Z * _Z / number
    middle = (share + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(max(0.0, share * (1 - share)) / number + spread / (4 * number))
    return Interval(max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share)))


def of_mean(mean: float, std: float, number: int) -> Interval | None:
    """The normal interval of a mean of `number` values with that standard deviation; None: too few say nothing."""
    if number < 2:
        return None
    half = _Z * std / math.sqrt(number)
    return Interval(mean - half, mean + half)


def of_reward(mean: float, std: float, number: int, least: float, most: float) -> Interval | None:
    """`of_mean` of rewards that went from `least` to `most`, within what a reward can be.

    That is 0 to 1 unless a recipe says otherwise; a side on which a reward went further has no end that is known here.
    """
    found = of_mean(mean, std, number)
    if found is None:
        return None
    return Interval(max(0.0, found.low) if least >= 0 else found.low, min(1.0, found.high) if most <= 1 else found.high)

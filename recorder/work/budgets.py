"""How much may be learnt now: budgets over the last hour and day, and hours of the day.

Owns: the rules of `[learn]`, as pure functions over what was spent. Refuses: reading that (`recorder.work.spending`),
and holding anything back (judge and learner do).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from recorder.base.hours import read_hours
from recorder.base.terminal import duration
from recorder.settings import LearnSettings

HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0

Amounts = Iterable[tuple[float, float]]  # when (unix seconds), how much


@dataclass(frozen=True, slots=True)
class Spent:
    """What judging cost about a time (unix seconds)."""

    at: float
    tokens: int
    usd: float


@dataclass(frozen=True, slots=True)
class Held:
    """Something waits for `[learn]`: for how long, and which setting says so. `why` names no time that passes."""

    for_s: float
    why: str

    def __str__(self) -> str:
        return f"{self.why}; on in {duration(self.for_s)}"


def free_in_s(spent: Amounts, limit: float, window_s: float, at: float) -> float:
    """How long from `at` until less than `limit` was spent within the last `window_s`; 0: that is so now."""
    counted = sorted((when, amount) for when, amount in spent if when > at - window_s)
    total = sum(amount for _, amount in counted)
    free_s = 0.0
    for when, amount in counted:
        if total < limit:
            break
        total -= amount
        free_s = when + window_s - at
    return free_s


def judging(learn: LearnSettings, spent: Sequence[Spent], at: float, local: datetime) -> Held | None:
    """What keeps the judge from its next group, the longest first; None: nothing."""
    held = [_outside(learn, local)]
    if (limit := learn.judge_tokens_per_day) is not None:
        amounts = [(one.at, float(one.tokens)) for one in spent]
        held.append(_over(f"learn.judge_tokens_per_day ({limit:,}) is spent", amounts, limit, DAY_S, at))
    if (usd := learn.judge_usd_per_day) is not None:
        amounts = [(one.at, one.usd) for one in spent]
        held.append(_over(f"learn.judge_usd_per_day (${usd:,.2f}) is spent", amounts, usd, DAY_S, at))
    return _longest(held)


def training(learn: LearnSettings, steps_at: Sequence[float], at: float, local: datetime) -> Held | None:
    """What keeps an alias from its next step, the longest first; None: nothing."""
    held = [_outside(learn, local)]
    if (limit := learn.steps_per_hour) is not None:
        steps = [(when, 1.0) for when in steps_at]
        held.append(_over(f"learn.steps_per_hour ({limit}) is reached", steps, limit, HOUR_S, at))
    return _longest(held)


def _outside(learn: LearnSettings, local: datetime) -> Held | None:
    wait_s = read_hours(learn.hours).opens_in_s(local) if learn.hours is not None else 0.0
    return Held(wait_s, f"learn.hours are {learn.hours}") if wait_s > 0 else None


def _over(why: str, spent: Amounts, limit: float, window_s: float, at: float) -> Held | None:
    wait_s = free_in_s(spent, limit, window_s, at)
    return Held(wait_s, why) if wait_s > 0 else None


def _longest(held: Iterable[Held | None]) -> Held | None:
    return max((one for one in held if one is not None), key=lambda one: one.for_s, default=None)

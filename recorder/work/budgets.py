"""How much may be learned now: budgets over the last hour and day, hours of the day, and the sentence of a hold.

Owns: the rules of `[learn]`, as pure functions over what was spent, and what every face says while they hold a stage
back. Refuses: reading what was spent (`recorder.work.spending`), and holding anything back (judge and learner do).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from recorder.base.hours import read_hours
from recorder.base.terminal import clock_time
from recorder.settings import LearnSettings

HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0

Amounts = Iterable[tuple[float, float]]  # when (unix seconds), how much


class Limit(StrEnum):
    """A setting of `[learn]` that holds a stage back."""

    HOURS = "hours"
    JUDGE_TOKENS = "judge_tokens_per_day"
    JUDGE_USD = "judge_usd_per_day"
    STEPS = "steps_per_hour"


@dataclass(frozen=True, slots=True)
class Spent:
    """What judging cost about a time (unix seconds)."""

    at: float
    tokens: int
    usd: float


@dataclass(frozen=True, slots=True)
class Held:
    """`[learn]` holds a stage back for `for_s` seconds, until `until` (unix seconds).

    `limits`: the settings that do, the longest first, each with what was reached. `opens`: the time of day at which the
    hours begin that end the hold; None: a budget's window ends it.
    """

    for_s: float
    until: float
    limits: Sequence[tuple[Limit, str]]
    opens: str | None

    @property
    def code(self) -> Limit:
        """The setting that holds the longest."""
        return self.limits[0][0]

    @property
    def why(self) -> str:
        """What was reached, as a clause. It names no time that passes."""
        return ", and ".join(reached for _, reached in self.limits)

    def sentence(self, stage: str) -> str:
        """What is shown while a stage (`Learning`, `Judging`) is held back: why, until when, and what ends it now."""
        at = self.opens if self.opens is not None else f"about {clock_time(self.until, self.until - self.for_s)}"
        return f"{stage} is paused: {self.why}. It resumes at {at}.{self._remedy()}"

    def _remedy(self) -> str:
        """Which settings to raise; nothing where that alone would not end the hold."""
        if any(limit is Limit.HOURS for limit, _ in self.limits):
            return ""
        return f" Raise {' and '.join(f'learn.{limit}' for limit, _ in self.limits)} to continue now."


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
    """What keeps the judge from its next group; None: nothing."""
    reached = []
    if (limit := learn.judge_tokens_per_day) is not None:
        amounts = [(one.at, float(one.tokens)) for one in spent]
        clause = f"the judge used its {limit:,} token{'' if limit == 1 else 's'} of the last 24 hours"
        reached.append((free_in_s(amounts, limit, DAY_S, at), Limit.JUDGE_TOKENS, clause))
    if (usd := learn.judge_usd_per_day) is not None:
        amounts = [(one.at, one.usd) for one in spent]
        clause = f"the judge spent its ${usd:,.2f} of the last 24 hours"
        reached.append((free_in_s(amounts, usd, DAY_S, at), Limit.JUDGE_USD, clause))
    return _hold(learn, reached, at, local)


def training(learn: LearnSettings, steps_at: Sequence[float], at: float, local: datetime) -> Held | None:
    """What keeps an alias from its next step; None: nothing."""
    reached = []
    if (limit := learn.steps_per_hour) is not None:
        clause = f"the alias took its {limit} step{'' if limit == 1 else 's'} of the last hour"
        reached.append((free_in_s([(when, 1.0) for when in steps_at], limit, HOUR_S, at), Limit.STEPS, clause))
    return _hold(learn, reached, at, local)


def _hold(learn: LearnSettings, budgets: Sequence[tuple[float, Limit, str]], at: float, local: datetime) -> Held | None:
    """The hold of these budgets, each with the seconds until it is free, and of the hours: it ends when all allow."""
    spent = [one for one in budgets if one[0] > 0]
    free_s = max((wait_s for wait_s, *_ in spent), default=0.0)
    closed_s, clause, opens = 0.0, "", None
    if learn.hours is not None:
        hours = read_hours(learn.hours)
        begin, end = learn.hours.split("-")
        closed_s, after_s = hours.opens_in_s(local), hours.opens_in_s(local + timedelta(seconds=free_s))
        clause, opens = f"[learn] hours allow it from {begin} to {end}", begin if after_s > 0 else None
        free_s += after_s
    closed = [(closed_s, Limit.HOURS, clause)] if closed_s > 0 else []
    limits = [(limit, said) for _, limit, said in sorted([*spent, *closed], key=lambda one: one[0], reverse=True)]
    return Held(free_s, at + free_s, limits, opens) if limits else None

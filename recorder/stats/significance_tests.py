"""Paired means with 95 % intervals by scenario, and a sequential test whether a mean is lower than claimed. Pure.

Refuses: what the values are (`trainer.evaluation.figures`), and what follows from a result.

Attempts at one scenario are correlated, so one observation is a scenario: its mean, or the difference of two versions'
means. Scenarios have equal weight and are resampled with replacement (Efron 1979). With few scenarios the bootstrap's
percentiles are too narrow, so they are expanded (Hesterberg, "What Teachers Should Know About the Bootstrap", The
American Statistician 69, 2015). If all values are equal, the interval allows for the largest share of unseen scenarios
by Wilson's interval, and for their largest possible difference.

The sequential test bets against the claim (Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting", 2020, sections 2 and 4). If the claim is true, the capital reaches 1/α with a probability of at most α
(Ville), however often it is read. Several fixed stakes are played side by side (a mixture): they do not depend on the
order of the values, so values read again from the store give the same capital.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

from recorder.stats.means import Interval, students_t, unseen_interval

Values = Mapping[str, Sequence[float]]  # by scenario, one value per attempt

DRAWS: Final = 2_000
_NORMAL: Final = NormalDist()
_ALIKE: Final = 1e-12  # scenarios whose values differ by less are equal, up to rounding
_SHARE: Final = (0.0, 1.0)


@dataclass(frozen=True, slots=True)
class PairedEstimate:
    """A mean over `scenarios` scenarios. `interval`: None for one scenario, which says nothing about others."""

    value: float
    interval: Interval | None
    scenarios: int

    @property
    def sign(self) -> int:
        """1 if its interval lies above 0, -1 if it lies below, else 0."""
        if self.interval is None:
            return 0
        return int(self.interval.low > 0) - int(self.interval.high < 0)


def paired_mean(values: Values, within: tuple[float, float] = _SHARE) -> PairedEstimate | None:
    """Return the mean over scenarios of their attempts' means, or None without attempts. `within`: a value's range."""
    means = _means(values)
    return _estimate([means[scenario] for scenario in sorted(means)], within)


def paired_difference(ours: Values, theirs: Values, within: tuple[float, float] = _SHARE) -> PairedEstimate | None:
    """Return the mean difference, ours minus theirs, over the scenarios with values in both; None if there are none."""
    one, other = _means(ours), _means(theirs)
    low, high = within
    return _estimate([one[key] - other[key] for key in sorted(one.keys() & other.keys())], (low - high, high - low))


def _means(values: Values) -> dict[str, float]:
    return {scenario: math.fsum(each) / len(each) for scenario, each in values.items() if each}


def _estimate(values: Sequence[float], within: tuple[float, float]) -> PairedEstimate | None:
    if not values:
        return None
    value = math.fsum(values) / len(values)
    if len(values) < 2:
        return PairedEstimate(value, None, len(values))
    alike = max(values) - min(values) <= _ALIKE
    found = unseen_interval(value, len(values), within) if alike else _bootstrapped(np.array(values), within)
    return PairedEstimate(value, found, len(values))


def _bootstrapped(values: NDArray[np.float64], within: tuple[float, float]) -> Interval:
    count = len(values)
    times = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), DRAWS)
    tail = 100 * _NORMAL.cdf(-math.sqrt(count / (count - 1)) * students_t(count - 1))
    low, high = np.percentile(times @ values / count, (tail, 100 - tail))
    return Interval(max(within[0], float(low)), min(within[1], float(high)))


# Parts of the largest stake that cannot lose the whole capital. Large stakes detect a broken version at once, small
# ones a slightly worse version in the end; `benchmarks/canary.py` measures both.
STAKES: Final = (0.1, 0.2, 0.4, 0.8, 0.95)

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class SequentialTestResult:
    """The state of a test. `capital` is the highest so far, so that a verdict is never reversed."""

    samples: int
    mean: float
    capital: float
    alpha: float

    @property
    def shown_worse(self) -> bool:
        """Whether the claim is refuted at `alpha`; otherwise nothing is decided."""
        return self.capital >= 1 / self.alpha


def test_mean(values: Sequence[float], *, at_least: float, alpha: float) -> SequentialTestResult:
    """Test the claim that values in 0..1 have a mean of `at_least` or more.

    The claim must be about a value's expectation given the values before it. An observed value must never change, and
    which values count must be decided before they are observed.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha {alpha} is not between 0 and 1")
    seen = np.asarray(values, dtype=np.float64)
    highest = float(log_capital(seen, at_least=at_least).max(initial=0.0))
    return SequentialTestResult(
        len(seen), float(seen.mean()) if len(seen) else math.nan, math.exp(min(highest, 700.0)), alpha
    )


def log_capital(values: Floats, *, at_least: float) -> Floats:
    """Return the logarithm of the capital after each value, along the last axis. Shape as `values`, all in 0..1."""
    if not 0 < at_least < 1:
        raise ValueError(f"a mean of at least {at_least} is not between 0 and 1: no value could refute or support it")
    if not bool(np.all((values >= 0) & (values <= 1))):  # NaN is neither
        raise ValueError("a value to be tested is not in 0..1")
    won = (at_least - values) / (1 - at_least)  # at least -1: the gain from a stake of 1
    played = np.zeros_like(values)
    for n, stake in enumerate(STAKES):
        alone = np.cumsum(np.log1p(stake * won), axis=-1) - math.log(len(STAKES))
        played = np.logaddexp(played, alone) if n else alone
    return played

"""Shares and means with 95 % intervals, measures pooled over attempts, plateaus of a series, and latency quantiles.
Pure.

Owns: these formulas, which stop rules and health rules share. Refuses: sequential tests
(`recorder.stats.significance_tests`), and what follows from a figure (`trainer.campaign.health`,
`trainer.campaign.stop_rules`).

Two pools of attempts are compared by the interval of Agresti and Caffo ("Simple and effective confidence intervals for
proportions and differences of proportions result from adding two successes and two failures", The American Statistician
54, 2000): one success and one failure are added to each pool, so that no estimate is exactly 0 or 1. Attempts at the
same scenario are correlated, which the interval ignores, so it is somewhat too wide.

The interval of a mean of clustered values uses the cluster-robust variance (Liang and Zeger, "Longitudinal data
analysis using generalized linear models", Biometrika 73, 1986), and Student's t with one degree of freedom less than
there are clusters.

Latency quantiles use the nearest rank, so each is a measured latency.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

_Z: Final = 1.96  # of the normal distribution, for 95 %
_EXACT_Z: Final = NormalDist().inv_cdf(0.975)
_ALIKE: Final = 1e-12  # clusters whose means differ by less are equal, up to rounding


@dataclass(frozen=True, slots=True)
class Interval:
    """An interval from `low` to `high`."""

    low: float
    high: float


def share_interval(share: float, number: int) -> Interval | None:
    """Return Wilson's interval of a share (0..1) of `number` binary outcomes (Wilson 1927); None without outcomes."""
    if number < 1:
        return None
    spread = _Z * _Z / number
    middle = (share + spread / 2) / (1 + spread)
    half = _Z / (1 + spread) * math.sqrt(max(0.0, share * (1 - share)) / number + spread / (4 * number))
    return Interval(max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share)))


def mean_interval(mean: float, std: float, number: int) -> Interval | None:
    """Return the normal interval of a mean of `number` values with that standard deviation; None: too few values."""
    if number < 2:
        return None
    half = _Z * std / math.sqrt(number)
    return Interval(mean - half, mean + half)


@dataclass(frozen=True, slots=True)
class Cluster:
    """Values that depend on one another, such as the rewards of one group: their number and their sum."""

    number: int
    total: float


def clustered_interval(clusters: Sequence[Cluster], least: float, most: float) -> Interval | None:
    """The 95 % interval of the mean over all values of clusters that are independent of one another.

    `least`, `most`: the smallest and the largest value. The interval is clipped to the possible range of a reward, 0 to
    1; on a side where a value lies outside, nothing is clipped. None: fewer than two clusters, which say nothing about
    others. Where all clusters have one mean, others may differ: then the interval is `unseen_interval`.
    """
    if len(clusters) < 2:
        return None
    number = sum(one.number for one in clusters)
    mean = math.fsum(one.total for one in clusters) / number
    if all(abs(one.total - one.number * mean) <= one.number * _ALIKE for one in clusters):
        return unseen_interval(mean, len(clusters), (min(0.0, least), max(1.0, most)))
    squares = math.fsum((one.total - one.number * mean) ** 2 for one in clusters)
    error = math.sqrt(len(clusters) / (len(clusters) - 1) * squares) / number
    half = students_t(len(clusters) - 1) * error
    low, high = mean - half, mean + half
    return Interval(max(0.0, low) if least >= 0 else low, min(1.0, high) if most <= 1 else high)


def students_t(freedom: int) -> float:
    """The 97.5 % quantile of Student's t, by its expansion around the normal's (Fisher and Cornish 1960)."""
    z = _EXACT_Z
    terms = (
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
    )
    return z + sum(term / float(freedom) ** power for power, term in enumerate(terms, start=1))


def unseen_interval(value: float, count: int, within: tuple[float, float]) -> Interval:
    """The interval of a mean of `count` observations that are all alike.

    Others may be a share that none of them showed (Wilson's interval for none seen), as different as can be.
    """
    none_seen = share_interval(0.0, count)
    assert none_seen is not None
    low, high = within
    share = none_seen.high
    return Interval(value - share * max(0.0, value - low), value + share * max(0.0, high - value))


SURE: Final = NormalDist().inv_cdf(0.95)  # one-sided
FEWEST: Final = 4  # measurements of a plateau
# A plateau is reported only if a rise of this much per measurement would have been detected. A rule that tests after
# every measurement has many chances to err: `POWER` standard errors keep the error of a campaign below 5 %
# (docs/health.md).
WORTH: Final = 0.02
POWER: Final = 4.75


@dataclass(frozen=True, slots=True)
class PooledMeasure:
    """A measurement after `step` steps: the share of successes, or of comparisons won, or the mean reward.

    `spread`: the standard deviation of one attempt's value, for means; None: `value` is a share, in 0..1.
    """

    step: int
    value: float
    attempts: int
    spread: float | None = None


@dataclass(frozen=True, slots=True)
class PooledEstimate:
    """An estimate: the raw `value`, and for comparisons the `centre` (shrunk to the middle) and the standard error."""

    value: float
    centre: float
    error: float

    def at_least(self, sure: float = SURE) -> float:
        """Return the one-sided lower bound, `sure` standard errors below the centre."""
        return self.centre - sure * self.error


def pool_measures(measures: Sequence[PooledMeasure]) -> PooledEstimate:
    """Pool all attempts of at least one measurement. Outside 0..1 and without a spread, the error is infinite."""
    attempts = sum(max(1, one.attempts) for one in measures)
    value = math.fsum(one.value * max(1, one.attempts) for one in measures) / attempts
    if all(one.spread is not None for one in measures):
        squares = math.fsum((one.spread or 0.0) ** 2 * max(1, one.attempts) for one in measures)
        return PooledEstimate(value, value, math.sqrt(squares) / attempts)
    if not 0 <= value <= 1:
        return PooledEstimate(value, value, math.inf)
    centre = (value * attempts + 1) / (attempts + 2)
    return PooledEstimate(value, centre, math.sqrt(centre * (1 - centre) / (attempts + 2)))


def measure_gap(newer: Sequence[PooledMeasure], older: Sequence[PooledMeasure]) -> PooledEstimate:
    """Return by how much the newer measurements exceed the older ones."""
    return difference_of(pool_measures(newer), pool_measures(older))


def trend_level(measures: Sequence[PooledMeasure]) -> PooledEstimate:
    """Return the last value of the least-squares line through measurements: the newest level after a rise or fall.

    There are two or more, at different steps. Without a trend its error is larger than the mean's; with a rise it is
    not biased downwards as the mean is. For shares it is at most 1.
    """
    at = [float(one.step) for one in measures]
    middle = math.fsum(at) / len(at)
    spread = math.fsum((step - middle) ** 2 for step in at)
    weights = [1 / len(at) + (at[-1] - middle) * (step - middle) / spread for step in at]
    each = [pool_measures([one]) for one in measures]
    most = math.inf if any(one.spread is not None for one in measures) else 1.0
    return PooledEstimate(
        min(most, math.fsum(weight * one.value for weight, one in zip(weights, each, strict=True))),
        min(most, math.fsum(weight * one.centre for weight, one in zip(weights, each, strict=True))),
        math.sqrt(math.fsum((weight * one.error) ** 2 for weight, one in zip(weights, each, strict=True))),
    )


def difference_of(one: PooledEstimate, other: PooledEstimate) -> PooledEstimate:
    """Return by how much one estimate exceeds the other."""
    return PooledEstimate(one.value - other.value, one.centre - other.centre, math.hypot(one.error, other.error))


@dataclass(frozen=True, slots=True)
class WindowHalves:
    """A window of measurements, cut in the middle."""

    older: Sequence[PooledMeasure]
    newer: Sequence[PooledMeasure]

    @property
    def rise(self) -> PooledEstimate:
        """Return by how much the newer half exceeds the older one."""
        return measure_gap(self.newer, self.older)


def find_plateau(measures: Sequence[PooledMeasure], steps: int, delta: float) -> WindowHalves | None:
    """Return the halves of the newest window if the newer does not exceed the older by `delta`; None: no plateau.

    The window spans at least `steps` steps and `FEWEST` measurements, and extends back until a rise of `WORTH` per
    measurement would have been detected; with too few measurements the result is None. A share that is too high to rise
    by `delta` does not need this.
    """
    for size in range(FEWEST, len(measures) + 1, 2):
        window = measures[-size:]
        halves = WindowHalves(window[: size // 2], window[size // 2 :])
        if window[-1].step - window[0].step < steps:
            continue
        if _is_at_its_top(halves.older, delta):
            return halves
        if POWER * halves.rise.error <= WORTH * size / 2:
            return halves if halves.rise.at_least() <= delta else None
    return None


def _is_at_its_top(measures: Sequence[PooledMeasure], delta: float) -> bool:
    return all(one.spread is None for one in measures) and pool_measures(measures).centre + delta >= 1


@dataclass(frozen=True, slots=True)
class Latency:
    """Latency quantiles in seconds; None if nothing was measured."""

    p50_s: float | None
    p99_s: float | None


def latency_quantiles(seconds: Collection[float]) -> Latency:
    """Return the quantiles of some durations."""
    ranked = sorted(seconds)
    return Latency(_at(ranked, 0.5), _at(ranked, 0.99)) if ranked else Latency(None, None)


def _at(ranked: list[float], share: float) -> float:
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]

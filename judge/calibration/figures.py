"""A judge's figures against human labels, each with its 95 % interval by bootstrap over groups. Pure.

Owns: the formulas and the bootstrap; the same seed gives the same intervals. Refuses: pairs
(`judge.calibration.labels`), and the choice of a judge (`judge.calibration.comparison`).

Pairs of one group are not independent, because they share its task and its trajectories. So the bootstrap resamples
groups, never pairs (Field and Welsh 2007). Every figure is a function of counts that add up, so all resamples are one
matrix product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from judge.calibration.labels import (
    JUDGE_EARLIER,
    JUDGE_LATER,
    JUDGE_LONGER,
    JUDGE_SHORTER,
    PEOPLE_EARLIER,
    PEOPLE_LATER,
    PEOPLE_LONGER,
    PEOPLE_SHORTER,
    TABLE,
    Counts,
)
from recorder.stats.means import Interval

DRAWS: Final = 2_000
_ENDS: Final = (2.5, 97.5)  # percentiles

Values = NDArray[np.float64]
Formula = Callable[[Counts], Values]


@dataclass(frozen=True, slots=True)
class Figure:
    """A figure's value and its interval; None: undefined for these pairs."""

    value: float | None
    interval: Interval | None


def accuracy(counts: Counts) -> Values:
    """The share of pairs without a human tie that the judge orders like people; a judge's tie counts one half.

    `counts` is [..., columns] here and below; the result has one dimension less, and nan where undefined.
    """
    table = _table(counts)
    right = table[..., 0, 0] + table[..., 2, 2] + (table[..., 0, 1] + table[..., 2, 1]) / 2
    return _divided(right, table[..., (0, 2), :].sum((-1, -2)))


def kappa(counts: Counts) -> Values:
    """Cohen's kappa (1960) over "first", "tie", "second": agreement beyond chance."""
    table = _table(counts)
    whole = table.sum((-1, -2))
    agreed = _divided(np.trace(table, axis1=-2, axis2=-1), whole)
    by_chance = _divided((table.sum(-1) * table.sum(-2)).sum(-1), whole * whole)
    return _divided(agreed - by_chance, 1 - by_chance)


def kendall_tau(counts: Counts) -> Values:
    """Kendall's tau-b (1945) over all pairs: the rank correlation within groups."""
    table = _table(counts)
    kept = table[..., 0, 0] + table[..., 2, 2]
    turned = table[..., 0, 2] + table[..., 2, 0]
    by_people, by_judge = table[..., (0, 2), :].sum((-1, -2)), table[..., :, (0, 2)].sum((-1, -2))
    return _divided(kept - turned, np.sqrt(by_people * by_judge))


def position_bias(counts: Counts) -> Values:
    """How much more often than people the judge prefers the trajectory shown earlier, as a share of pairs."""
    return _more_often(counts, (JUDGE_EARLIER, JUDGE_LATER), (PEOPLE_EARLIER, PEOPLE_LATER))


def length_bias(counts: Counts) -> Values:
    """How much more often than people the judge prefers the longer trajectory, as a share of pairs."""
    return _more_often(counts, (JUDGE_LONGER, JUDGE_SHORTER), (PEOPLE_LONGER, PEOPLE_SHORTER))


FIGURES: Final[Mapping[str, Formula]] = {
    "tau": kendall_tau,
    "accuracy": accuracy,
    "kappa": kappa,
    "position_bias": position_bias,
    "length_bias": length_bias,
}


def judge_figures(counts: Counts, seed: int = 0) -> dict[str, Figure]:
    """All figures of one judge; `counts` is [groups, columns]."""
    summed, drawn = counts.sum(0), bootstrap_counts(counts, seed)
    return {name: _figure(formula(summed), formula(drawn)) for name, formula in FIGURES.items()}


def figure_difference(one: Counts, other: Counts, formula: Formula = accuracy, seed: int = 0) -> Figure:
    """A figure of one judge minus that of another; both [groups, columns], same groups in the same order.

    The same resampled groups are used for both, so a group's difficulty cancels out.
    """
    value = formula(one.sum(0)) - formula(other.sum(0))
    return _figure(value, formula(bootstrap_counts(one, seed)) - formula(bootstrap_counts(other, seed)))


def bootstrap_counts(counts: Counts, seed: int) -> Counts:
    """Sums of the counts over groups drawn with replacement: [`DRAWS`, columns]."""
    groups = len(counts)
    if groups == 0:
        return np.zeros((DRAWS, counts.shape[-1]))
    times = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), DRAWS)
    return np.asarray(times @ counts, np.float64)


def _figure(value: Values, drawn: Values) -> Figure:
    known = drawn[np.isfinite(drawn)]
    if not np.isfinite(value):
        return Figure(None, None)
    if len(known) < DRAWS / 2:  # undefined in most draws: the rest is no sample
        return Figure(float(value), None)
    low, high = np.percentile(known, _ENDS)
    return Figure(float(value), Interval(float(low), float(high)))


def _table(counts: Counts) -> Counts:
    return counts[..., :TABLE].reshape(*counts.shape[:-1], 3, 3)


def _more_often(counts: Counts, judge: tuple[int, int], people: tuple[int, int]) -> Values:
    def share(above: int, below: int) -> Values:
        return _divided(counts[..., above], counts[..., above] + counts[..., below])

    return share(*judge) - share(*people)


def _divided(top: Values, bottom: Values) -> Values:
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(bottom > 0, top / bottom, np.nan)

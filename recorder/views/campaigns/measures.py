"""What a campaign's steps and validations measured: how many attempts, the mean, its 95 % interval, how many errored.

Owns: the one computation of these that report, API, pages, status, trackers and stop rules share. Pure. Refuses:
measuring attempts (`trainer.campaign.measurement`), and comparing measures (`recorder.stats.means`).

A mean is over the attempts that ended by themselves. Attempts that errored are a count beside it, never part of its
denominator. The one exception is a success: an attempt that its own agent spoilt is a failure of the version. Such
attempts are counted in the mean, and not among the errored ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from recorder.stats import means
from recorder.stats.means import Interval
from recorder.views.campaigns.events import CampaignMeasure, StepDone, Validation

Kind = Literal["success", "win rate", "reward"]
Source = Literal["validation", "step", "gate", "own runs"]
SPREAD: Final = "reward_std"  # of a validation's figures, and of the trainer's metrics
_KINDS: Final[dict[CampaignMeasure, Kind]] = {
    CampaignMeasure.SUCCESS: "success", CampaignMeasure.WINS: "win rate", CampaignMeasure.REWARD: "reward",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measure:
    """What a version was worth. `kind`: the share of successes, of comparisons with version 0 that it won, or the mean
    reward; `of`: how many attempts, or comparisons. `errored`: attempts beside these that did not end by themselves.
    """

    kind: Kind
    value: float
    of: int
    interval: Interval | None
    source: Source
    errored: int = 0


def compute_measure(event: StepDone | Validation, by: CampaignMeasure) -> Measure | None:
    """What an event measured; None: nothing. A step's own attempts are no comparisons: it has no win rate."""
    value = measure_value(event, by)
    if value is None:
        return None
    source: Source = "validation" if isinstance(event, Validation) else "step"
    count = count_measured(event)
    return Measure(_KINDS[by], value, count, _interval(event, by, value, count), source, count_errored(event, by))


def measure_value(event: StepDone | Validation, by: CampaignMeasure) -> float | None:
    """The mean alone."""
    if by is CampaignMeasure.SUCCESS:
        return event.success
    if by is CampaignMeasure.REWARD:
        return event.reward
    return event.win_rate if by is CampaignMeasure.WINS and isinstance(event, Validation) else None


def measure_spread(event: StepDone | Validation, by: CampaignMeasure) -> float | None:
    """The standard deviation of one attempt's value; None: it is a share, or nobody wrote it down."""
    known = event.figures if isinstance(event, Validation) else event.metrics
    return known.get(SPREAD) if by is CampaignMeasure.REWARD else None


def count_measured(event: StepDone | Validation) -> int:
    """How many attempts, or comparisons, the mean is over."""
    if isinstance(event, Validation):
        return event.attempts
    return count_ended(event) if event.measured_attempts is None else event.measured_attempts


def count_ended(step: StepDone) -> int:
    """How many attempts of a step ended by themselves."""
    return max(0, step.attempts - step.errored)


def count_errored(event: StepDone | Validation, by: CampaignMeasure) -> int:
    """How many attempts errored and are in no mean."""
    failures = 0 if by is CampaignMeasure.REWARD else event.agent_failures
    return max(0, event.errored - failures)


def infer_measure(events: Sequence[StepDone | Validation]) -> CampaignMeasure:
    """By what an older program compared that did not write it down: the first of success, wins and reward that any of
    the events has.
    """
    told = (CampaignMeasure.SUCCESS, CampaignMeasure.WINS, CampaignMeasure.REWARD)
    found = (by for by in told if any(measure_value(one, by) is not None for one in events))
    return next(found, CampaignMeasure.NOTHING)


def _interval(event: StepDone | Validation, by: CampaignMeasure, value: float, count: int) -> Interval | None:
    if by is not CampaignMeasure.REWARD:
        return means.share_interval(value, count)
    spread = measure_spread(event, by)
    return means.mean_interval(value, spread, count) if spread is not None else None

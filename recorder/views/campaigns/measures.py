"""Measures of a campaign's steps and validations: number of attempts, mean, 95 % interval, number of errored attempts.

Owns: the one computation that report, API, pages, status, trackers and stop rules share. Pure. Refuses: measuring
attempts (`trainer.campaign.measurement`), and comparing measures (`recorder.stats.means`).

A mean is over the attempts that completed. Errored attempts are counted separately and are not in the denominator. The
exception is success: an attempt that failed because of its own agent is a failure of the version. It counts in the
mean, and not as errored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from recorder.stats import means
from recorder.stats.means import Interval
from recorder.views.campaigns.events import CampaignMeasure, StepDone, Validation

Kind = Literal["success", "win rate", "reward"]
Source = Literal["validation", "step", "gate"]
SPREAD: Final = "reward_std"  # the key in a validation's figures and in the trainer's metrics
_KINDS: Final[dict[CampaignMeasure, Kind]] = {
    CampaignMeasure.SUCCESS: "success", CampaignMeasure.WINS: "win rate", CampaignMeasure.REWARD: "reward",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measure:
    """A version's measure. `kind`: the share of successes, the share of won comparisons with version 0 (of a gate: with
    the live version), or the mean reward; `of`: the number of attempts or comparisons; `errored`: further attempts that
    did not complete.
    """

    kind: Kind
    value: float
    of: int
    interval: Interval | None
    source: Source
    errored: int = 0


def compute_measure(event: StepDone | Validation, by: CampaignMeasure) -> Measure | None:
    """Return what an event measured, or None. A step has no win rate, because its attempts are not comparisons."""
    value = measure_value(event, by)
    if value is None:
        return None
    source: Source = "validation" if isinstance(event, Validation) else "step"
    count = count_measured(event)
    return Measure(_KINDS[by], value, count, _interval(event, by, value, count), source, count_errored(event, by))


def measure_value(event: StepDone | Validation, by: CampaignMeasure) -> float | None:
    """Return the mean of an event's measure, or None if it was not measured."""
    if by is CampaignMeasure.SUCCESS:
        return event.success
    if by is CampaignMeasure.REWARD:
        return event.reward
    return event.win_rate if by is CampaignMeasure.WINS and isinstance(event, Validation) else None


def rank_versions(validations: Sequence[Validation], measure: CampaignMeasure) -> list[tuple[str, float]]:
    """Versions with their last measure, the best first; if equal, the newest."""
    newest = {one.version: value for one in validations if (value := measure_value(one, measure)) is not None}
    placed = sorted(((value, place, name) for place, (name, value) in enumerate(newest.items())), reverse=True)
    return [(name, value) for value, _, name in placed]


def measure_spread(event: StepDone | Validation, by: CampaignMeasure) -> float | None:
    """Return the standard deviation of one attempt's reward, or None if the measure is a share or it is unknown."""
    known = event.figures if isinstance(event, Validation) else event.metrics
    return known.get(SPREAD) if by is CampaignMeasure.REWARD else None


def count_measured(event: StepDone | Validation) -> int:
    """Return the number of attempts or comparisons in the mean."""
    if isinstance(event, Validation):
        return event.attempts
    return count_ended(event) if event.measured_attempts is None else event.measured_attempts


def count_ended(step: StepDone) -> int:
    """Return the number of a step's attempts that completed."""
    return max(0, step.attempts - step.errored)


def count_errored(event: StepDone | Validation, by: CampaignMeasure) -> int:
    """Return the number of attempts that errored and are in no mean."""
    failures = 0 if by is CampaignMeasure.REWARD else event.agent_failures
    return max(0, event.errored - failures)


def infer_measure(events: Sequence[StepDone | Validation]) -> CampaignMeasure:
    """Return the measure of a campaign whose program did not record it.

    It is the first of success, wins and reward that any of the events has.
    """
    candidates = (CampaignMeasure.SUCCESS, CampaignMeasure.WINS, CampaignMeasure.REWARD)
    found = (by for by in candidates if any(measure_value(one, by) is not None for one in events))
    return next(found, CampaignMeasure.NOTHING)


def _interval(event: StepDone | Validation, by: CampaignMeasure, value: float, count: int) -> Interval | None:
    if by is not CampaignMeasure.REWARD:
        return means.share_interval(value, count)
    spread = measure_spread(event, by)
    return means.mean_interval(value, spread, count) if spread is not None else None

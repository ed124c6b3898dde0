"""What a campaign measured, as points of its report's curve; the best version, the goals, the health figures. Pure.

Owns: these. Refuses: the measures themselves (`recorder.learned.campaign_measures`), and stopping by them
(`trainer.campaign`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from recorder.learned.campaign_events import CampaignMeasure, StepDone, Validation
from recorder.learned.campaign_measures import compute_measure, count_errored, count_measured
from trainer.campaign.serving import by_worth
from trainer.report.shapes import Goal, Point

# Of a step's metrics: what `trainer.campaign.figures` says of its attempts, and the trainer's own.
_HEALTH: Final = "health."
_PARTS: Final = "part."
_FIGURES: Final = (
    "perfect", "zero_variance", "judge_agreement", "length", "turns", "tool_calls", "repetition", "seconds",
)  # fmt: skip
_TRAINERS: Final = ("entropy", "kl_engine", "kl_base", "clip_fraction")


def point(event: StepDone | Validation, kind: CampaignMeasure) -> Point:
    """What an event measured, as a point of the curve: a validation, or a step's own attempts, which have no wins."""
    measure = compute_measure(event, kind)
    sure = measure.interval if measure is not None else None
    found = Point(
        step=event.step,
        version=event.sampled_by if isinstance(event, StepDone) else event.version,
        value=measure.value if measure is not None else None,
        attempts=count_measured(event),
        errored=count_errored(event, kind),
        low=sure.low if sure is not None else None,
        high=sure.high if sure is not None else None,
    )
    if isinstance(event, StepDone):
        return found
    return replace(
        found,
        figures=event.figures,
        adversarial=event.adversarial,
        adversarial_attempts=event.adversarial_attempts,
    )


def best(validations: Sequence[Validation], kind: CampaignMeasure) -> Validation | None:
    """The newest validation of the version that the campaign calls the best."""
    placed = by_worth(validations, kind)
    return next((one for one in reversed(validations) if placed and one.version == placed[0][0]), None)


def goals(wanted: Iterable[Mapping[str, Any]], of: Point | None) -> list[Goal]:
    """What must hold beside the target, and whether it does of one point."""
    return [_goal(one, of.figures if of is not None else {}) for one in wanted]


def _goal(wanted: Mapping[str, Any], figures: Mapping[str, float]) -> Goal:
    most, least = wanted.get("at_most"), wanted.get("at_least")
    metric = str(wanted.get("metric"))
    value = figures.get(metric)
    words = " and ".join(
        f"{metric} at {word} {bound:g}" for word, bound in (("most", most), ("least", least)) if bound is not None
    )
    if value is None:
        return Goal(words, None, None)
    return Goal(words, value, (most is None or value <= most) and (least is None or value >= least))


def health(steps: Sequence[StepDone]) -> dict[str, list[float | None]]:
    """Each figure of the steps' health, and the trainer's own that go with them, at each step; those never told go."""
    parts = sorted({name for step in steps for name in step.metrics if name.startswith(_PARTS)})
    told = {"reward": [step.reward for step in steps]}
    told |= {name: [step.metrics.get(f"{_HEALTH}{name}") for step in steps] for name in _FIGURES}
    told |= {name: [step.metrics.get(name) for step in steps] for name in (*parts, *_TRAINERS)}
    return {name: values for name, values in told.items() if any(value is not None for value in values)}

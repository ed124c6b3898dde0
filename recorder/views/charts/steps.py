"""The charts of training: a figure of each step, and trained and excluded trajectories over time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from recorder.stats.charts import Axis, Chart, Series
from recorder.store.database import Project
from recorder.views.charts.axes import time_axis
from recorder.views.status.training import STEPS
from recorder.views.versions.steps import OutcomeCounts, StepSummary, list_steps, training_outcomes

REASONS: Final = 5  # of exclusion that get a series of their own
TRAINED: Final = "trained"
_OF_STEPS: Final[Mapping[str, tuple[str, Callable[[StepSummary], float | None]]]] = {
    "reward": ("Mean reward", lambda step: step.reward_mean),
    "kl": ("KL, engine to trainer", lambda step: step.kl),
    "entropy": ("Entropy", lambda step: step.entropy),
    "clipped": ("Share of clipped tokens", lambda step: step.clip_fraction),
    "speed": ("Tokens a second", lambda step: step.tokens_per_s),
}
_DRIFT: Final = (
    ("kl_base", "from the base"),
    ("kl_parent", "from the parent"),
    ("kl_day", "from the version of a day ago"),
    ("kl_week", "from the version of a week ago"),
)
_WAITS_FOR_STEP: Final = "The next step that records this figure gives the first point."
_WAITS_FOR_DRIFT: Final = (
    "The first step with a drift set gives the first point. Hone draws the set once enough tasks wait "
    "(trainer.drift_trajectories)."
)
_WAITS_FOR_SCORES: Final = (
    "The first version whose gate scores its answers on the drift set gives the first point "
    "(trainer.drift_trajectories)."
)
_WAITS_FOR_OUTCOMES: Final = "The first trajectory that a step trains on or excludes gives the first bar."


async def load_step_charts(project: Project, alias: str | None) -> dict[str, Chart]:
    """Return the charts of the newest steps, by name."""
    return step_charts(await list_steps(project, alias=alias, limit=STEPS))


async def load_outcome_charts(project: Project) -> dict[str, Chart]:
    """Return the chart `outcomes`."""
    return {"outcomes": outcome_chart(await training_outcomes(project))}


def step_charts(steps: Sequence[StepSummary]) -> dict[str, Chart]:
    """A chart of each metric, and one of the seconds by phase, by name; oldest step first."""
    oldest_first = list(reversed(steps))
    places, axis = tuple(str(step.number) for step in oldest_first), _axis(oldest_first)

    def chart(title: str, series: Sequence[Series], waits_for: str, *, bars: bool = False) -> Chart:
        return Chart(title, places, tuple(series), bars=bars, axis=axis, waits_for=waits_for)

    def series(name: str, value: Callable[[StepSummary], float | None]) -> Series:
        return Series(name, tuple(value(step) for step in oldest_first))

    phases = list(dict.fromkeys(phase for step in oldest_first for phase in step.seconds))
    drifts = [(name, title) for name, title in _DRIFT if any(name in step.drift for step in oldest_first)]
    return {
        **{name: chart(title, [series(title, of)], _WAITS_FOR_STEP) for name, (title, of) in _OF_STEPS.items()},
        "drift": chart(
            "Drift: KL on the drift set, in nats",
            [Series(title, tuple(step.drift.get(name) for step in oldest_first)) for name, title in drifts],
            _WAITS_FOR_DRIFT,
        ),
        "forgetting": chart(
            "Forgetting: mean score on the drift set",
            [series("score", lambda step: step.drift.get("score"))],
            _WAITS_FOR_SCORES,
        ),
        "seconds": chart(
            "Seconds by phase",
            [Series(phase, tuple(step.seconds.get(phase) for step in oldest_first)) for phase in phases],
            _WAITS_FOR_STEP,
            bars=True,
        ),
    }


def _axis(oldest_first: Sequence[StepSummary]) -> Axis:
    """Steps by their numbers; as labels where numbers come twice, because the steps are of several aliases."""
    at = tuple(float(step.number) for step in oldest_first)
    rising = all(one < later for one, later in pairwise(at))
    return Axis("step", "numbers", at) if rising else Axis("step")


def outcome_chart(intervals: Sequence[OutcomeCounts]) -> Chart:
    """Trained and excluded trajectories over time, by reason."""
    total: Counter[str] = Counter()
    for one in intervals:
        total.update(one.trajectories)
    reasons = [code for code, _ in total.most_common() if code != TRAINED]
    first, others = reasons[:REASONS], reasons[REASONS:]
    series = [
        Series(code, tuple(float(one.trajectories.get(code, 0)) for one in intervals)) for code in (TRAINED, *first)
    ]
    if others:
        rest = tuple(float(sum(one.trajectories.get(code, 0) for code in others)) for one in intervals)
        series.append(Series("other reasons", rest))
    return Chart(
        "Trained and excluded trajectories",
        tuple(_when(one) for one in intervals),
        tuple(series),
        bars=True,
        axis=time_axis("since", [one.since for one in intervals]),
        waits_for=_WAITS_FOR_OUTCOMES,
    )


def _when(one: OutcomeCounts) -> str:
    """The start of an interval: a date for days, else with hours and minutes."""
    return time.strftime("%b %d" if one.span_s >= 86400 else "%b %d %H:%M", time.localtime(one.since))

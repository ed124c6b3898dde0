"""What a campaign was measured at: which figure tells, each model's with its interval, the best, the goals. Pure.

Owns: these. Refuses: measuring, and stopping by it (`trainer.campaign`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from recorder.learned import intervals
from trainer.campaign.serving import by_worth
from trainer.measuring.yardstick import Yardstick, spread_of, value_of
from trainer.progress import StepDone, Validated
from trainer.report.shapes import Goal, Point

# Of a step's metrics: what `trainer.campaign.figures` says of its attempts, and the trainer's own.
_HEALTH: Final = "health."
_PARTS: Final = "part."
_FIGURES: Final = (
    "perfect", "zero_variance", "judge_agreement", "length", "turns", "tool_calls", "repetition", "seconds",
)  # fmt: skip
_TRAINERS: Final = ("entropy", "kl_engine", "kl_base", "clip_fraction")


def kind_of(validations: Sequence[Validated], steps: Sequence[StepDone]) -> Yardstick:
    """Which figure tells how a campaign went: of its validations, else of its steps' own attempts."""
    seen: Sequence[StepDone | Validated] = validations or steps
    told = (Yardstick.SUCCESS, Yardstick.WINS, Yardstick.REWARD)
    return next((k for k in told if any(value_of(one, k) is not None for one in seen)), Yardstick.NOTHING)


def point(one: Validated, kind: Yardstick) -> Point:
    """A validation as a point of the curve."""
    value = value_of(one, kind)
    low, high = _ends(value, one.attempts, kind, spread_of(one, kind))
    return Point(
        one.step, one.version, value, one.attempts, one.errored, low, high, one.figures, one.adversarial,
        one.adversarial_attempts,
    )  # fmt: skip


def own(step: StepDone, kind: Yardstick) -> Point:
    """A step's own attempts as a point of the same curve; wins are nothing that they have."""
    value, attempts = value_of(step, kind), step.attempts - step.errored
    low, high = _ends(value, attempts, kind, spread_of(step, kind))
    return Point(step.step, step.sampled_by, value, attempts, step.errored, low, high)


def _ends(value: float | None, attempts: int, kind: Yardstick, std: float | None) -> tuple[float | None, float | None]:
    if value is None:
        return None, None
    if kind is Yardstick.REWARD:
        sure = intervals.of_mean(value, std, attempts) if std is not None else None
    else:
        sure = intervals.of_share(value, attempts)
    return (sure.low, sure.high) if sure is not None else (None, None)


def best(validations: Sequence[Validated], kind: Yardstick) -> Validated | None:
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

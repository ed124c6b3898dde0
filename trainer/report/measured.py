"""What a campaign was measured at: which figure tells, each model's with its interval, the best, the goals. Pure.

Owns: these. Refuses: measuring, and stopping by it (`trainer.campaign`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from recorder.learned import intervals
from trainer.progress import StepDone, Validated
from trainer.report.shapes import Goal, Kind, Point


def kind_of(validations: Sequence[Validated], steps: Sequence[StepDone]) -> Kind | None:
    """Which figure tells how a campaign went: of its validations, else of its steps' own attempts."""
    seen = validations or steps
    if any(one.success is not None for one in seen):
        return "success"
    if any(one.win_rate is not None for one in validations):
        return "win rate"
    return "reward" if any(one.reward is not None for one in seen) else None


def point(one: Validated, kind: Kind | None) -> Point:
    """A validation as a point of the curve."""
    value = {"success": one.success, "win rate": one.win_rate, "reward": one.reward}.get(kind or "")
    low, high = _ends(value, one.attempts, kind, one.figures.get("reward_std"))
    return Point(
        one.step, one.version, value, one.attempts, one.errored, low, high, one.figures, one.adversarial,
        one.adversarial_attempts,
    )  # fmt: skip


def own(step: StepDone, kind: Kind | None) -> Point:
    """A step's own attempts as a point of the same curve; a win rate is nothing that they have."""
    value = {"success": step.success, "reward": step.reward}.get(kind or "")
    attempts = step.attempts - step.errored
    low, high = _ends(value, attempts, kind)
    return Point(step.step, step.sampled_by, value, attempts, step.errored, low, high)


def _ends(
    value: float | None, attempts: int, kind: Kind | None, std: float | None = None
) -> tuple[float | None, float | None]:
    if value is None:
        return None, None
    if kind == "reward":
        sure = intervals.of_mean(value, std, attempts) if std is not None else None
    else:
        sure = intervals.of_share(value, attempts)
    return (sure.low, sure.high) if sure is not None else (None, None)


def best(points: Iterable[Point]) -> Point | None:
    """The version that measured most, by its newest measure; of several the newest, as a campaign chooses."""
    newest = {one.version: one for one in points if one.value is not None}
    return max(newest.values(), key=lambda one: (one.value or 0.0, one.step), default=None)


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
    names = sorted({name for step in steps for name in step.metrics if name.startswith(_HEALTH)})
    told = {name.removeprefix(_HEALTH): [step.metrics.get(name) for step in steps] for name in names}
    told = {"reward": [step.reward for step in steps]} | told
    told |= {name: [step.metrics.get(name) for step in steps] for name in _TRAINERS}
    return {name: values for name, values in told.items() if any(value is not None for value in values)}


_HEALTH = "health."
_TRAINERS = ("entropy", "kl_engine", "kl_base", "clip_fraction")

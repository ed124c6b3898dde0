"""When a campaign ends: after its steps, at its target, or on a plateau. Pure.

Owns: the three rules and which of them speaks first. Refuses: measuring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class StopCode(StrEnum):
    """Which rule ended a campaign."""

    TARGET = "target"
    PLATEAU = "plateau"
    STEPS = "steps"


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules in force; None: that rule does not apply."""

    steps: int
    target: float | None = None
    target_steps: int = 1
    plateau_steps: int | None = None
    plateau_delta: float = 0.0


@dataclass(frozen=True, slots=True)
class Measure:
    """What was measured after `step` steps: the share of successes, or the mean reward."""

    step: int
    value: float


@dataclass(frozen=True, slots=True)
class Stop:
    """The campaign is over, and why."""

    code: StopCode
    detail: str


def decide(measures: Sequence[Measure], steps_done: int, rules: Rules) -> Stop | None:
    """Whether the campaign ends now. `measures` are in the order of their steps; there may be none."""
    if reached(measures, rules):
        return Stop(StopCode.TARGET, f"{measures[-1].value:.3f} reached the target {rules.target:g}")
    if rules.plateau_steps is not None and measures:
        since = last_rise(measures, rules.plateau_delta)
        if steps_done - since.step >= rules.plateau_steps:
            return Stop(StopCode.PLATEAU, f"no rise over {since.value:.3f} in {steps_done - since.step} steps")
    if steps_done >= rules.steps:
        return Stop(StopCode.STEPS, f"{steps_done} steps done")
    return None


def reached(measures: Sequence[Measure], rules: Rules) -> bool:
    """Whether the last `target_steps` measures all reach the target."""
    last = measures[-rules.target_steps :]
    return rules.target is not None and len(last) == rules.target_steps and all(m.value >= rules.target for m in last)


def last_rise(measures: Sequence[Measure], delta: float) -> Measure:
    """The measure that last rose by more than `delta` over the best before it; small rises add up until they do."""
    best = measures[0]
    for measure in measures[1:]:
        if measure.value > best.value + delta:
            best = measure
    return best

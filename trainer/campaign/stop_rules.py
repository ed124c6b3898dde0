"""Stop rules of a campaign: target reached, unhealthy, out of budget, all steps or epochs done, plateau. Pure.

Owns: the rules and their order of precedence. Refuses: measuring, and statistics (`recorder.stats.means`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from recorder.queue.campaign_requests import ASKED_BY, CampaignRequest
from recorder.stats.means import SURE, PooledMeasure, find_plateau, measure_gap
from trainer.campaign.health import HealthFinding


class StopCode(StrEnum):
    """Which rule ended a campaign."""

    TARGET = "target"
    PLATEAU = "plateau"
    BUDGET = "budget"
    STEPS = "steps"
    EPOCHS = "epochs"
    CONVERGED = "converged"
    SCHEDULE_ENDED = "schedule_ended"  # the learning rate is 0: no further step would change anything
    ENDED = "ended"  # by a person
    PAUSED = "paused"  # the campaign is stopped and can be resumed


def asked_stop(asked: CampaignRequest) -> StopDecision:
    """What a person's request means for the campaign."""
    return StopDecision(StopCode.PAUSED if asked.wish == "pause" else StopCode.ENDED, f"{ASKED_BY}{asked.by}")


@dataclass(frozen=True, slots=True)
class BeatGoal:
    """A baseline that must be beaten by `margin`, on the same scenarios, before the target counts."""

    name: str
    measure: PooledMeasure
    margin: float = 0.0


@dataclass(frozen=True, slots=True)
class StopRules:
    """The active rules; None: that rule does not apply. `epoch_steps`: steps in which every scenario is drawn once."""

    steps: int
    target: float | None = None
    target_steps: int = 1
    plateau_steps: int | None = None
    plateau_delta: float = 0.0
    beat: BeatGoal | None = None
    epochs: int | None = None
    epoch_steps: int = 1
    max_minutes: float | None = None
    max_judge_usd: float | None = None
    max_judge_tokens: int | None = None
    schedule_ended: str | None = None  # why no step may begin any more


@dataclass(frozen=True, slots=True)
class CampaignCost:
    """The cost of the campaign so far, over all processes that ran it."""

    minutes: float = 0.0
    judge_usd: float = 0.0
    judge_tokens: int = 0


@dataclass(frozen=True, slots=True)
class StopDecision:
    """The campaign ends, and why."""

    code: StopCode
    detail: str


NOTHING_SPENT: Final = CampaignCost()


def decide_stop(
    measures: Sequence[PooledMeasure],
    steps_done: int,
    rules: StopRules,
    spent: CampaignCost = NOTHING_SPENT,
    unmet: Sequence[str] = (),
    findings: Sequence[HealthFinding] = (),
) -> StopDecision | None:
    """Whether the campaign ends now.

    `measures` are in the order of their steps; there may be none. `unmet`: the unmet goals, a sentence each.
    `findings`: health signals of the newest step. A pause takes precedence over the target, which a gamed measure may
    reach.
    """
    held_back = _held_back(measures, rules, unmet)
    found = (
        _by_health(findings, "pause", StopCode.PAUSED)
        or (_at_target(measures, rules) if held_back is None else None)
        or _by_health(findings, "stop", StopCode.CONVERGED)
        or _on_plateau(measures, rules)
        or _out_of_budget(rules, spent)
        or _after(steps_done, rules)
        or (StopDecision(StopCode.SCHEDULE_ENDED, rules.schedule_ended) if rules.schedule_ended else None)
    )
    if found is None or not held_back or found.code is StopCode.PAUSED:
        return found
    return StopDecision(found.code, f"{found.detail}; {held_back}")


def is_target_reached(measures: Sequence[PooledMeasure], rules: StopRules) -> bool:
    """Whether the last `target_steps` measures all reach the target."""
    last = measures[-rules.target_steps :]
    return rules.target is not None and len(last) == rules.target_steps and all(m.value >= rules.target for m in last)


def _held_back(measures: Sequence[PooledMeasure], rules: StopRules, unmet: Sequence[str]) -> str | None:
    """Why a reached target does not count; None: it counts, or is not reached."""
    if not is_target_reached(measures, rules):
        return None
    missing = [*unmet]
    if rules.beat is not None and (why := _not_beaten(measures[-rules.target_steps :], rules.beat)):
        missing.insert(0, why)
    return f"the target {rules.target:g} was reached, but {' and '.join(missing)}" if missing else None


def _not_beaten(last: Sequence[PooledMeasure], beat: BeatGoal) -> str | None:
    shown = measure_gap(last, [beat.measure]).at_least(SURE)
    if shown > beat.margin:
        return None
    return f"{beat.name} ({beat.measure.value:.3f}) is not beaten by {beat.margin:g} at 95 % (by {shown:.3f})"


def _at_target(measures: Sequence[PooledMeasure], rules: StopRules) -> StopDecision | None:
    if not is_target_reached(measures, rules):
        return None
    beaten = f", and beats {rules.beat.name}" if rules.beat else ""
    return StopDecision(StopCode.TARGET, f"{measures[-1].value:.3f} reached the target {rules.target:g}{beaten}")


def _by_health(findings: Sequence[HealthFinding], then: str, code: StopCode) -> StopDecision | None:
    signals = [f"{one.rule}: {one.detail}" for one in findings if one.then == then]
    return StopDecision(code, "; ".join(signals)) if signals else None


def _on_plateau(measures: Sequence[PooledMeasure], rules: StopRules) -> StopDecision | None:
    if rules.plateau_steps is None:
        return None
    found = find_plateau(measures, rules.plateau_steps, rules.plateau_delta)
    if found is None:
        return None
    steps = found.newer[-1].step - found.older[0].step
    how = f"the newer half is {found.rise.value:+.3f} from the older, not above it by {rules.plateau_delta:g} at 95 %"
    return StopDecision(StopCode.PLATEAU, f"no rise in {steps} steps: {how}")


def _out_of_budget(rules: StopRules, spent: CampaignCost) -> StopDecision | None:
    limits: list[tuple[str, float | None, float]] = [
        ("max_minutes", rules.max_minutes, spent.minutes),
        ("max_judge_usd", rules.max_judge_usd, spent.judge_usd),
        ("max_judge_tokens", rules.max_judge_tokens, spent.judge_tokens),
    ]
    over = [f"{used:.6g} of {most:g} ({name})" for name, most, used in limits if most is not None and used >= most]
    return StopDecision(StopCode.BUDGET, f"spent {' and '.join(over)}") if over else None


def _after(steps_done: int, rules: StopRules) -> StopDecision | None:
    if rules.epochs is not None and steps_done >= rules.epochs * rules.epoch_steps:
        return StopDecision(StopCode.EPOCHS, f"every scenario was trained on {rules.epochs} times ({steps_done} steps)")
    return StopDecision(StopCode.STEPS, f"{steps_done} steps done") if steps_done >= rules.steps else None

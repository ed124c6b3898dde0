"""Health rules of a campaign, over the recorded measures of its steps and validations. Pure.

Owns: the rules, their defaults, and when each gives a signal. Refuses: computing measures
(`trainer.measures.round_figures`), statistics (`recorder.stats.means`), and the consequence
(`trainer.campaign.stop_rules`). docs/health.md says how to react to each rule, and its rate of false alarms.

A rule without its measures gives no signal. After a signal, a rule gives no further one until its condition was false
for at least one step.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from recorder.queue.training.refusals import HOW_TO_MEND, describe_gap, describe_probe_gap
from recorder.stats.falls import ScenarioFigure, describe_fall, find_fall
from recorder.stats.means import (
    PooledEstimate,
    PooledMeasure,
    WindowHalves,
    difference_of,
    find_plateau,
    measure_gap,
    pool_measures,
    trend_level,
)
from recorder.views.campaigns.events import CampaignMeasure, StepDone, Validation
from recorder.views.campaigns.measures import count_ended, count_measured, measure_spread, measure_value
from trainer.campaign_settings import HealthSettings, RuleName

Then = Literal["note", "pause", "stop", "off"]

FIRST: Final = 5  # steps that a drift is measured from
NEWEST: Final = 3  # steps, or validations, whose mean is compared: one alone may be chance
# The level that a fall is measured from: the mean of the validations before it, which is most precise on a plateau, and
# the end of their regression line, because while they rise their mean is below the level reached. The first validations
# of a campaign rise fastest, and their line would end too high: until there are `LINE_FROM`, the mean of `FEW` is used.
MEAN_OF: Final = 8
FEW: Final = 4
LINE_OF: Final = 11
LINE_FROM: Final = 15
# Standard errors at which a fall is significant: below the mean; below the line by all `NEWEST` validations; by fewer.
# The test runs after each validation. By simulation (benchmarks/health.py), at most 1 % of whole campaigns have a false
# alarm.
BELOW_MEAN: Final = 3.75
BELOW_LINE: Final = 3.25
BELOW_LINE_BY_FEWER: Final = 4.1
JUMPED: Final = 4.0  # standard errors of a jump: there may be hundreds of steps
MOVED: Final = 3.0  # standard errors at which the mean of steps has risen or fallen
PARTS: Final = 5  # steps of each half in which parts are compared


@dataclass(frozen=True, slots=True)
class HealthFinding:
    """A rule's signal after a step. `then`: note, pause, or stop (the campaign has converged)."""

    rule: RuleName
    then: Then
    step: int
    detail: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HealthInputs:
    """The recorded measures of a campaign, in order, since it began or was last resumed after a pause."""

    steps: Sequence[StepDone]
    validations: Sequence[Validation]

    def metric(self, name: str) -> list[float]:
        """A metric of the steps that have it."""
        return [step.metrics[name] for step in self.steps if name in step.metrics]

    def measures(self) -> list[PooledMeasure]:
        """The validations as measures: the win rate or the success rate, else the mean reward."""
        own = (validation_measure(one) for one in self.validations if one.part == "val" and not one.baseline)
        return [found for found in own if found is not None]

    def rewards(self, after: int = -1, until: int | None = None) -> list[PooledMeasure]:
        """The mean rewards of the steps after `after`, up to `until`."""
        return [
            PooledMeasure(one.step, one.reward, count_ended(one), measure_spread(one, CampaignMeasure.REWARD))
            for one in self.steps
            if one.reward is not None and one.step > after and (until is None or one.step <= until)
        ]


@dataclass(frozen=True, slots=True)
class HealthSignal:
    """What a rule found."""

    detail: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class HealthRule:
    """A rule with its default threshold and consequence."""

    at: float
    look: Callable[[HealthInputs, float], HealthSignal | None]
    then: Then = "note"


def validation_measure(one: Validation) -> PooledMeasure | None:
    """A validation as a measure; None: it has no result. `figures` has the spread of a mean as reward_std."""
    measures = (CampaignMeasure.WINS, CampaignMeasure.SUCCESS, CampaignMeasure.REWARD)
    by = next((by for by in measures if measure_value(one, by) is not None), CampaignMeasure.NOTHING)
    value = measure_value(one, by)
    return None if value is None else PooledMeasure(one.step, value, count_measured(one), measure_spread(one, by))


def list_findings(
    steps: Sequence[StepDone], validations: Sequence[Validation], settings: Mapping[RuleName, HealthSettings]
) -> list[HealthFinding]:
    """The rules that signal after the newest step and did not after the one before.

    `validations`: those made so far; other parts and baselines are ignored. After a resumed pause, both arguments hold
    only what came after it, so nothing is compared with the cause of the pause.
    """
    if not steps:
        return []
    newest = steps[-1].step
    earlier = HealthInputs(steps[:-1], [one for one in validations if one.step < newest])
    now, before = current_signals(HealthInputs(steps, validations), settings), current_signals(earlier, settings)
    return [
        HealthFinding(name, _then(name, settings), newest, found.detail, found.figures)
        for name, found in now.items()
        if name not in before
    ]


def current_signals(seen: HealthInputs, settings: Mapping[RuleName, HealthSettings]) -> dict[RuleName, HealthSignal]:
    """The signal of each rule that has one now and is not off."""
    looked = {
        name: rule.look(seen, _at(name, settings)) for name, rule in RULES.items() if _then(name, settings) != "off"
    }
    return {name: found for name, found in looked.items() if found is not None}


def _at(name: RuleName, settings: Mapping[RuleName, HealthSettings]) -> float:
    given = settings[name].at if name in settings else None
    return RULES[name].at if given is None else given


def _then(name: RuleName, settings: Mapping[RuleName, HealthSettings]) -> Then:
    return (settings[name].then if name in settings else None) or RULES[name].then


# --- validation beside reward: ↑ ↑ is healthy


def _reward_hacking(seen: HealthInputs, at: float) -> HealthSignal | None:
    """Validations fall while the reward does not.

    The newest one, two or three validations are compared with the level reached before. A purely comparative reward
    (RULER's) does not rise, so it is enough that it does not fall significantly.
    """
    fallen = (fall for fall in _recent(seen.measures()) if fall.shown(at))
    for fall, rewards in ((fall, _beside(seen, fall.halves)) for fall in fallen):
        if rewards is None or measure_gap(rewards.older, rewards.newer).at_least() > 0:
            continue
        now = pool_measures(fall.halves.newer)
        return HealthSignal(
            f"validations fell from {fall.reached.value:.3f} to {now.value:.3f} while the "
            f"reward went from {pool_measures(rewards.older).value:.3f} to {pool_measures(rewards.newer).value:.3f}",
            {"validation": now.value - fall.reached.value, "reward": rewards.rise.value},
        )
    return None


@dataclass(frozen=True, slots=True)
class _ValidationFall:
    """The newest few validations and the level that the earlier ones had reached."""

    halves: WindowHalves
    reached: PooledEstimate
    sure: float  # standard errors at which it is significant

    def shown(self, at: float) -> bool:
        """Whether the newest are below that level by `at` and beyond chance."""
        by = difference_of(self.reached, pool_measures(self.halves.newer))
        return by.value >= at and by.at_least(self.sure) > 0


def _recent(measures: Sequence[PooledMeasure]) -> Iterator[_ValidationFall]:
    """The newest one to three validations, each with those before them."""
    for size in range(1, min(NEWEST, len(measures) - 1) + 1):
        before, newer = measures[:-size], measures[-size:]
        yield _ValidationFall(WindowHalves(before[-MEAN_OF:], newer), pool_measures(before[-MEAN_OF:]), BELOW_MEAN)
        if len(before) < LINE_FROM:
            yield _ValidationFall(WindowHalves(before[-FEW:], newer), pool_measures(before[-FEW:]), BELOW_MEAN)
        else:
            sure = BELOW_LINE if size == NEWEST else BELOW_LINE_BY_FEWER
            yield _ValidationFall(WindowHalves(before[-LINE_OF:], newer), trend_level(before[-LINE_OF:]), sure)


def _converged(seen: HealthInputs, at: float) -> HealthSignal | None:
    """Validations are on a plateau while the reward rises: the policy now only optimises the reward."""
    halves = find_plateau(seen.measures(), 1, at)
    rewards = _beside(seen, halves) if halves else None
    if halves is None or rewards is None or _shown(_values(rewards.older), _values(rewards.newer)) <= 0:
        return None
    steps = halves.newer[-1].step - halves.older[0].step
    return HealthSignal(
        f"in {steps} steps validations changed by {halves.rise.value:+.3f} and the reward by {rewards.rise.value:+.3f}",
        {"validation": halves.rise.value, "reward": rewards.rise.value},
    )


def _beside(seen: HealthInputs, validations: WindowHalves) -> WindowHalves | None:
    """The rewards of the steps that belong to two halves of validations; None if one half has none."""
    older, newer = validations.older, validations.newer
    rewards = WindowHalves(
        seen.rewards(older[0].step - 1, older[-1].step), seen.rewards(older[-1].step, newer[-1].step)
    )
    return rewards if rewards.older and rewards.newer else None


def _values(measures: Sequence[PooledMeasure]) -> list[float]:
    return [one.value for one in measures]


# --- rewards of the steps themselves


def _reward_jump(seen: HealthInputs, at: float) -> HealthSignal | None:
    """One step's reward is far above those of the steps before: a trick may have been found."""
    rewards = [one for one in seen.rewards() if one.spread is not None]
    if len(rewards) < 2:
        return None
    older, newest = rewards[-1 - FIRST : -1], rewards[-1]
    jump = measure_gap([newest], older)
    spread = statistics.fmean(one.spread for one in older if one.spread is not None)
    if jump.value < at * spread or jump.at_least(JUMPED) <= 0:
        return None
    return HealthSignal(
        f"the reward jumped from {pool_measures(older).value:.3f} to {newest.value:.3f}",
        {"jump": jump.value, "spread": spread},
    )


def _perfect_scores(seen: HealthInputs, at: float) -> HealthSignal | None:
    """Nearly every attempt has the maximum reward."""
    return _high(seen, "health.perfect", at, "of the attempts have the highest reward")


def _zero_variance(seen: HealthInputs, at: float) -> HealthSignal | None:
    """Nearly every group's attempts have equal rewards: they give no training signal."""
    return _high(seen, "health.zero_variance", at, "of the groups have the same reward for all attempts")


def _high(seen: HealthInputs, name: str, at: float, what: str) -> HealthSignal | None:
    newest = seen.metric(name)[-NEWEST:]
    if len(newest) < NEWEST or (now := statistics.fmean(newest)) < at:
        return None
    return HealthSignal(f"{100 * now:.0f} % {what} ({NEWEST} steps)", {name: now})


def _part_divergence(seen: HealthInputs, at: float) -> HealthSignal | None:
    """One part of the reward rises while another falls."""
    newest = [step.metrics for step in seen.steps if any(map(_is_part, step.metrics))][-2 * PARTS :]
    if len(newest) < 2 * PARTS:
        return None
    names = [name for name in newest[-1] if _is_part(name) and all(name in one for one in newest)]
    moves = {name: _shown([m[name] for m in newest[:PARTS]], [m[name] for m in newest[PARTS:]]) for name in names}
    up = max((name for name in names if moves[name] >= at), key=moves.__getitem__, default=None)
    down = min((name for name in names if moves[name] <= -at), key=moves.__getitem__, default=None)
    if up is None or down is None:
        return None
    figures = {up: moves[up], down: moves[down]}
    return HealthSignal(
        " while ".join(f"{name.removeprefix('part.')} went {by:+.3f}" for name, by in figures.items()), figures
    )


def _is_part(name: str) -> bool:
    return name.startswith("part.") and name.count(".") == 1  # one with more is an extra value of a part


def _shown(older: Sequence[float], newer: Sequence[float]) -> float:
    """The difference between newer and older steps; 0 if it is not significant (Welch's test).

    The test uses the variance between steps: it includes the drawn scenarios, which the spread of attempts does not.
    """
    if min(len(older), len(newer)) < 2:
        return 0.0
    error = (statistics.variance(older) / len(older) + statistics.variance(newer) / len(newer)) ** 0.5
    by = statistics.fmean(newer) - statistics.fmean(older)
    return by if abs(by) > MOVED * error else 0.0


def _reward_fall(seen: HealthInputs, at: float) -> HealthSignal | None:
    """The policy earns clearly less than before, at the same scenarios or at those of the steps before."""
    newest = seen.steps[-1] if seen.steps else None
    if newest is None or not newest.scenarios:
        return None
    alike = [one for one in seen.steps if one.scenarios and one.scenario_measure == newest.scenario_measure]
    fall = find_fall([_round(one) for one in alike], at)
    if fall is None:
        return None
    what = "the share of successes" if newest.scenario_measure == CampaignMeasure.SUCCESS else "the mean reward"
    by, before = newest.sampled_by, alike[-1 - fall.rounds].sampled_by
    return HealthSignal(
        f"{describe_fall(fall, what, 'scenario', 'step')}; sampled by {by}, before by {before}",
        {"before": fall.before, "now": fall.now, "low": fall.interval.low, "high": fall.interval.high},
    )


def _round(step: StepDone) -> dict[str, ScenarioFigure]:
    return {name: ScenarioFigure(int(number), mean, std) for name, (number, mean, std) in step.scenarios.items()}


# --- drifts of the attempts, and metrics of the trainer


def _drift(seen: HealthInputs, name: str) -> tuple[float, float] | None:
    """A metric's mean over the first steps, and over the newest; None: too few steps have it."""
    values = seen.metric(name)
    if len(values) < FIRST + NEWEST:
        return None
    return statistics.fmean(values[:FIRST]), statistics.fmean(values[-NEWEST:])


def _went(what: str, drift: tuple[float, float], unit: str = "") -> HealthSignal:
    before, now = drift
    return HealthSignal(f"{what} went from {before:.3g} to {now:.3g}{unit}", {"before": before, "now": now})


def _repetition(seen: HealthInputs, at: float) -> HealthSignal | None:
    """Attempts repeat themselves more than at first."""
    drift = _drift(seen, "health.repetition")
    return _went("the share of repeated phrases", drift) if drift and drift[1] - drift[0] >= at else None


def _length_drift(seen: HealthInputs, at: float) -> HealthSignal | None:
    """Attempts became several times as long or as short."""
    drift = _drift(seen, "health.length")
    return _went("an attempt", drift, " tokens") if drift and _times(*drift, 1.0) >= at else None


def _tool_drift(seen: HealthInputs, at: float) -> HealthSignal | None:
    """Attempts call tools several times as often or as rarely."""
    drift = _drift(seen, "health.tool_calls")
    return _went("an attempt", drift, " tool calls") if drift and _times(*drift, 0.5) >= at else None


def _times(before: float, now: float, little: float) -> float:
    """The factor of growth or shrinkage; `little` is added to both values to bound it near zero."""
    return max((now + little) / (before + little), (before + little) / (now + little))


def _latency_drift(seen: HealthInputs, at: float) -> HealthSignal | None:
    """Attempts take several times as long."""
    drift = _drift(seen, "health.seconds")
    return _went("an attempt", drift, " s") if drift and drift[1] >= at * drift[0] > 0 else None


def _entropy_collapse(seen: HealthInputs, at: float) -> HealthSignal | None:
    """The entropy of sampling collapsed: attempts hardly differ, and exploration ends."""
    drift = _drift(seen, "entropy")
    return _went("the entropy of sampling", drift, " nats a token") if drift and drift[1] <= at * drift[0] else None


def _logprob_gap(seen: HealthInputs, at: float) -> HealthSignal | None:
    """Engine and trainer compute different probabilities for the same tokens: the newest compared step."""
    compared = [one.metrics for one in seen.steps if one.metrics.keys() & {"logprob_gap_bound", "probe_gap_bound"}]
    if not compared:
        return None
    newest = compared[-1]
    by_probe = "logprob_gap_bound" not in newest  # too few of the step's tokens were the parent's
    gap, bound = [newest[f"{'probe' if by_probe else 'logprob'}_gap{end}"] for end in ("", "_bound")]
    if gap <= at * bound:
        return None
    what = describe_probe_gap(gap, bound) if by_probe else describe_gap(gap, bound, int(newest["fresh_tokens"]))
    return HealthSignal(f"{what}. {HOW_TO_MEND}", {"logprob_gap": gap, "bound": bound})


def _engine_mismatch(seen: HealthInputs, at: float) -> HealthSignal | None:
    """The newest step masked many of the turns that its parent sampled."""
    share = seen.steps[-1].metrics.get("engine_mismatch", 0.0) if seen.steps else 0.0
    if share <= at:
        return None
    what = f"{100 * share:.0f} % of the turns that the parent version sampled were masked (trainer.mask_ratio)"
    return HealthSignal(f"{what}: their probabilities in the engine are not the trainer's", {"engine_mismatch": share})


def _judge_drift(seen: HealthInputs, at: float) -> HealthSignal | None:
    """Within groups, the reward separates successes from failures worse than at first; or the strong judge scores."""
    drift = _drift(seen, "health.judge_agreement")
    if drift and drift[0] - drift[1] >= at:
        return _went("the share of pairs that the reward orders as success does", drift)
    newest = seen.steps[-1].metrics if seen.steps else {}
    if newest.get("health.strong_scores") != 1:
        return None
    agree = newest["health.strong_agreement"]
    what = f"the judge and the strong judge agree by {agree:.2f} (mean tau-b): the strong judge scores"
    return HealthSignal(what, {"strong_agreement": agree})


RULES: Final[Mapping[RuleName, HealthRule]] = {
    "reward_hacking": HealthRule(0.05, _reward_hacking, "pause"),  # fall of the validations
    "converged": HealthRule(0.01, _converged, "stop"),  # largest rise of the validations that counts as none
    "reward_jump": HealthRule(0.75, _reward_jump),  # standard deviations of an attempt's reward
    "perfect_scores": HealthRule(0.95, _perfect_scores),  # share of attempts
    "repetition": HealthRule(0.15, _repetition),  # rise of the share of repeated four-word phrases
    "length_drift": HealthRule(2.0, _length_drift),  # times as many sampled tokens, or as few
    "tool_drift": HealthRule(2.0, _tool_drift),  # times as many tool calls, or as few
    "latency_drift": HealthRule(3.0, _latency_drift),  # times as many seconds
    "entropy_collapse": HealthRule(0.3, _entropy_collapse),  # of the entropy at first
    "logprob_gap": HealthRule(1.0, _logprob_gap, "pause"),  # times the bound that engine and trainer have
    "engine_mismatch": HealthRule(0.05, _engine_mismatch),  # share of the compared turns
    "zero_variance": HealthRule(0.8, _zero_variance),  # share of groups
    "part_divergence": HealthRule(0.1, _part_divergence),  # rise of one part, and fall of another
    "judge_drift": HealthRule(0.2, _judge_drift),  # fall of the share of pairs
    "reward_fall": HealthRule(0.2, _reward_fall, "pause"),  # fall of the mean reward, or of the share of successes
}

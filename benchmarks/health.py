"""False alarms and power of the health rules and of the plateau: simulated campaigns, checked by the real rules.

    python -m benchmarks.health --write     writes benchmarks/results/health.json and the table in docs/health.md

A healthy campaign takes `STEPS` steps of 8 groups of 8 attempts and validates after each with `ATTEMPTS` attempts.
Success rises from .2-.5 to .6-.95 at a drawn pace and then stays there, and so does the reward. Tasks differ in
difficulty, so steps vary more than their attempts alone would. Attempts grow by a third, the entropy halves. Reported
for each rule: the share of healthy campaigns in which it ever signals; and for a fault that begins in the middle, by
its size, the share of campaigns in which it is found, and the median number of steps until then. A rule that signalled
before the fault began has not found it. Faults of a rule that pauses are simulated half as often as healthy campaigns,
others a fifth as often.

For the plateau: the share of campaigns that it ends although they rise by a fixed amount a validation, without end; and
of flat campaigns, the share that it ends within a number of validations.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypedDict, get_args

import numpy as np
from numpy.typing import NDArray

from benchmarks.load import machine
from recorder.stats.means import PooledMeasure
from recorder.views.campaigns.events import StepDone, Validation
from scripts.pages.marks import Marks
from scripts.pages.table import table
from trainer.campaign.health import RULES, HealthInputs, current_signals
from trainer.campaign.stop_rules import StopRules, decide_stop
from trainer.campaign_settings import HealthSettings, RuleName

RESULTS: Final = Path(__file__).parent / "results" / "health.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "health.md"
MARKS: Final = Marks("python -m benchmarks.health --write")
CURVES = 1000
STEPS = 40
ATTEMPTS = 100  # of a validation
GROUPS, EACH = 8, 8  # of a step
FAULT = STEPS // 2  # the step at which a fault begins
PEAK = 0.7  # of the validations, if they rise before they fall
SEED = 13
VALIDATIONS = 40  # of a curve that the plateau rule checks

Floats = NDArray[np.float64]


class DetectionRate(TypedDict):
    """The share of faults of one size that is found, and the median number of steps until then."""

    rule: str
    what: str
    size: float
    found: float
    within_3: float
    median_steps: float | None


class Figures(TypedDict):
    """The saved figures of all simulations."""

    curves: int
    steps: int
    attempts: int
    false_alarms: dict[str, float]
    paused_standing_still: float
    found: list[DetectionRate]
    plateau: dict[str, dict[str, float]]


@dataclass(slots=True)
class Truth:
    """A campaign's figures without noise: [steps + 1], index 0 before the first step."""

    validation: Floats
    reward: Floats
    metrics: dict[str, Floats] = field(default_factory=dict)


Fault = Callable[[Truth, float], None]


def healthy(rng: np.random.Generator) -> Truth:
    """Return a campaign that learns at a drawn pace up to a drawn level."""
    at = np.arange(STEPS + 1)
    start, top, pace = rng.uniform(0.2, 0.5), rng.uniform(0.6, 0.95), rng.uniform(4, 20)
    rising = start + (top - start) * (1 - np.exp(-at / pace))
    part = at / STEPS
    metrics = {
        "health.length": 300 * (1 + part / 3),
        "health.turns": np.full(STEPS + 1, 4.0),
        "health.tool_calls": np.full(STEPS + 1, 2.5),
        "health.seconds": 8 * (1 + part / 3),
        "health.repetition": np.full(STEPS + 1, 0.06),
        "health.judge_agreement": np.full(STEPS + 1, 0.85),
        "entropy": 0.6 * (1 - part / 2),
        "part.correct": rising.copy(),
        "part.brief": np.full(STEPS + 1, 0.7),
    }
    return Truth(rising.copy(), rising.copy(), metrics)


SCATTER: Final = {  # of a step's figure: relative, or (shares) in points
    "health.length": 0.08, "health.turns": 0.08, "health.tool_calls": 0.10, "health.seconds": 0.20, "entropy": 0.10,
    "health.repetition": -0.02, "health.judge_agreement": -0.07, "part.correct": -0.07,
    "part.brief": -0.03,
}  # fmt: skip


def run(truth: Truth, rng: np.random.Generator) -> tuple[list[StepDone], list[Validation]]:
    """Return a campaign's recorded figures: the truth with noise."""
    validations = [_validated(step, truth, rng) for step in range(len(truth.validation))]
    return [_step(step, truth, rng) for step in range(1, len(truth.reward))], validations


def _validated(step: int, truth: Truth, rng: np.random.Generator) -> Validation:
    share = rng.binomial(ATTEMPTS, truth.validation[step]) / ATTEMPTS
    return Validation(step, f"v@{step}", share, None, ATTEMPTS, 0, 1.0)


def _step(step: int, truth: Truth, rng: np.random.Generator) -> StepDone:
    mean = truth.reward[step]
    room = min(mean, 1 - mean)
    chances = np.clip(mean + room * 0.8 * rng.uniform(-1, 1, GROUPS), 0, 1)  # of the tasks, which differ in difficulty
    won = rng.binomial(EACH, chances) / EACH
    reward = float(won.mean())
    metrics = {name: _scattered(name, values[step], rng) for name, values in truth.metrics.items()}
    drawn = {
        "health.perfect": reward,
        "health.zero_variance": float(((won == 0) | (won == 1)).mean()),
        "reward_std": float(np.sqrt(reward * (1 - reward))),
    }
    return StepDone(
        step, f"v@{step}", f"v@{step - 1}", None, reward, None, None, None, GROUPS * EACH, 0, GROUPS * EACH,
        metrics=drawn | metrics,
        scenarios={f"{step}.{n}": (EACH, share, (share * (1 - share)) ** 0.5) for n, share in enumerate(won.tolist())},
        scenario_measure="reward",
    )  # fmt: skip


def _scattered(name: str, value: float, rng: np.random.Generator) -> float:
    by = SCATTER.get(name, 0.0)
    if by < 0:
        return float(np.clip(value - by * rng.standard_normal(), 0, 1))
    return float(value * np.exp(by * rng.standard_normal()))


# --- faults, each by its size


def _shifted(name: str) -> Fault:
    def fault(truth: Truth, size: float) -> None:
        truth.metrics[name][FAULT:] += size

    return fault


def _times(name: str) -> Fault:
    def fault(truth: Truth, size: float) -> None:
        truth.metrics[name][FAULT:] *= size

    return fault


def _set(name: str, before: float) -> Fault:
    def fault(truth: Truth, size: float) -> None:
        truth.metrics[name] = np.where(np.arange(STEPS + 1) < FAULT, before, size)

    return fault


def _falls(steps: int) -> Fault:
    """Validations are level, then fall by `size` within this many steps, while the reward rises."""

    def fault(truth: Truth, size: float) -> None:
        before = truth.validation[FAULT]
        truth.validation[: FAULT + 1] = np.maximum(truth.validation[: FAULT + 1], before)
        fallen = np.minimum(1, np.arange(1, STEPS + 1 - FAULT) / steps)
        truth.validation[FAULT + 1 :] = np.maximum(0.0, before - size * fallen)
        _reward_rises(truth, 0.01)

    return fault


def _falls_from_a_rise(by: float, steps: int) -> Fault:
    """Validations rise to .7 by `by` in each of `steps`, then fall by `size` at once."""

    def fault(truth: Truth, size: float) -> None:
        left = np.maximum(0, FAULT - np.arange(STEPS + 1))
        truth.validation[:] = PEAK - by * np.minimum(steps, left)
        truth.validation[FAULT + 1 :] = PEAK - size
        _reward_rises(truth, 0.01)

    return fault


def _reward_rises(truth: Truth, by: float) -> None:
    rising = truth.reward[FAULT] + by * np.arange(1, STEPS + 1 - FAULT)
    truth.reward[FAULT + 1 :] = np.minimum(0.98, rising)


def _overfits(truth: Truth, size: float) -> None:
    """Validations are level after a rise, while the reward continues to rise by `size` a step."""
    truth.validation[:] = 0.3 + 0.02 * np.minimum(np.arange(STEPS + 1), FAULT)
    truth.reward[:] = np.minimum(0.98, 0.3 + size * np.arange(STEPS + 1))


def _jumps(truth: Truth, size: float) -> None:
    truth.reward[:] = np.where(np.arange(STEPS + 1) < FAULT, 0.4, 0.4 + size)


def _drops(truth: Truth, size: float) -> None:
    """The policy gets worse: validations and reward fall by `size` from .8."""
    truth.validation[:] = truth.reward[:] = np.where(np.arange(STEPS + 1) < FAULT, 0.8, 0.8 - size)


def _parts_part(truth: Truth, size: float) -> None:
    truth.metrics["part.correct"][FAULT:] += size / 2
    truth.metrics["part.brief"][FAULT:] -= size


@dataclass(frozen=True, slots=True)
class Case:
    """A fault that a rule should find, in several sizes."""

    rule: RuleName
    what: str
    fault: Fault
    sizes: Sequence[float]


CASES: Final = (
    Case("reward_hacking", "validation falls at once by", _falls(1), (0.1, 0.15, 0.2, 0.3)),
    Case("reward_hacking", "validation falls within 10 steps by", _falls(10), (0.1, 0.2, 0.3)),
    Case(
        "reward_hacking", "validation falls from a rise of .02 a step by", _falls_from_a_rise(0.02, 20), (0.1, 0.2, 0.3)
    ),
    Case(
        "reward_hacking", "validation falls from a rise of .04 a step by", _falls_from_a_rise(0.04, 17), (0.1, 0.2, 0.3)
    ),
    Case(
        "reward_hacking",
        "validation falls from a rise of .04 in ten steps by",
        _falls_from_a_rise(0.04, 10),
        (0.2, 0.3),
    ),
    Case(
        "reward_hacking",
        "validation falls from a rise of .08 in five steps by",
        _falls_from_a_rise(0.08, 5),
        (0.2, 0.3),
    ),
    Case("converged", "validation flat, reward rises a step by", _overfits, (0.005, 0.01, 0.015)),
    Case("reward_jump", "the reward jumps by", _jumps, (0.3, 0.4, 0.5)),
    Case("perfect_scores", "share with the highest reward", _set("health.perfect", 0.3), (0.9, 0.97, 1.0)),
    Case("repetition", "share of repeated phrases rises by", _shifted("health.repetition"), (0.1, 0.2, 0.4)),
    Case("length_drift", "tokens, times", _times("health.length"), (1.5, 2.5, 4.0)),
    Case("tool_drift", "tool calls, times", _times("health.tool_calls"), (1.5, 2.5, 4.0)),
    Case("latency_drift", "seconds, times", _times("health.seconds"), (2.0, 4.0)),
    Case("entropy_collapse", "entropy, times", _times("entropy"), (0.5, 0.25, 0.1)),
    Case("zero_variance", "share of groups", _set("health.zero_variance", 0.3), (0.7, 0.9, 1.0)),
    Case("part_divergence", "one part rises by half of, another falls by", _parts_part, (0.1, 0.2, 0.4)),
    Case("judge_drift", "share of pairs falls by", _shifted("health.judge_agreement"), (-0.1, -0.25, -0.4)),
    Case("reward_fall", "reward and validation fall by", _drops, (0.2, 0.4, 0.6)),
)


def alone(rule: RuleName) -> dict[RuleName, HealthSettings]:
    """Return settings with only one rule on."""
    return {name: HealthSettings(then="off") for name in get_args(RuleName) if name != rule}


def first_spoken(
    steps: Sequence[StepDone], validations: Sequence[Validation], settings: Mapping[RuleName, HealthSettings]
) -> dict[RuleName, int]:
    """Return the step after which each rule first fired."""
    at: dict[RuleName, int] = {}
    looked_for = [name for name in RULES if name not in settings or settings[name].then != "off"]
    for done in range(1, len(steps) + 1):
        if len(at) == len(looked_for):
            break
        for name in current_signals(HealthInputs(steps[:done], validations[: done + 1]), settings):
            at.setdefault(name, done)
    return at


def false_alarms(curves: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the share of healthy campaigns in which each rule fires, and in which any pauses."""
    spoken = [first_spoken(*run(healthy(rng), rng), {}) for _ in range(curves)]
    simulated = {case.rule for case in CASES}  # `logprob_gap` compares with a fixed bound
    by: dict[str, float] = {name: _share([name in one for one in spoken]) for name in RULES if name in simulated}
    pausing = {name for name, rule in RULES.items() if rule.then == "pause"}
    return {**by, "any pause": _share([not pausing.isdisjoint(one) for one in spoken])}


def paused_standing_still(curves: int, rng: np.random.Generator) -> float:
    """Return the share of paused campaigns among those in which nothing rises or falls."""
    paused = []
    for _ in range(curves):
        truth = healthy(rng)
        truth.validation[:] = truth.reward[:] = 0.5
        paused.append(bool(first_spoken(*run(truth, rng), alone("reward_hacking"))))
    return _share(paused)


def found(case: Case, size: float, curves: int, rng: np.random.Generator) -> DetectionRate:
    """Return how often a fault is found, how often within three steps, and the median number of steps."""
    after: list[float] = []
    for _ in range(curves):
        truth = healthy(rng)
        case.fault(truth, size)
        at = first_spoken(*run(truth, rng), alone(case.rule)).get(case.rule, 0)
        after.append(at - FAULT if at >= FAULT else np.inf)
    median = float(np.median(after))
    return {
        "rule": case.rule,
        "what": case.what,
        "size": size,
        "found": _share([np.isfinite(one) for one in after]),
        "within_3": _share([one <= 3 for one in after]),
        "median_steps": median if np.isfinite(median) else None,
    }


def plateaus(rise: float, curves: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the share of campaigns that the plateau ends, by number of validations, for this rise per validation."""
    ends = [_ended(rise, rng) for _ in range(curves)]
    return {str(by): _share([end <= by for end in ends]) for by in (10, 15, 20, 30, VALIDATIONS)}


def _ended(rise: float, rng: np.random.Generator) -> float:
    """Return the number of validations after which the plateau ends a campaign."""
    start = 0.5 if rise == 0 else 0.1
    chances = [chance for n in range(VALIDATIONS) if (chance := start + rise * n) <= 0.95]
    measures = [
        PooledMeasure(n, rng.binomial(ATTEMPTS, chance) / ATTEMPTS, ATTEMPTS) for n, chance in enumerate(chances)
    ]
    rules = StopRules(10**6, plateau_steps=10, plateau_delta=0.01)
    return next((float(n) for n in range(1, len(measures) + 1) if decide_stop(measures[:n], n, rules)), np.inf)


def _share(of: Sequence[bool]) -> float:
    return round(sum(map(bool, of)) / len(of), 4)


def measure(curves: int) -> Figures:
    """Simulate everything with one seed."""
    rng = np.random.default_rng(SEED)
    faults = {name: max(1, curves // (2 if rule.then == "pause" else 5)) for name, rule in RULES.items()}
    return {
        "curves": curves,
        "steps": STEPS,
        "attempts": ATTEMPTS,
        "false_alarms": false_alarms(curves, rng),
        "paused_standing_still": paused_standing_still(curves, rng),
        "found": [found(case, size, faults[case.rule], rng) for case in CASES for size in case.sizes],
        "plateau": {str(rise): plateaus(rise, curves, rng) for rise in (0.0, 0.005, 0.01, 0.02, 0.03)},
    }


# --- the table


def tables(figures: Figures) -> str:
    """Return the tables of docs/health.md."""
    plateau = figures["plateau"]
    by = list(next(iter(plateau.values())))
    paused, still = _percent(figures["false_alarms"]["any pause"]), _percent(figures["paused_standing_still"])
    return "\n".join(
        [
            f"Of {figures['curves']:,} healthy campaigns of {figures['steps']} steps, each followed by a validation of",
            f"{figures['attempts']} attempts, {paused} were paused by mistake; of as many that stay at .5",
            f"throughout, {still}. Each fault begins at step {FAULT}.",
            "",
            table(
                ["rule", "fires in healthy campaigns", "fault", "size", "found", "within 3 steps", "median steps"],
                _found_rows(figures),
            ),
            "The plateau (`plateau_steps = 10`, `plateau_delta = 0.01`): the share of campaigns that it ends within",
            "this many validations.",
            "",
            table(
                ["rise a validation", *by],
                ([f"{float(rise):g}", *map(_percent, shares.values())] for rise, shares in plateau.items()),
            ),
        ]
    )


def _found_rows(figures: Figures) -> Iterator[list[str]]:
    told: set[str] = set()
    for one in figures["found"]:
        first = one["rule"] not in told
        told.add(one["rule"])
        rule = [f"`{one['rule']}`", _percent(figures["false_alarms"][one["rule"]])] if first else ["", ""]
        median = "–" if one["median_steps"] is None else f"{one['median_steps']:g}"
        shares = [_percent(one["found"]), _percent(one["within_3"])]
        yield [*rule, one["what"], f"{abs(one['size']):g}", *shares, median]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0 < share < 1 else f"{100 * share:.0f} %"


def main() -> None:
    """Simulate and print; with `--write`, save figures and table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS} and the table in {PAGE}")
    parser.add_argument("--curves", type=int, default=CURVES)
    options = parser.parse_args()
    began = time.monotonic()
    figures = measure(options.curves)
    kept = {"machine": machine(), **figures, "took_s": round(time.monotonic() - began)}
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    print(text)
    if options.write:
        RESULTS.write_text(text + "\n")
        MARKS.write(PAGE, tables(figures))


if __name__ == "__main__":
    main()

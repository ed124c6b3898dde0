"""False alarms and power of the health rule `reward_fall`: simulated campaigns, checked by the real rule.

    python -m benchmarks.reward_fall --write     writes benchmarks/results/reward_fall.json; tables in docs/health.md

A campaign takes `STEPS` steps. Each draws its scenarios as campaigns do, in passes over the list, and attempts each a
number of times. Scenarios differ: in a third of the campaigns about half are nearly always solved and the others hardly
ever, in a third they lie evenly in between, in a third most are easy. From step to step the chance at each scenario
moves at random; in half of the campaigns it also rises.

Without a fall: the share of `CAMPAIGNS` campaigns in which the rule ever signals; and, for comparison, in which the
plain mean of a step is ever `at` below the mean of the three before it (a rule not adopted). With a fall: from a step
on every chance is multiplied by a factor; the share of campaigns in which this is found, within three steps, and the
median number of steps until then. A rule that signalled before has not found it.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

import numpy as np
from numpy.typing import NDArray

from benchmarks.health import alone, first_spoken
from benchmarks.load import machine
from recorder.views.campaigns.events import StepDone
from scripts.pages.marks import Marks
from scripts.pages.table import table
from trainer.campaign.health import RULES
from trainer.tasks.selection import draw_in_passes

RESULTS: Final = Path(__file__).parent / "results" / "reward_fall.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "health.md"
MARKS: Final = Marks("python -m benchmarks.reward_fall --write")
RULE: Final = "reward_fall"
CAMPAIGNS: Final = 1000  # of each shape
FALLS: Final = 200  # of each shape and fall
STEPS: Final = 40
AFTER: Final = 10  # steps in which a fall may be found
MOVES: Final = 0.1  # standard deviation of a chance's logit from step to step
RISES: Final = 0.05  # logits a step
SEED: Final = 19

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Shape:
    """A campaign: the number of scenarios, those of a step, and the attempts at each."""

    scenarios: int
    per_step: int
    each: int


# New scenarios in every step; a list that comes again after five steps, in every step; large and small steps.
SHAPES: Final = (
    Shape(1000, 8, 8),
    Shape(40, 8, 8),
    Shape(8, 8, 8),
    Shape(1000, 32, 8),
    Shape(64, 16, 4),
    Shape(16, 4, 4),
)
FALLEN: Final = ((0.26, 4), (0.26, 20), (0.6, 20))  # what is left of each chance, and after how many steps


class ShapeNumbers(TypedDict):
    """A `Shape` as it is kept."""

    scenarios: int
    per_step: int
    each: int


class WithoutFall(ShapeNumbers):
    """The share of campaigns without a fall in which the rule signals, and in which the mean alone falls."""

    signals: float
    mean_alone: float


class WithFall(ShapeNumbers):
    """How often a fall is found, and after how many steps in the median."""

    left: float
    after: int
    found: float
    within_3: float
    median_steps: float | None


class Figures(TypedDict):
    """What is kept of all simulations."""

    campaigns: int
    steps: int
    falls: int
    without: list[WithoutFall]
    fallen: list[WithFall]


def campaign(
    shape: Shape, steps: int, rng: np.random.Generator, left: float = 1.0, after: int | None = None
) -> list[StepDone]:
    """The recorded steps of a campaign; after `after` steps, `left` of each chance is left."""
    chances, rises = _difficulties(shape.scenarios, rng), rng.random() < 0.5
    seed, done = int(rng.integers(2**31)), []
    for step in range(1, steps + 1):
        now = 1 / (1 + np.exp(-chances)) * (left if after is not None and step > after else 1.0)
        drawn = draw_in_passes(range(shape.scenarios), shape.per_step, step, seed)
        done.append(_step(step, drawn, rng.binomial(shape.each, now[drawn]) / shape.each, shape.each))
        chances = chances + MOVES * rng.standard_normal(shape.scenarios) + (RISES if rises else 0.0)
    return done


def _difficulties(number: int, rng: np.random.Generator) -> Floats:
    """Logits of the chances at first."""
    kind = rng.integers(3)
    if kind == 0:
        return np.where(rng.random(number) < rng.uniform(0.3, 0.7), 3.0, -3.0) + 0.5 * rng.standard_normal(number)
    if kind == 1:
        return rng.logistic(0.0, 1.0, number)
    return 1.5 + 1.5 * rng.standard_normal(number)


def _step(step: int, drawn: Sequence[int], won: Floats, each: int) -> StepDone:
    figures = {
        str(id_): [each, float(share), math.sqrt(share * (1 - share))] for id_, share in zip(drawn, won, strict=True)
    }
    return StepDone(
        step, f"v@{step}", f"v@{step - 1}", None, float(won.mean()), None, None, None, len(drawn) * each, 0, 0,
        scenarios=figures, scenario_measure="reward",
    )  # fmt: skip


def without_fall(shape: Shape, campaigns: int, rng: np.random.Generator) -> WithoutFall:
    """Campaigns that do not fall."""
    signalled = plain = 0
    for _ in range(campaigns):
        done = campaign(shape, STEPS, rng)
        signalled += bool(first_spoken(done, (), alone(RULE)))
        plain += _mean_alone(done)
    return {**_named(shape), "signals": round(signalled / campaigns, 4), "mean_alone": round(plain / campaigns, 4)}


def _mean_alone(done: Sequence[StepDone]) -> bool:
    means = [step.reward or 0.0 for step in done]
    before = (statistics.fmean(means[max(0, n - 3) : n]) for n in range(1, len(means)))
    return any(one - now >= RULES[RULE].at for one, now in zip(before, means[1:], strict=True))


def with_fall(shape: Shape, left: float, after: int, campaigns: int, rng: np.random.Generator) -> WithFall:
    """Campaigns whose policy is worse from one step on."""
    waits: list[float] = []
    for _ in range(campaigns):
        at = first_spoken(campaign(shape, after + AFTER, rng, left, after), (), alone(RULE)).get(RULE, 0)
        waits.append(at - after if at > after else math.inf)
    median = statistics.median(waits)
    return {
        **_named(shape),
        "left": left,
        "after": after,
        "found": round(sum(map(math.isfinite, waits)) / campaigns, 4),
        "within_3": round(sum(one <= 3 for one in waits) / campaigns, 4),
        "median_steps": median if math.isfinite(median) else None,
    }


def _named(shape: Shape) -> ShapeNumbers:
    return {"scenarios": shape.scenarios, "per_step": shape.per_step, "each": shape.each}


def measure(campaigns: int = CAMPAIGNS, falls: int = FALLS) -> Figures:
    """All of it, with one seed."""
    rng = np.random.default_rng(SEED)
    return {
        "campaigns": campaigns,
        "steps": STEPS,
        "falls": falls,
        "without": [without_fall(shape, campaigns, rng) for shape in SHAPES],
        "fallen": [with_fall(shape, left, after, falls, rng) for shape in SHAPES for left, after in FALLEN],
    }


def tables(figures: Figures) -> str:
    """What docs/health.md shows of the figures."""
    shape = ["scenarios", "in a step", "attempts at each"]
    return "\n".join(
        [
            f"Of {figures['campaigns']:,} campaigns of {figures['steps']} steps without a fall, the share in which "
            f"`{RULE}` ever fires, and in which the mean of a step is ever {RULES[RULE].at:g} below the three before:",
            "",
            table([*shape, "fires", "the mean alone"], _rows_without(figures)),
            f"Of {figures['falls']:,} campaigns in which every chance of a success falls to a share of itself, those "
            f"in which this is found within {AFTER} steps, and within three:",
            "",
            table([*shape, "falls to", "after step", "found", "within 3 steps", "median steps"], _rows_fallen(figures)),
        ]
    )


def _rows_without(figures: Figures) -> Iterator[list[str]]:
    for one in figures["without"]:
        yield [*_shape_cells(one), _percent(one["signals"]), _percent(one["mean_alone"])]


def _rows_fallen(figures: Figures) -> Iterator[list[str]]:
    for one in figures["fallen"]:
        median = "–" if one["median_steps"] is None else f"{one['median_steps']:g}"
        found = [_percent(one["found"]), _percent(one["within_3"]), median]
        yield [*_shape_cells(one), _percent(one["left"]), str(one["after"]), *found]


def _shape_cells(one: ShapeNumbers) -> list[str]:
    return [f"{one['scenarios']:,}", str(one["per_step"]), str(one["each"])]


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if 0 < share < 1 else f"{100 * share:.0f} %"


def main() -> None:
    """Simulate, print, and keep figures and table if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS} and the table in {PAGE}")
    parser.add_argument("--campaigns", type=int, default=CAMPAIGNS)
    parser.add_argument("--falls", type=int, default=FALLS)
    options = parser.parse_args()
    began = time.monotonic()
    figures = measure(options.campaigns, options.falls)
    kept = {"machine": machine(), **figures, "took_s": round(time.monotonic() - began)}
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    print(text)
    if options.write:
        RESULTS.write_text(text + "\n")
        MARKS.write(PAGE, tables(figures))


if __name__ == "__main__":
    main()

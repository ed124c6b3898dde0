"""What `campaign.choose` and `campaign.refill` spare: simulated campaigns, drawn by the real code.

    python -m benchmarks.learnability --write     writes benchmarks/results/learnability.json; table in docs/tasks.md

Each scenario has a logit, drawn from a normal distribution with mean -0.5 and deviation 2: many are hardly ever solved,
many nearly always. A group whose attempts differ raises its scenario's logit by `OWN` × 4 p (1 - p), and all logits by
`SHARED`. No model learns here: the figures say how many groups teach, and not what a policy makes of them.

The figures of each way to draw are means over `CAMPAIGNS` campaigns: the share of attempts in groups of equal rewards,
the groups that teach, in all and for each hundred attempts, and the share of successes at the end over all scenarios.
For `learnability` also by half-life and sharpness (`trainer.tasks.chances`), with which these were chosen.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypedDict
from unittest.mock import patch

import numpy as np

from benchmarks.load import machine
from recorder.queue.campaigns import Scenario
from recorder.queue.draws import Draw, GroupOutcome
from scripts.pages.marks import Marks
from scripts.pages.table import table
from trainer.campaign.draw import draw_refill, draw_step
from trainer.campaign_settings import CampaignSettings
from trainer.tasks import chances

RESULTS: Final = Path(__file__).parent / "results" / "learnability.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "tasks.md"
MARKS: Final = Marks("python -m benchmarks.learnability --write")
CAMPAIGNS: Final = 20
OWN: Final = 0.25
SHARED: Final = 0.01
SEED: Final = 31


@dataclass(frozen=True, slots=True)
class Shape:
    """A campaign: the number of its scenarios and of its steps, of eight scenarios with eight attempts each."""

    scenarios: int
    steps: int


SHAPES: Final = (Shape(24, 16), Shape(48, 20), Shape(100, 60), Shape(500, 40))
WAYS: Final[tuple[dict[str, Any], ...]] = (
    {"choose": "uniform"}, {"choose": "learnability"},
    {"choose": "uniform", "refill": 0.5}, {"choose": "learnability", "refill": 0.5},
)  # fmt: skip
HALF_LIVES: Final = (2.0, 4.0, 8.0, 16.0)
SHARPNESSES: Final = (1.0, 4.0, 8.0, 32.0)
OF_CONSTANTS: Final = Shape(100, 60)


class Figures(TypedDict):
    """The means over campaigns of one shape."""

    scenarios: int
    steps: int
    choose: str
    refill: float
    half_life: float
    sharpness: float
    attempts: float
    wasted: float
    teaching: float
    per_100_attempts: float
    success: float


def simulate(shape: Shape, settings: CampaignSettings, rng: np.random.Generator) -> tuple[int, int, int, float]:
    """One campaign: its attempts, those in groups of equal rewards, the groups that taught, and the last success."""
    scenarios = [Scenario(str(n), "", str(n), "train", n, None, None, False) for n in range(shape.scenarios)]
    logits = rng.normal(-0.5, 2.0, shape.scenarios)
    outcomes: list[GroupOutcome] = []

    def attempt(drawn: list[Draw], step: int) -> None:
        for one in drawn:
            won = rng.random(settings.group_size) < 1 / (1 + np.exp(-logits[int(one.scenario_id)]))
            outcomes.append(GroupOutcome(one.scenario_id, step, [float(each) for each in won]))

    for step in range(1, shape.steps + 1):
        begun, all_drawn = len(outcomes), draw_step(scenarios, settings, step, outcomes)
        attempt(all_drawn, step)
        while settings.refill and (more := draw_refill(scenarios, settings, all_drawn, outcomes)):
            attempt(more, step)
            all_drawn += more
        taught = [int(one.scenario_id) for one in outcomes[begun:] if not one.equal]
        p = 1 / (1 + np.exp(-logits[taught]))
        logits = logits + SHARED * len(taught)
        logits[taught] += OWN * 4 * p * (1 - p)
    equal = sum(one.equal for one in outcomes)
    each = settings.group_size
    return len(outcomes) * each, equal * each, len(outcomes) - equal, float(np.mean(1 / (1 + np.exp(-logits))))


def measure_way(shape: Shape, way: dict[str, Any], campaigns: int, half_life: float, sharpness: float) -> Figures:
    """The means over campaigns with equal seeds."""
    rows = []
    with patch.multiple(chances, HALF_LIFE=half_life, SHARPNESS=sharpness):
        for number in range(campaigns):
            settings = CampaignSettings.model_validate({**way, "seed": number})
            rows.append(simulate(shape, settings, np.random.default_rng([SEED, number])))
    attempts, wasted, taught, success = (float(one) for one in np.mean(np.array(rows, dtype=float), axis=0))
    return {
        "scenarios": shape.scenarios,
        "steps": shape.steps,
        "choose": way["choose"],
        "refill": way.get("refill", 0.0),
        "half_life": half_life,
        "sharpness": sharpness,
        "attempts": round(attempts, 1),
        "wasted": round(wasted / attempts, 4),
        "teaching": round(taught, 1),
        "per_100_attempts": round(100 * taught / attempts, 2),
        "success": round(success, 4),
    }


def measure(campaigns: int = CAMPAIGNS) -> dict[str, Any]:
    """All of it."""
    chosen = (chances.HALF_LIFE, chances.SHARPNESS)
    return {
        "campaigns": campaigns,
        "ways": [measure_way(shape, way, campaigns, *chosen) for shape in SHAPES for way in WAYS],
        "constants": [
            measure_way(OF_CONSTANTS, {"choose": "learnability"}, campaigns, half_life, sharpness)
            for half_life in HALF_LIVES
            for sharpness in SHARPNESSES
        ],
    }


def page_table(figures: dict[str, Any]) -> str:
    """What docs/tasks.md shows of the figures."""
    columns = ["scenarios", "steps", "`choose`", "`refill`", "attempts", "in equal groups", "groups that teach"]
    return table([*columns, "of 100 attempts"], list(_rows(figures)))


def _rows(figures: dict[str, Any]) -> Iterator[list[str]]:
    for one in figures["ways"]:
        counts = [f"{one['attempts']:,.0f}", f"{one['wasted']:.1%}".replace("%", " %"), f"{one['teaching']:,.0f}"]
        shape = [f"{one['scenarios']:,}", str(one["steps"]), f"`{one['choose']}`", f"{one['refill']:g}"]
        yield [*shape, *counts, f"{one['per_100_attempts']:.1f}"]


def main() -> None:
    """Simulate, print, and keep figures and table if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS} and the table in {PAGE}")
    parser.add_argument("--campaigns", type=int, default=CAMPAIGNS)
    options = parser.parse_args()
    began = time.monotonic()
    figures = measure(options.campaigns)
    text = json.dumps({"machine": machine(), **figures, "took_s": round(time.monotonic() - began)}, indent=1)
    print(text)
    if options.write:
        RESULTS.write_text(text + "\n")
        MARKS.write(PAGE, page_table(figures))


if __name__ == "__main__":
    main()

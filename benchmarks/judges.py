"""The value of more replies about a group: simulated judges, ordered and combined by the code that judges.

    python -m benchmarks.judges --write     writes benchmarks/results/judges.json and the tables in docs/rewards.md

`GROUPS` groups of `RUNS` trajectories, each with a true quality that is hidden from the judges. Reported is Kendall's
tau-b between the truth and the score: the mean over the groups with its 95 % interval.

Noise: a judge that orders a pair of trajectories correctly with the probability `ACCURACY` sees each quality, a
standard normal, with normal noise of its own; so do further judges. `difference` is the gain of a panel over its first
judge, group by group.

Position: a judge without noise that prefers early positions. From the first position to the last its preference falls
linearly by the range of the group's qualities.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final, TypedDict

from benchmarks.load import machine
from judge.llm.panel import combine_verdicts, reply_agreement
from judge.llm.prompt import JudgeRequest, shown_order
from judge.llm.reply_reader import TrajectoryVerdict
from judge.panel_settings import Combine
from recorder.stats.agreement import compare_rewards
from scripts.pages.marks import Marks
from scripts.pages.table import table

RESULTS: Final = Path(__file__).parent / "results" / "judges.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "rewards.md"
MARKS: Final = Marks("python -m benchmarks.judges --write")
GROUPS, RUNS, SEED = 500, 8, 15
ACCURACY: Final = 0.7
PANELS: Final[Sequence[tuple[int, Combine]]] = ((1, "mean"), (3, "mean"), (3, "median"), (5, "mean"), (5, "median"))
REPEATS: Final = (1, 2, 4, 8)
SURE: Final = NormalDist().inv_cdf(0.975)
# Two qualities, each N(0, 1), seen with noise N(0, s), are ordered correctly with probability 1/2 + atan(1 / s) / pi.
NOISE: Final = 1 / math.tan(math.pi * (ACCURACY - 0.5))


class Interval(TypedDict):
    """A mean over groups, and its 95 % interval."""

    mean: float
    low: float
    high: float


class Panel(TypedDict):
    """The result of several judges with independent errors."""

    judges: int
    combine: str
    tau: Interval
    difference: Interval  # over the first judge alone
    agreement: float | None  # between the judges


class Places(TypedDict):
    """The result of a judge that prefers early positions, for a number of requests."""

    repeats: int
    tau: Interval


class Figures(TypedDict):
    """All figures."""

    groups: int
    runs: int
    accuracy: float
    panels: list[Panel]
    places: list[Places]


def interval(values: Sequence[float]) -> Interval:
    """Return the mean and its 95 % interval."""
    mean, error = statistics.fmean(values), statistics.stdev(values) / math.sqrt(len(values))
    return {"mean": round(mean, 4), "low": round(mean - SURE * error, 4), "high": round(mean + SURE * error, 4)}


def _tau(truth: Mapping[str, float], replies: Sequence[Mapping[str, TrajectoryVerdict]], how: Combine) -> float:
    """Return tau-b of the combined score with the true order."""
    score = combine_verdicts([(1.0, reply) for reply in replies], how)
    return compare_rewards(truth, {run: verdict.score for run, verdict in score.items()}).tau or 0.0


def _noisy(truth: Mapping[str, float], draw: random.Random) -> dict[str, TrajectoryVerdict]:
    """Return a noisy judge's scores: numbers from 0 to 1 that rise with the quality that it sees."""
    seen = NormalDist(0, math.hypot(1, NOISE))
    return {run: TrajectoryVerdict(seen.cdf(worth + draw.gauss(0, NOISE)), "") for run, worth in truth.items()}


def panels(groups: int = GROUPS) -> list[Panel]:
    """Measure the same groups with more and more judges."""
    draw = random.Random(SEED)
    taus: dict[tuple[int, Combine], list[float]] = {one: [] for one in PANELS}
    agree: dict[int, list[float]] = {judges: [] for judges, _ in PANELS}
    for _ in range(groups):
        truth = {f"run{number}": draw.gauss(0, 1) for number in range(RUNS)}
        replies = [_noisy(truth, draw) for _ in range(max(judges for judges, _ in PANELS))]
        for judges, how in PANELS:
            taus[judges, how].append(_tau(truth, replies[:judges], how))
        for judges, found in agree.items():
            found += [one] if (one := reply_agreement(replies[:judges])) is not None else []
    alone = taus[PANELS[0]]
    return [
        {
            "judges": judges,
            "combine": how,
            "tau": interval(own := taus[judges, how]),
            "difference": interval([more - less for more, less in zip(own, alone, strict=True)]),
            "agreement": round(statistics.fmean(agree[judges]), 4) if agree[judges] else None,
        }
        for judges, how in PANELS
    ]


def places(groups: int = GROUPS) -> list[Places]:
    """Measure one judge with more and more requests about the same groups."""
    found: dict[int, list[float]] = {repeats: [] for repeats in REPEATS}
    for seed in range(groups):
        keys = [f"run{number}" for number in range(RUNS)]
        truth = dict(zip(random.Random(SEED + seed).sample(keys, RUNS), _even(), strict=True))
        for repeats, taus in found.items():
            orders = [shown_order(keys, seed, JudgeRequest(0, repeat, 1, repeats)) for repeat in range(repeats)]
            taus.append(_tau(truth, [_in_love(truth, order) for order in orders], "mean"))
    return [{"repeats": repeats, "tau": interval(taus)} for repeats, taus in found.items()]


def _in_love(truth: Mapping[str, float], order: Sequence[str]) -> dict[str, TrajectoryVerdict]:
    loved = dict(zip(order, reversed(_even()), strict=True))
    return {run: TrajectoryVerdict((truth[run] + loved[run]) / 2, "") for run in truth}


def _even() -> list[float]:
    """Return evenly spaced numbers from 0 to 1, one per trajectory."""
    return [number / (RUNS - 1) for number in range(RUNS)]


def measure(groups: int = GROUPS) -> Figures:
    """All figures."""
    return {
        "groups": groups,
        "runs": RUNS,
        "accuracy": ACCURACY,
        "panels": panels(groups),
        "places": places(groups),
    }


def tables(figures: Figures) -> str:
    """Return the figures as tables."""
    return "\n".join(
        [
            f"{figures['groups']} simulated groups of {figures['runs']}. Each judge orders a pair correctly in "
            f"{100 * figures['accuracy']:.0f} % of cases, independently of the others:",
            "",
            table(
                ["judges", "`combine`", "tau with the truth", "gain over one judge", "their agreement"],
                map(_of_panel, figures["panels"]),
            ),
            "One judge that prefers early positions by as much as the range of the whole group:",
            "",
            table(
                ["requests", "tau with the truth"],
                ([str(one["repeats"]), _told(one["tau"])] for one in figures["places"]),
            ),
        ]
    )


def _of_panel(one: Panel) -> list[str]:
    agree = "–" if one["agreement"] is None else f"{one['agreement']:.2f}"
    more = "–" if one["judges"] == 1 else _told(one["difference"])
    return [str(one["judges"]), one["combine"] if one["judges"] > 1 else "–", _told(one["tau"]), more, agree]


def _told(one: Interval) -> str:
    return f"{one['mean']:.2f} ({one['low']:.2f} to {one['high']:.2f})"


def main() -> None:
    """Simulate and print; with `--write`, save figures and tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS} and the tables in {PAGE}")
    options = parser.parse_args()
    figures = measure()
    kept: dict[str, Any] = {"machine": machine(), **figures}
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    print(text)
    if options.write:
        RESULTS.write_text(text + "\n")
        MARKS.write(PAGE, tables(figures))


if __name__ == "__main__":
    main()

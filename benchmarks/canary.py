"""Error rates and power of the canary's test: simulated canaries, judged by the code that judges real ones.

    python -m benchmarks.canary --save        writes benchmarks/results/canary.json

A canary has `RUNS` trajectories an arm and is tested after every task on all five figures at once. Reported are: for
two equal versions, the share of canaries that any figure rejects at any look; and for a version that is worse in one
way, the share that is rejected within `WITHIN` trajectories an arm, with the median number until then. Tasks differ in
difficulty, length and speed, so trajectories of one task are correlated. Shapes of traffic:

- `alone`: no task repeats; the k-th task of one arm is compared with the k-th of the other.
- `half`: groups of eight trajectories of one task, each of which draws its version, one to one.
- `tenth`: the same at a share of 0.1: many groups have no member of the smaller arm.
- `held`: the same at 0.9, as after a promotion: the smaller arm is the previous version, as the holdback.

`ranked` is `half` with rewards that only hold a trajectory's rank in its group. Also reported for the rule by which a
canary passes (`proxy.gate.canary`): how many versions go live, by which figure, and after how many compared tasks.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.load import machine
from proxy.gate.canary import ALPHA, LOST, LOST_ALPHA, SECONDS_LOG2, TOKENS_LOG2, ComparedFigure, null_mean
from proxy.settings.sections import AliasSettings
from recorder.stats.significance_tests import Floats, log_capital

RESULTS = Path(__file__).parent / "results" / "canary.json"
CANARIES = 2000
RUNS = 2000  # per arm
MAX_TASKS = AliasSettings().canary_max_tasks
WITHIN = 500  # trajectories per arm within which a worse version should be found
CHUNK = 50  # canaries at a time: the trajectories of all would not fit into memory
GROUP = 8
SEED = 9

Values = Mapping[ComparedFigure, Floats]


@dataclass(frozen=True, slots=True)
class Version:
    """The means of a version's trajectories, over tasks that differ."""

    reward: float = 0.5  # probability of success
    errors: float = 0.02
    tool_failures: float = 0.05  # with three calls per trajectory
    answer_tokens: float = 150.0  # median
    call_s: float = 1.0  # median


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape of traffic: group size, the smaller arm's share of trajectories, and whether rewards are ranks."""

    members: int
    share: float
    ranked: bool = False

    def tasks(self, runs: int) -> int:
        """Return the number of tasks that give the smaller arm this many trajectories."""
        return runs if self.members == 1 else round(runs / (self.members * min(self.share, 1 - self.share)))

    def runs(self, tasks: int) -> int:
        """Return how many trajectories of the smaller arm this many tasks give."""
        return tasks if self.members == 1 else round(tasks * self.members * min(self.share, 1 - self.share))


SHAPES: Final = {
    "alone": Shape(1, 1.0),
    "half": Shape(GROUP, 0.5),
    "tenth": Shape(GROUP, 0.1),
    "held": Shape(GROUP, 0.9),
    "ranked": Shape(GROUP, 0.5, ranked=True),
}
BEFORE: Final = Version()
WORSE: Final = {
    "reward .50 → .35": replace(BEFORE, reward=0.35),
    "errors .02 → .20": replace(BEFORE, errors=0.20),
    "tool failures .05 → .30": replace(BEFORE, tool_failures=0.30),
    "answers three times as long": replace(BEFORE, answer_tokens=450.0),
    "three times as late": replace(BEFORE, call_s=3.0),
}


def simulate(
    shape: Shape,
    candidate: Version,
    runs: int,
    canaries: int,
    rng: np.random.Generator,
    one_side: float | None = None,
) -> Values:
    """Return (1 + difference) / 2 of every task, by figure: [canaries, tasks].

    `one_side`: the value of a group with only one arm; None: the value that bets nothing.
    """
    size = (canaries, shape.tasks(runs))
    if shape.members == 1:  # two independent tasks
        new, old = (_runs(version, size, 1, rng) for version in (candidate, BEFORE))
        return {figure: (1 + new[figure] - old[figure])[..., 0] / 2 for figure in ComparedFigure}
    is_new = rng.random((*size, shape.members)) < shape.share
    values = _drawn(candidate, is_new, rng)
    if shape.ranked:
        order = (values[ComparedFigure.REWARD] + rng.random(is_new.shape) / 2).argsort(axis=-1).argsort(axis=-1)
        values = {**values, ComparedFigure.REWARD: order / (shape.members - 1)}
    return {
        figure: set_against(values[figure], is_new, null_mean(figure) if one_side is None else one_side)
        for figure in ComparedFigure
    }


def _drawn(candidate: Version, is_new: np.ndarray, rng: np.random.Generator) -> dict[ComparedFigure, Floats]:
    """Return the values of trajectories that drew their version, with one task per group."""
    state = rng.bit_generator.state
    sides = []
    for version in (
        candidate,
        BEFORE,
    ):  # the same tasks and the same noise: a trajectory belongs to one arm or the other
        rng.bit_generator.state = state
        sides.append(_runs(version, is_new.shape[:2], is_new.shape[2], rng))
    return {figure: np.where(is_new, sides[0][figure], sides[1][figure]) for figure in ComparedFigure}


def _runs(
    version: Version, size: tuple[int, int], members: int, rng: np.random.Generator
) -> dict[ComparedFigure, Floats]:
    """Return values of trajectories in the units of `proxy.gate.canary.figure_value`: [canaries, tasks, members]."""
    tasks, each = (*size, 1), (*size, members)
    hard = rng.beta(2.0, 2.0, tasks) - 0.5  # how much easier a task is than the mean
    reward = rng.random(each) < np.clip(version.reward + hard * 2 * min(version.reward, 1 - version.reward), 0, 1)
    failed = rng.binomial(3, version.tool_failures, each) / 3
    tokens = version.answer_tokens * np.exp(0.6 * rng.standard_normal(tasks) + 0.5 * rng.standard_normal(each))
    call_s = version.call_s * np.exp(0.4 * rng.standard_normal(tasks) + 0.6 * rng.standard_normal(each))
    return {
        ComparedFigure.REWARD: reward.astype(np.float64),
        ComparedFigure.ERRORS: (rng.random(each) >= version.errors).astype(np.float64),
        ComparedFigure.TOOL_FAILURES: 1 - failed,
        ComparedFigure.LENGTH: shortness(tokens, TOKENS_LOG2),
        ComparedFigure.LATENCY: shortness(call_s, SECONDS_LOG2),
    }


def shortness(amounts: Floats, log2_bounds: tuple[float, float]) -> Floats:
    """Return 1 at the lower bound and 0 at the upper one, linear in the logarithm."""
    low, high = log2_bounds
    return 1 - (np.clip(np.log2(amounts), low, high) - low) / (high - low)


def set_against(values: Floats, is_new: np.ndarray, neutral: float) -> Floats:
    """Compare the two arms' means inside each group; a group with one arm gives `neutral`, which bets nothing."""
    new, old = is_new.sum(axis=-1), (~is_new).sum(axis=-1)
    means = [np.where(side, values, 0).sum(axis=-1) / np.maximum(n, 1) for side, n in ((is_new, new), (~is_new, old))]
    return np.where((new > 0) & (old > 0), (1 + means[0] - means[1]) / 2, neutral)


def found_at(values: Values) -> dict[ComparedFigure, Floats]:
    """Return the number of tasks after which each figure rejects each canary; infinite: never."""
    at = {}
    for figure, seen in values.items():
        at[figure] = _first(log_capital(seen, at_least=null_mean(figure)) >= -np.log(ALPHA[figure]))
    return at


def _first(over: np.ndarray) -> Floats:
    """Return the number of tasks until the first True; infinite: never."""
    return np.where(over.any(axis=-1), over.argmax(axis=-1) + 1.0, np.inf)


def decided(shape: Shape, candidate: Version, canaries: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the shares of canaries that pass, by either way, and that are withdrawn."""
    parts = [_decided(shape, candidate, min(CHUNK, canaries), rng) for _ in range(0, canaries, CHUNK)]
    worse, kept, enough, tasks = (np.concatenate(found) for found in zip(*parts, strict=True))
    passed = np.minimum(kept, enough) < worse
    return {
        "live": share(passed),
        "live_as_not_worse": share(passed & (kept <= enough)),
        "taken_away": share(np.isfinite(worse) & ~passed),
        "median_tasks": round(float(np.median(tasks))),
    }


def _decided(shape: Shape, candidate: Version, canaries: int, rng: np.random.Generator) -> tuple[Floats, ...]:
    """Return when each canary is shown worse, shown not worse, and compared enough; and the number of tasks by then."""
    values = simulate(shape, candidate, shape.runs(3 * MAX_TASKS), canaries, rng, one_side=np.nan)
    known = ~np.isnan(values[ComparedFigure.REWARD])
    settled = {figure: np.where(np.isnan(seen), null_mean(figure), seen) for figure, seen in values.items()}
    worse = np.minimum.reduce(list(found_at(settled).values()))
    lost = np.where(known, 1 - values[ComparedFigure.REWARD], LOST)
    kept = _first(log_capital(lost, at_least=LOST) >= -np.log(LOST_ALPHA))
    tasks = known.cumsum(axis=-1)
    enough = _first(tasks >= MAX_TASKS)
    last = np.minimum.reduce([worse, kept, enough, np.full(canaries, known.shape[-1])]).astype(int) - 1
    return worse, kept, enough, np.take_along_axis(tasks, last[:, None], axis=-1)[:, 0].astype(np.float64)


def chunks(
    shape: Shape, candidate: Version, runs: int, canaries: int, rng: np.random.Generator
) -> Iterator[dict[ComparedFigure, Floats]]:
    """Return `found_at` of all canaries, computed in chunks."""
    for _ in range(0, canaries, CHUNK):
        yield found_at(simulate(shape, candidate, runs, min(CHUNK, canaries), rng))


def rejected_alike(shape: Shape, canaries: int, rng: np.random.Generator) -> dict[str, float]:
    """Return the share of equal canaries that is rejected: by each figure, and by any."""
    parts = list(chunks(shape, BEFORE, RUNS, canaries, rng))
    at = {figure: np.concatenate([part[figure] for part in parts]) for figure in ComparedFigure}
    by = {str(figure): share(np.isfinite(found)) for figure, found in at.items()}
    return {**by, "any": share(np.isfinite(np.minimum.reduce(list(at.values()))))}


def found_worse(shape: Shape, candidate: Version, canaries: int, rng: np.random.Generator) -> dict[str, float | None]:
    """Return the share of worse versions found within `WITHIN` trajectories per arm, and their median number."""
    at = np.concatenate(
        [np.minimum.reduce(list(part.values())) for part in chunks(shape, candidate, WITHIN, canaries, rng)]
    )
    median = float(np.median(at)) * WITHIN / shape.tasks(WITHIN)
    return {"found": share(np.isfinite(at)), "median_runs_a_side": round(median) if np.isfinite(median) else None}


def share(of: np.ndarray) -> float:
    """Return the share of True."""
    return round(float(of.mean()), 4)


def measure(canaries: int) -> dict[str, object]:
    """Simulate all shapes with one seed."""
    rng = np.random.default_rng(SEED)
    alike = {name: rejected_alike(shape, canaries, rng) for name, shape in SHAPES.items()}
    worse = {
        name: {how: found_worse(shape, version, canaries, rng) for how, version in WORSE.items()}
        for name, shape in SHAPES.items()
    }
    rule = {
        name: {how: decided(shape, version, canaries, rng) for how, version in {"alike": BEFORE, **WORSE}.items()}
        for name, shape in SHAPES.items()
    }
    return {
        "canaries": canaries,
        "runs_a_side": RUNS,
        "within": WITHIN,
        "rejected_alike": alike,
        "found_worse": worse,
        "max_tasks": MAX_TASKS,
        "decided": rule,
    }


def main() -> None:
    """Simulate and print; with `--save`, save the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS}")
    parser.add_argument("--canaries", type=int, default=CANARIES)
    options = parser.parse_args()
    began = time.monotonic()
    figures = {"machine": machine(), **measure(options.canaries), "took_s": round(time.monotonic() - began)}
    text = json.dumps(figures, indent=1, ensure_ascii=False)
    print(text)
    if options.save:
        RESULTS.write_text(text + "\n")


if __name__ == "__main__":
    main()

"""False alarms and delay of the strong judge: how often it is called without cause, and how soon when it should be.

    python -m benchmarks.drift --write     writes benchmarks/results/drift.json and the tables in docs/judging.md

Simulated are groups of `RUNS` trajectories that both judges score. The two see normal qualities, correlated so that the
mean tau-b of both is what a case sets (tau = 2/pi asin(rho), Kendall 1949). After every group the worker's rule is
applied: the agreement of the newest `WINDOW` groups decides which judge scores next. Each case has `TRIALS` trials.

`steady`: the two agree at one level for `LONG` groups in a row. Reported is the share of trials in which the strong
judge is called at all, and, for comparison, the share in which the mean alone falls below the bound (a rule not
adopted).

`fallen`: they agree at `GOOD` for `WINDOW` groups, then at a lower level. Reported is the share of trials in which the
strong judge scores within one and within two windows of groups, and the median number of groups until then. `back`:
starting from a strong judge that scores, and `WINDOW` groups without any agreement, the same for the cheap judge.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypedDict

from benchmarks.load import machine
from judge.panel_settings import StrongSettings
from recorder.queue.judging.switches import CHEAP, STRONG, Judge, group_tau, mean_agreement, next_judge
from scripts.pages.marks import Marks
from scripts.pages.table import table

RESULTS: Final = Path(__file__).parent / "results" / "drift.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "judging.md"
MARKS: Final = Marks("python -m benchmarks.drift --write")
BOUND: Final[float] = StrongSettings.model_fields["min_agreement"].default
WINDOW: Final[int] = StrongSettings.model_fields["window"].default
SIZES: Final = (8, 4)  # trajectories per group
STEADY: Final = (0.5, 0.55, 0.6, 0.7)
FALLEN: Final = (0.4, 0.3, 0.2, 0.0)
BACK: Final = (0.6, 0.7, 0.8)
GOOD: Final = 0.7
LONG: Final = 500  # groups that both judge: at one in ten, of 5,000
TRIALS: Final = 500
POOL: Final = 4000  # groups drawn for each agreement; trials draw from these
SEED: Final = 15


class Steady(TypedDict):
    """Judges with constant agreement."""

    runs: int
    agree: float
    called: float  # share of trials in which the strong judge ever scores
    below: float  # … in which the mean of a full window is ever below the bound


class ChangedJudge(TypedDict):
    """Judges whose agreement changes."""

    runs: int
    agree: float
    in_one: float  # share of trials that detect it within one window of groups
    in_two: float
    median: float | None  # groups; None: not detected in half of the trials


class Figures(TypedDict):
    """All figures."""

    bound: float
    window: int
    groups: int
    trials: int
    steady: list[Steady]
    fallen: list[ChangedJudge]
    back: list[ChangedJudge]


def pool(agree: float, runs: int, number: int = POOL) -> list[float]:
    """Return the taus of groups whose judges have a mean agreement of `agree`."""
    draw = random.Random(f"{SEED} {agree} {runs}")
    rho = math.sin(math.pi * agree / 2)
    found = (_tau(draw, rho, runs) for _ in range(number))
    return [one for one in found if one is not None]


def _tau(draw: random.Random, rho: float, runs: int) -> float | None:
    cheap = {str(run): draw.gauss(0, 1) for run in range(runs)}
    strong = {run: rho * worth + math.sqrt(1 - rho * rho) * draw.gauss(0, 1) for run, worth in cheap.items()}
    return group_tau([cheap], [strong])


def looks(taus: Iterator[float], now: Judge, before: Sequence[float] = ()) -> Iterator[tuple[Judge, bool]]:
    """Return which judge scores after each group, and whether the mean of a full window is below the bound."""
    window = deque(before, maxlen=WINDOW)
    for one in taus:
        window.append(one)
        now = next_judge(now, mean_agreement(list(window)), BOUND, WINDOW)
        yield now, len(window) == WINDOW and statistics.fmean(window) < BOUND


def steady(agree: float, runs: int, trials: int) -> Steady:
    """Simulate constant agreement."""
    taus, draw = pool(agree, runs), random.Random(SEED)
    seen = [list(looks(iter(draw.choices(taus, k=LONG)), CHEAP)) for _ in range(trials)]
    called = statistics.fmean(any(judge == STRONG for judge, _ in one) for one in seen)
    return {
        "runs": runs,
        "agree": agree,
        "called": round(called, 4),
        "below": round(statistics.fmean(any(below for _, below in one) for one in seen), 4),
    }


def changed(before: float, agree: float, runs: int, now: Judge, trials: int) -> ChangedJudge:
    """Simulate a change of agreement; return the number of groups until the other judge scores."""
    draw, old, new = random.Random(SEED), pool(before, runs), pool(agree, runs)
    other: Judge = STRONG if now == CHEAP else CHEAP
    found = [_first(draw, old, new, now, other) for _ in range(trials)]
    known = sorted(found)
    middle = statistics.median(known)
    return {
        "runs": runs,
        "agree": agree,
        "in_one": round(statistics.fmean(one <= WINDOW for one in found), 4),
        "in_two": round(statistics.fmean(one <= 2 * WINDOW for one in found), 4),
        "median": middle if middle <= LONG else None,
    }


def _first(draw: random.Random, old: Sequence[float], new: Sequence[float], now: Judge, other: Judge) -> int:
    """Return the number of the first group that the other judge scores; more than `LONG`: none."""
    before, taus = draw.choices(old, k=WINDOW), draw.choices(new, k=LONG)
    for number, (judge, _) in enumerate(looks(iter(taus), now, before), start=1):
        if judge == other:
            return number
    return LONG + 1


def measure(trials: int = TRIALS) -> Figures:
    """All figures."""
    return {
        "bound": BOUND,
        "window": WINDOW,
        "groups": LONG,
        "trials": trials,
        "steady": [steady(agree, runs, trials) for runs in SIZES for agree in STEADY],
        "fallen": [changed(GOOD, agree, runs, CHEAP, trials) for runs in SIZES for agree in FALLEN],
        "back": [changed(0.0, agree, runs, STRONG, trials) for runs in SIZES for agree in BACK],
    }


def tables(figures: Figures) -> str:
    """Return the figures as tables."""
    kept = ["trajectories in a group", "agreement", "strong judge called", "mean alone below"]
    fell = ["trajectories in a group", "agreement falls to", *_FOUND]
    back = ["trajectories in a group", "agreement rises to", *_FOUND]
    return "\n".join(
        [
            f"{figures['trials']} simulated sequences of {figures['groups']} groups that both judged, `min_agreement` "
            f"{figures['bound']:g}, `window` {figures['window']}. With constant agreement: the share in which the "
            "strong judge is ever called, and in which the mean of a window alone is ever below the bound:",
            "",
            _table(kept, figures["steady"], lambda one: [_share(one["called"]), _share(one["below"])]),
            f"With agreement that falls from {GOOD:g}: the share in which the strong judge scores within one window "
            "and within two, and the median number of groups until then:",
            "",
            _table(fell, figures["fallen"], _found),
            "With agreement that rises from 0: the same for the cheap judge:",
            "",
            _table(back, figures["back"], _found),
        ]
    )


_FOUND: Final = ("within one window", "within two", "groups, median")


def _found(one: ChangedJudge) -> list[str]:
    median = "–" if one["median"] is None else f"{one['median']:g}"
    return [_share(one["in_one"]), _share(one["in_two"]), median]


def _table(head: Sequence[str], rows: Sequence[Any], more: Callable[[Any], list[str]]) -> str:
    return table(head, ([str(one["runs"]), f"{one['agree']:g}", *more(one)] for one in rows))


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"


def main() -> None:
    """Simulate and print; with `--write`, save figures and tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS} and the tables in {PAGE}")
    parser.add_argument("--trials", type=int, default=TRIALS)
    options = parser.parse_args()
    figures = measure(options.trials)
    kept: dict[str, Any] = {"machine": machine(), **figures}
    text = json.dumps(kept, indent=1, ensure_ascii=False)
    print(text)
    if options.write:
        RESULTS.write_text(text + "\n")
        MARKS.write(PAGE, tables(figures))


if __name__ == "__main__":
    main()

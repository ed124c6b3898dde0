"""`hone calibrate` on judges of known accuracy: scripted judges against scripted people.

    python -m benchmarks.calibration --write     writes results/calibration.json, the table in docs/judging.md and its
                                                 picture, docs/calibration.svg

`GROUPS` groups of `RUNS` trajectories are recorded in a store of their own. Each trajectory has a true quality, drawn
from a standard normal, and a length that is independent of it. People order a pair correctly with the probability
`PEOPLE`, and each judge with a probability of its own: both see the quality with normal noise. People call two
trajectories equal if the qualities they see, rounded to `STEP`, are equal. The judges are asked like real ones, through
RULER's own prompt and reader, in this process and without a network; two of them also follow position or length.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import random
import re
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import NormalDist
from typing import Any, Final, TypedDict

from benchmarks.load import machine
from judge.calibration.comparison import CalibrationResult, JudgeChoice, JudgeResult, calibrate
from judge.calibration.figures import FIGURES, Figure
from judge.calibration.labels import PeopleComparison
from judge.commands.calibration_view import calibration_chart
from judge.errors import JudgeUsage
from judge.llm.judge_model import JudgeAnswer, Messages
from judge.llm.prompt import SEEDS
from judge.llm.repair import Ask
from judge.settings import JudgeSettings
from recorder.settings import RecorderSettings
from recorder.stats.charts import draw_svg
from recorder.stats.means import Interval
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from scripts.pages.marks import Marks
from scripts.pages.table import table
from tests.judge.judge_server import documents, last_text
from tests.judge.recorded import PROJECT, Recorded

RESULTS: Final = Path(__file__).parent / "results" / "calibration.json"
PAGE: Final = Path(__file__).parents[1] / "docs" / "judging.md"
PICTURE: Final = PAGE.with_name("calibration.svg")
MARKS: Final = Marks("python -m benchmarks.calibration --write")
GROUPS, RUNS, SEED = 200, 3, 15
PEOPLE: Final = 0.9
STEP: Final = 0.5  # standard deviations
TOLERANCE: Final = 0.05
_LONGEST: Final = 30  # words
_NORMAL: Final = NormalDist()
_SAID: Final = re.compile(r"^(?P<words>(?:well )*)run (?P<name>\S+) is worth (?P<worth>\S+)$")


@dataclass(frozen=True, slots=True)
class Scripted:
    """A judge. `place`, `length`: bonus of the first position and the longest answer, in standard deviations."""

    about: str
    accuracy: float
    usd: float
    place: float = 0.0
    length: float = 0.0

    def score(self, name: str, text: str, place: int) -> float:
        """Return the score, 0 to 1, of a trajectory with this text at this position (from 0)."""
        found = _SAID.fullmatch(text)
        assert found is not None
        liked = self.place * (1 - place / (RUNS - 1)) + self.length * len(found["words"].split()) / _LONGEST
        return _NORMAL.cdf((seen(name, text, self.accuracy) + liked) / 2)


JUDGES: Final = {
    "careful": Scripted("right in 90 % of pairs, expensive", 0.9, 0.05),
    "quick": Scripted("right in 90 % of pairs, cheap", 0.9, 0.002),
    "hasty": Scripted("right in 70 % of pairs, cheaper", 0.7, 0.0005),
    "early": Scripted("right in 90 %, prefers early positions", 0.9, 0.001, place=2.0),
    "long": Scripted("right in 90 %, prefers long answers", 0.9, 0.001, length=2.0),
    "guess": Scripted("guesses", 0.5, 0.0001),
}


class CalibrationFigures(TypedDict):
    """The saved figures. `judges`: by name, each figure with its interval, and the cost of a group (`usd`)."""

    groups: int
    runs: int
    pairs: int
    best: str | None
    taken: str | None
    more: int
    judges: dict[str, dict[str, Any]]


def noise(accuracy: float) -> float:
    """Return the noise s for which two qualities, each N(0, 1), are ordered correctly with 1/2 + atan(1 / s) / pi."""
    return math.inf if accuracy <= 0.5 else 1 / math.tan(math.pi * (accuracy - 0.5))


def seen(who: str, text: str, accuracy: float) -> float:
    """Return the quality that a person or a judge sees, always the same for the same trajectory."""
    found = _SAID.fullmatch(text)
    assert found is not None
    drawn, spread = random.Random(f"{SEED} {who} {text}").gauss(0, 1), noise(accuracy)
    return drawn if math.isinf(spread) else float(found["worth"]) + spread * drawn


def answers(group: int) -> list[str]:
    """Return the answers of a group's trajectories."""
    rng = random.Random(f"{SEED} {group}")
    return [
        f"{'well ' * rng.randrange(_LONGEST + 1)}run {group}-{run} is worth {rng.gauss(0, 1):.4f}"
        for run in range(RUNS)
    ]


def asking(name: str, judge: Scripted) -> Ask:
    """Return a client that replaces the judge model."""

    async def ask(messages: Messages) -> JudgeAnswer:
        shown = documents({"messages": messages})[1:]
        verdicts = [
            {"id": one["id"], "explanation": "", "score": judge.score(name, last_text(one), place)}
            for place, one in enumerate(shown)
        ]
        return JudgeAnswer(
            json.dumps({"trajectories": verdicts}), "stop", "scripted", JudgeUsage(1000, 0, 100, judge.usd)
        )

    return ask


async def measure(groups: int = GROUPS) -> CalibrationFigures:
    """Record the groups, and compare every judge with the people."""
    settings = JudgeSettings.model_validate(
        {"model": "scripted/model", "recipes": {name: {"rubric": f"- as {name} sees it"} for name in JUDGES}}
    )
    labels = []
    with tempfile.TemporaryDirectory() as folder:
        store = await open_store(Path(folder), RecorderSettings(), migrate=True)
        try:
            recorded = await Recorded.start(store)
            for group in range(groups):
                said = answers(group)
                await recorded.group(f"g{group}", said)
                told = {str(run): float(round(seen("people", text, PEOPLE) / STEP)) for run, text in enumerate(said)}
                labels.append(PeopleComparison(f"g{group}", told))
            await recorded.stop()
            rng = random.Random(SEED)
            asks = {name: asking(name, judge) for name, judge in JUDGES.items()}
            found = await calibrate(
                Project(store, PROJECT),
                settings,
                list(JUDGES),
                labels,
                TOLERANCE,
                asks=asks,
                draw=lambda: rng.randrange(SEEDS),
            )
        finally:
            await store.close()
    return kept(found)


def kept(found: CalibrationResult) -> CalibrationFigures:
    """Return the saved part of a calibration: all but times."""
    return CalibrationFigures(
        groups=found.groups,
        runs=RUNS,
        pairs=min(one.pairs for one in found.judges),
        best=found.choice.best,
        taken=found.choice.taken,
        more=found.choice.more,
        judges={
            one.name: {**{name: _rounded(figure) for name, figure in one.figures.items()}, "usd": _digits(one.usd)}
            for one in found.judges
        },
    )


def _rounded(figure: Figure) -> dict[str, float | None]:
    ends = asdict(figure.interval) if figure.interval else {"low": None, "high": None}
    return {name: _digits(value) for name, value in {"value": figure.value, **ends}.items()}


def _digits(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def tables(found: CalibrationFigures) -> str:
    """Return the tables of docs/judging.md."""
    heads = ["judge", "what it is", *(name.replace("_", " ") for name in FIGURES), "USD a group"]
    rows = [
        [f"`{name}`", JUDGES[name].about, *(_told(of[figure]) for figure in FIGURES), f"{of['usd']:.4f}"]
        for name, of in found["judges"].items()
    ]
    taken = (
        f"Recommended: `{found['taken']}`, the cheapest that is surely within {100 * TOLERANCE:g} points of the best "
        f"(`{found['best']}`)."
        if found["taken"]
        else f"None is recommended: about {found['more']:,} more pairs would decide."
    )
    return f"{table(heads, rows)}\n{taken}"


def _told(one: dict[str, float]) -> str:
    return f"{one['value']:.2f} ({one['low']:.2f} to {one['high']:.2f})"


def picture(found: CalibrationFigures) -> str:
    """Return the accuracies as `hone calibrate --picture` draws them, as SVG."""
    held = [
        JudgeResult(name, "scripted/model", found["pairs"], found["groups"],
             {figure: _figure(of[figure]) for figure in FIGURES}, {}, JudgeUsage(), 0.0)
        for name, of in found["judges"].items()
    ]  # fmt: skip
    choice = JudgeChoice(found["best"], found["taken"], found["more"])
    return draw_svg(calibration_chart(CalibrationResult(held, choice, TOLERANCE)))


def _figure(one: dict[str, float]) -> Figure:
    return Figure(one["value"], Interval(one["low"], one["high"]))


def main() -> None:
    """Measure and print; with `--write`, save figures, table and picture."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS}, the table in {PAGE}, and {PICTURE}")
    options = parser.parse_args()
    began, cpu = time.monotonic(), time.process_time()
    found = asyncio.run(measure())
    took = {"took_s": round(time.monotonic() - began, 1), "cpu_s": round(time.process_time() - cpu, 1)}
    text = json.dumps({"machine": machine(), **found, **took}, indent=1, ensure_ascii=False)
    print(text)
    if options.write:
        RESULTS.write_text(text + "\n")
        MARKS.write(PAGE, tables(found))
        PICTURE.write_text(picture(found), "utf-8")


if __name__ == "__main__":
    main()

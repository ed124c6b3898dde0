"""Output of `hone calibrate`: progress, a table, JSON, a picture.

Owns: the format. Refuses: the figures (`judge.calibration`), reading arguments (`judge.commands.calibrate`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from judge.calibration.comparison import FEWEST_PAIRS, CalibrationResult, GroupProgress, JudgeResult
from judge.calibration.figures import FIGURES, Figure
from recorder.base.terminal import clean, format_number, show_lines, show_progress, show_table
from recorder.stats.charts import Chart, Series

_WHY_CHARS: Final = 300
_RIGHT: Final = ("groups", "pairs", "usd a group", "seconds a group")


@contextmanager
def watch_progress() -> Iterator[Callable[[GroupProgress], None]]:
    """A callback for each group that was judged; standard error shows the progress."""
    done, without = Counter[str](), Counter[str]()
    with show_progress("reading the labels …") as count:

        def tell(heard: GroupProgress) -> None:
            name = heard.judge
            done[name] += 1
            without[name] += heard.judged.why is not None
            lacks = f", {without[name]} not judged" if without[name] else ""
            count(f"{name}: {done[name]} of {heard.groups} groups{lacks}", done[name], heard.groups)

        yield tell


def show(found: CalibrationResult) -> None:
    """Print the results."""
    columns = (
        "judge",
        "groups",
        "pairs",
        *(name.replace("_", " ") for name in FIGURES),
        "usd a group",
        "seconds a group",
    )
    show_table(columns, map(_row, found.judges), right=_RIGHT)
    show_lines(_summary(found))


def calibration_json(found: CalibrationResult) -> dict[str, Any]:
    """The results for programs."""
    return {
        "labels": found.labels,
        "groups": found.groups,
        "tolerance": found.tolerance,
        "fewest_pairs": FEWEST_PAIRS,
        "best": found.choice.best,
        "taken": found.choice.taken,
        "more_pairs": found.choice.more,
        "judges": [
            {
                "name": one.name,
                "model": one.model,
                "groups": one.groups,
                "pairs": one.pairs,
                "figures": {name: asdict(figure) for name, figure in one.figures.items()},
                "unjudged": dict(one.unjudged),
                "spent": asdict(one.spent),
                "usd_a_group": one.usd,
                "seconds_a_group": one.seconds,
                "stored": [asdict(agreement) for agreement in one.agreements],
            }
            for one in found.judges
        ],
    }


def calibration_chart(found: CalibrationResult) -> Chart:
    """Each judge's pairwise accuracy, with its interval."""
    figures = [one.figures["accuracy"] for one in found.judges]
    ends = [figure.interval for figure in figures]
    series = Series(
        "accuracy",
        tuple(figure.value for figure in figures),
        tuple(end.low if end else None for end in ends),
        tuple(end.high if end else None for end in ends),
    )
    names = tuple(one.name for one in found.judges)
    title = "Pairs ordered as people order them"
    return Chart(title, names, (series,), rows=True, share=True, size=(8.0, 1.0 + 0.3 * len(names)))


def _row(one: JudgeResult) -> Sequence[object]:
    figures = map(_figure, one.figures.values())
    return one.name, one.groups, one.pairs, *figures, format_number(one.usd, ".5f"), f"{one.seconds:.1f}"


def _figure(figure: Figure) -> str:
    if figure.interval is None:
        return format_number(figure.value)
    return f"{figure.value:.2f} ({figure.interval.low:.2f} to {figure.interval.high:.2f})"


def _summary(found: CalibrationResult) -> Iterator[tuple[str, str]]:
    for one in found.judges:
        if one.unjudged:
            group, why = next(iter(one.unjudged.items()))
            yield f"{one.name} could not judge {len(one.unjudged)} groups: {group}: {clean(why)[:_WHY_CHARS]}", "yellow"
        for known in one.agreements:
            yield (
                f"{one.name} orders {100 * known.agreement:.0f} % of {known.pairs:,} pairs as people do. This is "
                "stored: steps weigh its groups of two by it (docs/learning-signals.md).",
                "",
            )
    choice, within = found.choice, f"{100 * found.tolerance:g} points"
    if choice.taken is not None:
        yield (
            f"{choice.taken} is the cheapest judge that is significantly within {within} of the best ({choice.best}).",
            "green",
        )
    else:
        yield (
            f"Too few labels to say which judge is good enough: about {choice.more:,} more pairs are needed.",
            "yellow",
        )

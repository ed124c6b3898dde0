"""The charts of a report: which figures of a campaign they show. Drawing is in `recorder.stats.charts`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from recorder.stats.charts import Chart, EventMark, ReferenceLine, Series
from trainer.report.formatters import is_share, measure_name, percent_or_number
from trainer.report.shapes import CampaignReport, MeasuredPoint

SMALL: Final = (4.6, 2.0)  # inches, of 72 points
_MOST_BARS: Final = 50  # more steps than these are drawn several to a bar
_TITLES: Final = {
    "reward": "Mean reward of the steps' attempts",
    "length": "Sampled tokens an attempt",
    "turns": "Turns an attempt",
    "repetition": "Repetition",
    "tool_calls": "Tool calls an attempt",
    "seconds": "Seconds an attempt",
    "zero_variance": "Groups that all did equally well",
    "perfect": "Attempts with the highest reward",
    "judge_agreement": "Pairs that the judge orders rightly",
    "entropy": "Entropy",
    "kl_engine": "KL, engine to trainer",
    "kl_base": "KL, base to trainer",
    "clip_fraction": "Clipped tokens",
}
MOST_HEALTH: Final = 16  # figures that are drawn; a recipe may have any number of parts


def measure_chart(report: CampaignReport) -> Chart:
    """What was measured after each step, and the steps' own attempts, against target and baselines."""
    last = max([report.steps_done, *(one.step for one in report.validations)], default=0)
    validated = _series("validation", report.validations, last)
    own = _series("the steps' own attempts", report.own, last)
    if report.validations:  # one set of intervals can be read, two lie over each other
        own = replace(own, low=(), high=())
    series = [one for one in (validated, own) if any(value is not None for value in one.values)]
    levels = [ReferenceLine("target", report.target)] if report.target is not None else []
    newest = {one.version: one.value for one in report.baselines}  # one may be measured again, by another judge
    levels += [ReferenceLine(name, value) for name, value in newest.items() if value is not None]
    title = f"{measure_name(report.kind).capitalize()} after each step"
    places = tuple(str(step) for step in range(last + 1)) if series else ()
    marks = tuple(one for one in _marks(report) if one.at < len(places))
    return Chart(title, places, tuple(series), share=is_share(report.kind), levels=tuple(levels), marks=marks)


def _series(name: str, points: Sequence[MeasuredPoint], last: int) -> Series:
    at = {point.step: point for point in points}
    row = [at.get(step) for step in range(last + 1)]
    return Series(
        name,
        tuple(one.value if one else None for one in row),
        tuple(one.low if one else None for one in row),
        tuple(one.high if one else None for one in row),
    )


def _marks(report: CampaignReport) -> Iterator[EventMark]:
    for step in sorted({one.alarm.step for one in report.alarms} | {one.step for one in report.changes}):
        here = [one.alarm for one in report.alarms if one.alarm.step == step]
        words = [f"{alarm.rule} (paused)" if alarm.then == "pause" else alarm.rule for alarm in here]
        words += ["changed"] if any(one.step == step for one in report.changes) else []
        yield EventMark(", ".join(words), step)


def seconds_chart(report: CampaignReport) -> Chart:
    """Where the time went, by phase; the mean of several steps where there are many."""
    many = -(-len(report.steps) // _MOST_BARS) or 1
    folded = [report.steps[at : at + many] for at in range(0, len(report.steps), many)]
    places = tuple(f"{few[0].step}" if many == 1 else f"{few[0].step}-{few[-1].step}" for few in folded)
    series = tuple(
        Series(phase, tuple(statistics.fmean(step.seconds.get(phase, 0.0) for step in few) for few in folded))
        for phase in report.seconds
    )
    title = "Seconds of each step" if many == 1 else f"Seconds of a step, mean of {many}"
    return Chart(title, places, series, bars=True)


def health_charts(report: CampaignReport) -> list[Chart]:
    """A small chart of each figure of the steps' health."""
    places = tuple(str(step.step) for step in report.steps)
    return [
        Chart(figure_title(name), places, (Series(figure_title(name), tuple(values)),), size=SMALL)
        for name, values in list(report.health.items())[:MOST_HEALTH]
    ]


def figure_title(name: str) -> str:
    """A figure of health as people read it."""
    return _TITLES.get(name, name.replace("part.", "Part: ", 1))


def chart_text(chart: Chart) -> str:
    """A text alternative of a chart: the first and last value of each series."""
    told = []
    for one in chart.series:
        there = [value for value in one.values if value is not None]
        if there:
            first, last = (percent_or_number(value, share=chart.share) for value in (there[0], there[-1]))
            told.append(f"{one.name} from {first} to {last}")
    return f"{chart.title}: {'; '.join(told)}" if told else chart.title

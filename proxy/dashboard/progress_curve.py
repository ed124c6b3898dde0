"""The small curve of an alias's progress on Home: where each version's values lie in the picture. Pure.

Owns: which measures are drawn, the scale, and coordinates in units of the picture. Refuses: the SVG
(`home_answers.html`), and what the measures mean (`recorder.views.status.answers`).

The picture needs no drawing library and no request of its own, so it is in the page and in its live updates.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from proxy.dashboard.formatters import number, percent
from recorder.views.status.answers import (
    ComparedVersion,
    comparable_held_out,
    comparable_rewards,
    versions_in_line,
)
from recorder.views.versions.progress import AliasProgress, VersionProgress

WIDTH: Final = 420.0
HEIGHT: Final = 150.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 44.0, 14.0, 10.0, 24.0  # room for the labels
_APART: Final = 5.0  # between the values of two measures of one version
_FEWEST: Final = 2  # values of a curve


@dataclass(frozen=True, slots=True)
class Dot:
    """One value. `low`, `high`: the ends of its interval on the vertical axis; `text`: for whoever points at it."""

    x: float
    y: float
    low: float | None
    high: float | None
    text: str


@dataclass(frozen=True, slots=True)
class Trace:
    """The values of one measure, oldest first. `path`: the line through them, as the points of a polyline."""

    name: str
    dots: Sequence[Dot]
    path: str


@dataclass(frozen=True, slots=True)
class Tick:
    """A label of an axis, at a coordinate."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class ProgressCurve:
    """A picture of `WIDTH` by `HEIGHT`. `summary`: its values as text."""

    traces: Sequence[Trace]
    values: Sequence[Tick]
    versions: Sequence[Tick]
    summary: str


@dataclass(frozen=True, slots=True)
class _Measure:
    """The values of one measure, oldest first, its name in the legend, and how a value is written."""

    name: str
    points: Sequence[ComparedVersion]
    shown: Callable[[float | None], str]

    def value(self, point: ComparedVersion) -> str:
        """A value with its interval."""
        ends = point.interval
        interval = f" ({self.shown(ends.low)} to {self.shown(ends.high)})" if ends is not None else ""
        return f"{point.version} {self.shown(point.value)}{interval}"


def draw_progress(progress: AliasProgress) -> ProgressCurve | None:
    """Return the curve of the live version and its ancestors; None if no measure has two values."""
    line = versions_in_line(progress)
    measures = [one for one in _measures(line) if one.points]
    if not any(len(one.points) >= _FEWEST for one in measures):
        return None
    drawn = {point.version for one in measures for point in one.points}
    axes = _Axes([one.version for one in line if one.version in drawn], *_range(measures))
    return ProgressCurve(
        [_trace(one, axes, _APART * place) for place, one in enumerate(measures)],
        [Tick(axes.y(value), measures[0].shown(value)) for value in (axes.low, (axes.low + axes.high) / 2, axes.high)],
        [Tick(axes.x(version), f"@{version.rpartition('@')[2]}") for version in axes.places],
        "; ".join(f"{one.name}: {', '.join(map(one.value, one.points))}" for one in measures),
    )


def _measures(line: Sequence[VersionProgress]) -> Iterator[_Measure]:
    kinds = [one.held_out.kind for one in line if one.held_out is not None]
    if kinds:
        yield _Measure(f"held-out {kinds[-1]}", comparable_held_out(line), number if kinds[-1] == "reward" else percent)
    yield _Measure("reward in traffic", comparable_rewards(line), number)


def _range(measures: Sequence[_Measure]) -> tuple[float, float]:
    """Return the ends of the vertical axis: 0 and 1, or wider where a value lies outside."""
    points = [point for one in measures for point in one.points]
    ends = [end for one in points if one.interval is not None for end in (one.interval.low, one.interval.high)]
    ends += [one.value for one in points]
    return min(0.0, *ends), max(1.0, *ends)


@dataclass(frozen=True, slots=True)
class _Axes:
    """The versions from left to right, and the ends of the vertical axis."""

    places: Sequence[str]
    low: float
    high: float

    def x(self, version: str) -> float:
        steps = max(1, len(self.places) - 1)
        room = WIDTH - _LEFT - _RIGHT - 2 * _APART
        return round(_LEFT + _APART + self.places.index(version) * room / steps, 1)

    def y(self, value: float) -> float:
        return round(_TOP + (self.high - value) / (self.high - self.low) * (HEIGHT - _TOP - _BOTTOM), 1)


def _trace(measure: _Measure, axes: _Axes, shift: float) -> Trace:
    dots = [
        Dot(
            round(axes.x(point.version) + shift, 1),
            axes.y(point.value),
            None if point.interval is None else axes.y(point.interval.low),
            None if point.interval is None else axes.y(point.interval.high),
            f"{measure.name}: {measure.value(point)}",
        )
        for point in measure.points
    ]
    return Trace(measure.name, dots, " ".join(f"{one.x},{one.y}" for one in dots))

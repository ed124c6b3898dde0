"""The charts of traffic over a range of time, whole or by the values of a split."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from recorder.stats.charts import Chart, Series
from recorder.views.charts.axes import time_axis
from recorder.views.status.traffic import Traffic, TrafficFigures

DAY_S: Final = 86400.0
NONE: Final = "none"  # the name of calls without a value of the split

_Figure = Callable[[TrafficFigures], float | None]
_PERCENTILES: Final[Mapping[str, tuple[str, Mapping[str, _Figure]]]] = {
    "duration": (
        "Duration in seconds",
        {
            "p50": lambda figures: figures.duration.p50_s,
            "p95": lambda figures: figures.duration.p95_s,
            "p99": lambda figures: figures.duration.p99_s,
        },
    ),
    "first_token": (
        "Time to first token in seconds",
        {
            "p50": lambda figures: figures.first_token.p50_s,
            "p95": lambda figures: figures.first_token.p95_s,
            "p99": lambda figures: figures.first_token.p99_s,
        },
    ),
}
_OF_VALUES: Final[Mapping[str, tuple[str, _Figure]]] = {
    "calls": ("Calls", lambda figures: figures.calls),
    "errors": ("Errors", lambda figures: figures.errors),
    "duration": ("Duration in seconds, p95", lambda figures: figures.duration.p95_s),
    "first_token": ("Time to first token in seconds, p95", lambda figures: figures.first_token.p95_s),
    "tokens": ("Tokens", lambda figures: figures.tokens_in + figures.tokens_out),
    "cost": ("Cost in US dollars", lambda figures: figures.cost_usd),
}


def traffic_charts(found: Traffic) -> dict[str, Chart]:
    """The charts of a range, by name, without those that have nothing to draw. A split is drawn by its values."""
    drawn = _charts_of_values(found) if found.split is not None else _charts_of_all(found)
    empty = {
        "errors": not found.total.errors,
        "cost": found.total.cost_usd is None,
        "first_token": found.total.first_token.p50_s is None,
        "duration": found.total.duration.p50_s is None,
    }
    places = tuple(_place(point.at, found) for point in found.points)
    axis = time_axis("from", [point.at for point in found.points])
    return {
        name: replace(chart, places=places, axis=axis)
        for name, chart in drawn.items()
        if found.total.calls and not empty.get(name, False)
    }


def _charts_of_all(found: Traffic) -> dict[str, Chart]:
    figures = [point.figures for point in found.points]

    def series(name: str, of: _Figure) -> Series:
        return Series(name, tuple(of(one) for one in figures))

    kinds = tuple(
        Series(kind.replace("_", " "), tuple(point.errors.get(kind, 0) for point in found.points))
        for kind in found.errors
    )
    tokens = (series("prompt", lambda one: one.tokens_in), series("sampled", lambda one: one.tokens_out))
    drawn = {
        "calls": Chart("Calls", (), (series("calls", lambda one: one.calls),), bars=True),
        "errors": Chart("Errors by kind", (), kinds, bars=True),
    }
    for name, (title, of) in _PERCENTILES.items():
        drawn[name] = Chart(title, (), tuple(series(share, figure) for share, figure in of.items()))
    drawn["tokens"] = Chart("Tokens", (), tokens, bars=True)
    drawn["cost"] = Chart("Cost in US dollars", (), (series("cost", lambda one: one.cost_usd),), bars=True)
    return drawn


def _charts_of_values(found: Traffic) -> dict[str, Chart]:
    drawn = {}
    for name, (title, figure) in _OF_VALUES.items():
        series = tuple(Series(value.name or NONE, tuple(figure(one) for one in value.points)) for value in found.values)
        drawn[name] = Chart(f"{title}, by {found.split}", (), series, bars=name not in _PERCENTILES)
    return drawn


def _place(at: float, found: Traffic) -> str:
    """The label of a point: the time of day for up to two days, else the date."""
    return time.strftime("%H:%M" if found.until - found.since <= 2 * DAY_S else "%b %d", time.localtime(at))

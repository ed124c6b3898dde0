"""The page Traffic: calls, errors, durations, tokens and cost over time, whole or split.

Owns: the charts of a range and their images, and the addresses to which points and values lead. Refuses: the figures
(`recorder.views.status.traffic`), and drawing (`proxy.dashboard.chart_drawer`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import urlencode

from litestar import Response, get
from litestar.params import FromPath

from proxy.api.route_parts import AnyRequest, query_words
from proxy.api.traffic import parse_traffic_query
from proxy.dashboard import forms
from proxy.dashboard.chart_images import draw_image
from proxy.dashboard.pages.lists import TRAJECTORIES, tidy_address
from proxy.dashboard.renderer import ForPages, render_page
from proxy.errors import UnknownObject
from recorder.states import Origin
from recorder.stats.charts import Chart, Series
from recorder.totals.time_rows import OTHERS
from recorder.views.lists.filters import ANY, RANGES_S, USUAL_ORIGINS, Split, TrafficFilter, parse_traffic_filter
from recorder.views.status.traffic import Traffic, TrafficFigures, TrafficPoint, TrafficValue, load_traffic

TRAFFIC: Final = "/hone/traffic"
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
    places = tuple(_place(point.at, found) for point in found.points)
    drawn = _charts_of_values(found, places) if found.split is not None else _charts_of_all(found, places)
    empty = {
        "errors": not found.total.errors,
        "cost": found.total.cost_usd is None,
        "first_token": found.total.first_token.p50_s is None,
        "duration": found.total.duration.p50_s is None,
    }
    return {name: chart for name, chart in drawn.items() if found.total.calls and not empty.get(name, False)}


def _charts_of_all(found: Traffic, places: tuple[str, ...]) -> dict[str, Chart]:
    figures = [point.figures for point in found.points]

    def series(name: str, of: _Figure) -> Series:
        return Series(name, tuple(of(one) for one in figures))

    kinds = tuple(
        Series(kind.replace("_", " "), tuple(point.errors.get(kind, 0) for point in found.points))
        for kind in found.errors
    )
    tokens = (series("prompt", lambda one: one.tokens_in), series("sampled", lambda one: one.tokens_out))
    drawn = {
        "calls": Chart("Calls", places, (series("calls", lambda one: one.calls),), bars=True),
        "errors": Chart("Errors by kind", places, kinds, bars=True),
    }
    for name, (title, of) in _PERCENTILES.items():
        drawn[name] = Chart(title, places, tuple(series(share, figure) for share, figure in of.items()))
    drawn["tokens"] = Chart("Tokens", places, tokens, bars=True)
    drawn["cost"] = Chart("Cost in US dollars", places, (series("cost", lambda one: one.cost_usd),), bars=True)
    return drawn


def _charts_of_values(found: Traffic, places: tuple[str, ...]) -> dict[str, Chart]:
    drawn = {}
    for name, (title, figure) in _OF_VALUES.items():
        series = tuple(Series(value.name or NONE, tuple(figure(one) for one in value.points)) for value in found.values)
        drawn[name] = Chart(f"{title}, by {found.split}", places, series, bars=name not in _PERCENTILES)
    return drawn


def _place(at: float, found: Traffic) -> str:
    """The label of a point: the time of day for up to two days, else the date."""
    return time.strftime("%H:%M" if found.until - found.since <= 2 * DAY_S else "%b %d", time.localtime(at))


class TrafficLinks:
    """The addresses to which a page of traffic leads."""

    def __init__(self, wanted: TrafficFilter, found: Traffic) -> None:
        self._wanted = wanted
        self._found = found

    def charts(self) -> str:
        """The query of the range's charts. Its times are whole minutes, so that an image may be cached."""
        until = -(-self._found.until // 60) * 60
        words = [("since", f"{self._found.since:.0f}"), ("until", f"{until:.0f}"), *self._origins()]
        if self._wanted.split is not None:
            words.append(("split", self._wanted.split.value))
        if self._wanted.tag is not None:
            words.append(("tag", self._wanted.tag))
        return urlencode(words)

    def whole(self, **words: str) -> str:
        """The list of trajectories that were active within the range."""
        return self._list(self._found.since, self._found.until, words)

    def point(self, point: TrafficPoint) -> str:
        """The list of trajectories that were active at a point."""
        return self._list(point.at, point.until, {})

    def value(self, value: TrafficValue) -> str | None:
        """The list of trajectories with a value of the split; None for calls that have none, or another one."""
        split = self._found.split
        if split is None or value.value in ("", OTHERS):
            return None
        return self.whole(**{split.value: value.value})

    def _list(self, since: float, until: float, words: Mapping[str, str]) -> str:
        # whole seconds that have the range between them: a trajectory that has just begun is in its list
        times = [("active_since", f"{math.floor(since)}"), ("until", f"{math.ceil(until)}")]
        return f"{TRAJECTORIES}?{urlencode([*words.items(), *times, *self._origins()])}"

    def _origins(self) -> Sequence[tuple[str, str]]:
        origins = self._wanted.origins
        if origins == USUAL_ORIGINS:
            return []
        return [("origin", ANY)] if len(origins) == len(Origin) else [("origin", one.value) for one in origins]


@get("/traffic", include_in_schema=False)
async def traffic_page(context: ForPages, request: AnyRequest) -> Response[str] | Response[None]:
    """Traffic over a range of time."""
    given = query_words(request)
    if (tidy := tidy_address(TRAFFIC, given)) is not None:
        return forms.back_to(tidy)
    wanted = parse_traffic_query(request)
    found = await load_traffic(context.project, wanted)
    return render_page(
        request,
        "traffic.html",
        traffic=found,
        wanted=wanted,
        links=TrafficLinks(wanted, found),
        charts_of=traffic_charts(found),
        given=dict(given),
        ranges=tuple(RANGES_S),
        splits=tuple(Split),
        usual=wanted.origins == USUAL_ORIGINS,
        any_origin=f"{TRAFFIC}?{urlencode([*((n, v) for n, v in given if n != 'origin'), ('origin', ANY)])}",
    )


@get("/traffic/charts/{name:str}", include_in_schema=False)
async def traffic_chart(context: ForPages, request: AnyRequest, name: FromPath[str]) -> Response[bytes]:
    """A chart of a range as SVG. Raises UnknownObject, FilterInvalid."""
    query = query_words(request)
    dark = ("dark", "1") in query
    found = await load_traffic(context.project, parse_traffic_filter([one for one in query if one[0] != "dark"]))
    chart = traffic_charts(found).get(name.removesuffix(".svg"))
    if chart is None:
        raise UnknownObject(f"there is no chart {name[:100]!r} of this range.")
    return await draw_image(context, chart, dark=dark)

"""The page Traffic: calls, errors, durations, tokens and cost over time, whole or split.

Owns: the images of a range's charts, and the addresses to which points and values lead. Refuses: the figures
(`recorder.views.status.traffic`), the charts (`recorder.views.charts`), and drawing (`proxy.dashboard.chart_drawer`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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
from recorder.totals.time_rows import OTHERS
from recorder.views.charts.traffic import traffic_charts
from recorder.views.lists.filters import ANY, RANGES_S, USUAL_ORIGINS, Split, TrafficFilter, parse_traffic_filter
from recorder.views.status.traffic import Traffic, TrafficPoint, TrafficValue, load_traffic

TRAFFIC: Final = "/hone/traffic"


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

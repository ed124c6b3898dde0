"""The handler that serves charts as images, for pages without scripts.

The charts are those of `/hone/v1/charts`. Refuses: which figures a chart has (`recorder.views.charts`), and drawing
(`proxy.dashboard.chart_drawer`, `recorder.stats.charts`).
"""

from __future__ import annotations

from typing import Final

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from proxy.api.actions import get_alias
from proxy.api.charts import split_ids
from proxy.dashboard.chart_drawer import ChartFailed
from proxy.dashboard.renderer import ForPages, PageContext, page_headers
from proxy.errors import UnknownObject
from recorder.stats.charts import Chart
from recorder.views.charts.campaigns import load_campaign_charts
from recorder.views.charts.steps import load_outcome_charts, load_step_charts
from recorder.views.charts.versions import load_ancestry_charts

# Served instead of a chart that could not be drawn, with the size of a chart.
_NO_PICTURE: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 648 202" font-family="sans-serif" font-size="16">'
    '<text x="12" y="40" fill="{ink}">The chart could not be drawn. The table below has its values.</text></svg>'
)
_INK: Final = {False: "#57606a", True: "#a3abb3"}
_SETS: Final = ("versions", "outcomes", "campaigns")  # each a chart of its own; any other name is a chart of steps


@get("/charts/{name:str}", include_in_schema=False)
async def chart_image(
    context: ForPages,
    name: FromPath[str],
    alias: FromQuery[str | None] = None,
    before: FromQuery[int | None] = None,
    campaign: FromQuery[str | None] = None,
    dark: FromQuery[bool] = False,
) -> Response[bytes]:
    """A chart as SVG. Raises UnknownObject."""
    named = name.removesuffix(".svg")
    charts = await _charts(context, named, alias or None, before, split_ids(campaign))
    if named not in charts:
        raise UnknownObject(f"there is no chart {named[:100]!r}: use {', '.join([*_SETS, *charts])}.")
    return await draw_image(context, charts[named], dark=dark)


async def _charts(
    context: PageContext, name: str, alias: str | None, before: int | None, campaigns: list[str]
) -> dict[str, Chart]:
    match name:
        case "versions":
            one = await get_alias(context.project, alias)
            return await load_ancestry_charts(context.project.store, one, before)
        case "outcomes":
            return await load_outcome_charts(context.project)
        case "campaigns":
            return await load_campaign_charts(context.project, campaigns, alias)
        case _:
            return await load_step_charts(context.project, alias)


async def draw_image(context: PageContext, chart: Chart, *, dark: bool) -> Response[bytes]:
    """Return a chart as SVG; 503 with a replacement image if it cannot be drawn in time."""
    try:
        drawn, status = await context.drawer.svg(chart, dark=dark), 200
    except ChartFailed:
        drawn, status = _NO_PICTURE.format(ink=_INK[dark]).encode(), 503
    return Response(drawn, status_code=status, headers=page_headers(), media_type="image/svg+xml")

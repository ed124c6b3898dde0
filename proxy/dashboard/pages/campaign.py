"""The page of a campaign: its report, with the same results as the file of `hone report`, which it offers too.

Refuses: the report (`recorder.report`), and drawing its charts (`proxy.dashboard.chart_drawer`).
"""

from __future__ import annotations

import asyncio
import re
from typing import Final
from urllib.parse import quote

from litestar import Response, get
from litestar.enums import MediaType
from litestar.params import FromPath, FromQuery

from proxy.api.route_parts import AnyRequest
from proxy.dashboard.chart_drawer import ChartFailed
from proxy.dashboard.chart_images import draw_image
from proxy.dashboard.renderer import ForPages, page_headers, render_page, template_environment
from proxy.dashboard.report_cache import CHART_S, PAGE_S
from proxy.errors import Unavailable, UnknownObject
from recorder.report import page
from recorder.report.page_fit import fit_report
from recorder.report.presentation import chart_text
from recorder.stats.charts import Chart

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")  # in the name of a file


@get("/campaigns/{campaign:str}", include_in_schema=False)
async def campaign_page(context: ForPages, request: AnyRequest, campaign: FromPath[str]) -> Response[str]:
    """A campaign by its id or name, with its results as of now. Raises NotFound."""
    report = fit_report(await context.reports.load(campaign, PAGE_S))
    at = f"/hone/campaigns/{quote(report.id, safe='')}"
    pictures = {name: _picture(at, name, chart) for name, chart in page.report_charts(report).items()}
    return render_page(
        request, "campaign.html", report=report, results=page.render_results(report, pictures), address=at
    )


@get("/campaigns/{campaign:str}/report.html", include_in_schema=False)
async def campaign_file(context: ForPages, campaign: FromPath[str]) -> Response[str]:
    """The report as the one file that `hone report --html` writes. Raises NotFound, Unavailable."""
    report = await context.reports.load(campaign, PAGE_S)
    charts = page.report_charts(report)
    try:
        drawn = await asyncio.gather(*(context.drawer.svg(chart, dark=False) for chart in charts.values()))
    except ChartFailed as e:
        raise Unavailable(
            f"the charts of this report cannot be drawn now ({e}): try again, or run `hone report --html FILE`."
        ) from e
    text = page.render_page(report, {name: svg.decode() for name, svg in zip(charts, drawn, strict=True)})
    name = _UNSAFE.sub("-", report.name)[:80].strip("-.") or "campaign"
    headers = page_headers() | {"content-disposition": f'attachment; filename="{name}-report.html"'}
    return Response(text, media_type=MediaType.HTML, headers=headers)


@get("/campaigns/{campaign:str}/charts/{name:str}", include_in_schema=False)
async def campaign_chart(
    context: ForPages, campaign: FromPath[str], name: FromPath[str], dark: FromQuery[bool] = False
) -> Response[bytes]:
    """A chart of the report as SVG. Raises NotFound, UnknownObject."""
    charts = page.report_charts(await context.reports.load(campaign, CHART_S))
    chart = charts.get(name.removesuffix(".svg"))
    if chart is None:
        raise UnknownObject(f"there is no chart {name[:100]!r} of this campaign: use {', '.join(charts) or 'none'}.")
    return await draw_image(context, chart, dark=dark)


def _picture(at: str, name: str, chart: Chart) -> page.HasMarkup:
    """A chart as an image, in the reader's colours."""
    shown = template_environment().get_template("campaign_chart.html")
    width, height = (round(72 * inches) for inches in chart.size)
    values = {"address": f"{at}/charts/{name}.svg?", "alt": chart_text(chart), "width": width, "height": height}
    return shown.make_module(values | {"lazy": name != "curve"})

"""Charts in /hone/v1: the figures that the pages draw, as series over positions. Read-only.

Each route returns charts by name. Refuses: which figures a chart has (`recorder.views.charts`), and drawing.
"""

from __future__ import annotations

from typing import Final

from litestar import Response, get
from litestar.params import FromQuery

from proxy.api.actions import get_alias
from proxy.api.route_parts import AnyRequest, Injected, json_response, response_spec
from proxy.api.traffic import TrafficQuery, parse_traffic_query
from recorder.stats.charts import Chart
from recorder.views.charts.campaigns import load_campaign_charts
from recorder.views.charts.steps import load_outcome_charts, load_step_charts
from recorder.views.charts.traffic import traffic_charts
from recorder.views.charts.versions import load_ancestry_charts
from recorder.views.status.traffic import load_traffic

_CHARTS: Final = response_spec(200, dict[str, Chart])


@get("/hone/v1/charts/versions", responses=_CHARTS)
async def show_version_charts(
    hone: Injected, alias: FromQuery[str | None] = None, before: FromQuery[int | None] = None
) -> Response[bytes]:
    """Return the chart `versions`: held-out measures and rewards of an alias's newest versions, with 95 % intervals.

    `before`: of versions with lower numbers.
    """
    one = await get_alias(hone.project, alias)
    return json_response(await load_ancestry_charts(hone.project.store, one, before))


@get("/hone/v1/charts/steps", responses=_CHARTS)
async def show_step_charts(hone: Injected, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """Return the charts of the newest training steps: reward, drift, forgetting, seconds by phase and others."""
    return json_response(await load_step_charts(hone.project, alias or None))


@get("/hone/v1/charts/outcomes", responses=_CHARTS)
async def show_outcome_charts(hone: Injected) -> Response[bytes]:
    """Return the chart `outcomes`: trained and excluded trajectories over time, by reason."""
    return json_response(await load_outcome_charts(hone.project))


@get("/hone/v1/charts/campaigns", responses=_CHARTS)
async def show_campaign_charts(
    hone: Injected, alias: FromQuery[str | None] = None, campaign: FromQuery[str | None] = None
) -> Response[bytes]:
    """Return the chart `campaigns`: the measure after each step, with 95 % intervals, of one campaign or of several.

    `campaign`: ids among the newest ten, separated by commas; without it, the newest campaign.
    """
    return json_response(await load_campaign_charts(hone.project, split_ids(campaign), alias or None))


@get("/hone/v1/charts/traffic", responses=_CHARTS, operation_class=TrafficQuery)
async def show_traffic_charts(hone: Injected, request: AnyRequest) -> Response[bytes]:
    """Return the charts of traffic over a range of time, by the parameters of `/hone/v1/traffic`."""
    return json_response(traffic_charts(await load_traffic(hone.project, parse_traffic_query(request))))


def split_ids(listed: str | None) -> list[str]:
    """Return the ids of a list with commas, as the query of a chart has them."""
    return [one for one in (listed or "").split(",") if one]

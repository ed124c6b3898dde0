"""The pages Home, Judge, Tools and Training.

Refuses: their figures (`recorder.views.status`) and the event stream of Home (`proxy.dashboard.live`).
"""

from __future__ import annotations

from typing import Final

from litestar import Response, get
from litestar.params import FromQuery

from proxy.api.route_parts import AnyRequest
from proxy.dashboard import live
from proxy.dashboard.chart_images import outcome_chart, step_charts
from proxy.dashboard.page_context import ForPages
from proxy.dashboard.renderer import render_page
from recorder.registry.aliases import get_aliases
from recorder.views.status.training import STEPS, training_overview
from recorder.views.versions.steps import list_steps


@get("/", include_in_schema=False)
async def home_page(shown: ForPages, request: AnyRequest) -> Response[str]:
    """The status of everything, and the newest trajectories."""
    return render_page(
        request, "home.html", stand=await shown.stands.status(), lines=await live.newest_trajectories(shown)
    )


@get("/judge", include_in_schema=False)
async def judge_page(shown: ForPages, request: AnyRequest) -> Response[str]:
    """Scores and failures, latency, tokens, cost, agreement, and the latest scores."""
    return render_page(request, "judge.html", judging=await shown.stands.judging())


@get("/tools", include_in_schema=False)
async def tools_page(shown: ForPages, request: AnyRequest) -> Response[str]:
    """MCP servers, and the outcomes of tool calls."""
    tools = await shown.stands.tools()
    return render_page(request, "tools.html", servers=tools.servers, used=tools.usage)


_LEARN: Final = "learn."  # the prefix of the settings of budgets and hours


@get("/training", include_in_schema=False)
async def training_page(
    shown: ForPages,
    request: AnyRequest,
    alias: FromQuery[str | None] = None,
    after: FromQuery[str | None] = None,
) -> Response[str]:
    """What training waits for, steps and campaigns. `alias`: of this alias only; `after`: steps older than this one."""
    alias = alias or None
    stand = await training_overview(shown.project, shown.stands.loop, alias)
    steps = stand.steps
    if after is not None:
        steps = await list_steps(shown.project, alias=alias, after=after, limit=STEPS)
    return render_page(
        request,
        "training.html",
        stand=stand,
        steps=steps,
        older=steps[-1].id if len(steps) == STEPS else None,
        alias=alias,
        aliases=await get_aliases(shown.project),
        limits=[one for one in shown.stands.settings if one.key.startswith(_LEARN) and one.value is not None],
        charts_of=step_charts(stand.steps),
        outcomes=outcome_chart(stand.outcomes),
    )

"""The pages Home, Judge, Tools and Training.

Refuses: their figures (`recorder.views.status`) and the event stream of Home (`proxy.dashboard.live`).
"""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

from litestar import Response, get, post
from litestar.params import FromQuery

from proxy.api.actions import caller_id
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.dashboard import forms, live
from proxy.dashboard.renderer import ForPages, render_page
from proxy.errors import BadRequest
from recorder.queue.campaign_requests import Wish, ask_campaign
from recorder.registry.aliases import get_aliases
from recorder.views.charts.campaigns import campaign_chart, choose_campaigns
from recorder.views.charts.steps import outcome_chart, step_charts
from recorder.views.lists.titles import load_tasks
from recorder.views.status.training import STEPS, training_overview
from recorder.views.versions.steps import list_steps


@get("/", include_in_schema=False)
async def home_page(context: ForPages, request: AnyRequest) -> Response[str]:
    """The three answers, the newest trajectories of agents, and the status of everything."""
    figures = live.figures_of_home(await context.status_service.status())
    return render_page(request, "home.html", **figures, lines=await live.newest_trajectories(context))


@get("/judge", include_in_schema=False)
async def judge_page(context: ForPages, request: AnyRequest) -> Response[str]:
    """Scores and failures, latency, tokens, cost, agreement, and the latest scores."""
    judging = await context.status_service.judging()
    tasks = await load_tasks(context.project.store, groups=[one.group_id for one in judging.last])
    return render_page(request, "judge.html", judging=judging, tasks=tasks)


@get("/tools", include_in_schema=False)
async def tools_page(context: ForPages, request: AnyRequest) -> Response[str]:
    """MCP servers, and the outcomes of tool calls."""
    tools = await context.status_service.tools()
    failed_in = {one.trajectory_id for one in tools.usage.errors if one.trajectory_id}
    tasks = await load_tasks(context.project.store, runs=failed_in)
    return render_page(request, "tools.html", servers=tools.servers, usage=tools.usage, tasks=tasks)


_LEARN: Final = "learn."  # the prefix of the settings of budgets and hours; those that are set are shown


@get("/training", include_in_schema=False)
async def training_page(
    context: ForPages,
    request: AnyRequest,
    alias: FromQuery[str | None] = None,
    after: FromQuery[str | None] = None,
    campaign: FromQuery[list[str] | None] = None,
) -> Response[str]:
    """What training waits for, steps and campaigns. `alias`: of this alias only; `after`: steps older than this one;
    `campaign`: ids of the campaigns that are drawn, by default the newest."""
    alias = alias or None
    if context.hone.settings is not None:
        await context.hone.settings.refresh()
    overview = await training_overview(context.project, context.status_service.loop, alias)
    steps = overview.steps
    if after is not None:
        steps = await list_steps(context.project, alias=alias, after=after, limit=STEPS)
    drawn = choose_campaigns(overview.campaigns, campaign or [])
    return render_page(
        request,
        "training.html",
        overview=overview,
        steps=steps,
        older=steps[-1].id if len(steps) == STEPS else None,
        alias=alias,
        aliases=await get_aliases(context.project),
        limits=[
            one
            for one in context.status_service.settings
            if one.key.startswith(_LEARN) and one.value and one.value is not True
        ],
        paused=None if (follower := context.hone.settings) is None else follower.learn.paused,
        charts_of=step_charts(overview.steps),
        campaigns_chart=campaign_chart(drawn),
        campaigns_query=urlencode(
            ({"alias": alias} if alias else {}) | ({"campaign": ",".join(one.id for one in drawn)} if drawn else {})
        ),
        drawn=drawn,
        outcomes=outcome_chart(overview.outcomes),
    )


@post("/training/campaigns", include_in_schema=False)
async def ask_of_campaign(context: ForPages, request: AnyRequest) -> Response[None]:
    """Ask a campaign to pause or to end. Raises BadRequest, NotFound, Conflict."""
    form = await forms.read_fields(request)
    wish = forms.field_text(form, "do")
    if wish not in ("pause", "end"):
        raise BadRequest("a campaign is asked to `pause` or to `end`.", param="do")
    asked: Wish = "pause" if wish == "pause" else "end"
    who = caller_id(caller_of(request))
    await ask_campaign(context.hone.project, forms.field_text(form, "campaign"), asked, who)
    return forms.back_to("/hone/training#campaigns")

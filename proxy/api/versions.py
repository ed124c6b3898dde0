"""Aliases, versions, steps and training in /hone/v1, and asking a campaign to pause or end.

Refuses: moving an alias, which pages, MCP and the command line do (`proxy.api.actions`), and training (`trainer`).
"""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get, post
from litestar.params import FromQuery, PathParameter

from proxy.api.actions import caller_id
from proxy.api.route_parts import AnyRequest, Injected, caller_of, json_response, response_spec
from proxy.api.status import ForStatusService
from proxy.errors import UnknownObject
from recorder.queue.campaign_requests import Wish, ask_campaign
from recorder.queue.campaigns import CampaignView
from recorder.registry.aliases import AliasView, get_aliases
from recorder.report.contents import find_campaign, gather_report
from recorder.report.shapes import CampaignReport
from recorder.views.status.training import TrainingOverview, training_overview
from recorder.views.versions.ancestry import AncestryVersion, list_ancestry
from recorder.views.versions.detail import VersionDetail, version_detail
from recorder.views.versions.evidence import Decision, list_decisions
from recorder.views.versions.steps import StepSummary, list_steps

Campaign = Annotated[str, PathParameter(description="The campaign's id, or its name: then its newest.")]
Version = Annotated[str, PathParameter(description="The version's name: `helpdesk@3`.")]


@get("/hone/v1/aliases", responses=response_spec(200, list[AliasView]))
async def show_aliases(hone: Injected) -> Response[bytes]:
    """Return the aliases (the model names that agents ask for) and the versions that they point to."""
    return json_response(await get_aliases(hone.project))


@get("/hone/v1/versions", responses=response_spec(200, list[AncestryVersion]))
async def show_versions(hone: Injected, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """Return the versions of one alias or of all, newest first, each with its ancestry and its measure."""
    aliases = [a for a in await get_aliases(hone.project) if alias in (None, a.name)]
    if not aliases:
        raise UnknownObject(f"no alias {alias!r}: GET /hone/v1/aliases lists them.", param="alias")
    return json_response([v for a in aliases for v in await list_ancestry(hone.project.store, a)])


@get("/hone/v1/versions/moves", responses=response_spec(200, list[Decision]))
async def show_moves(hone: Injected, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """Return the last hundred decisions about versions, newest first, each with its author, reason, figures and limits,
    and their evidence in sentences."""
    return json_response(await list_decisions(hone.project, alias=alias))


@get("/hone/v1/versions/{name:path}", responses=response_spec(200, VersionDetail))
async def show_version(
    hone: Injected, name: Version, compare: FromQuery[str | None] = None, task: FromQuery[str | None] = None
) -> Response[bytes]:
    """Return one version: its decisions, its step, its groups, and its tasks compared with those of its parent, or of
    `compare`.

    `task`: the key of one of these tasks, to add both versions' answers to it.
    """
    return json_response(await version_detail(hone.project, str(name).lstrip("/"), compare, task))


@get("/hone/v1/steps", responses=response_spec(200, list[StepSummary]))
async def show_steps(
    hone: Injected, alias: FromQuery[str | None] = None, after: FromQuery[str | None] = None
) -> Response[bytes]:
    """Return training steps, newest first, fifty at a time. `after`: the id of the last step that the caller has."""
    return json_response(await list_steps(hone.project, alias=alias, after=after))


@get("/hone/v1/campaigns/{campaign:str}/report", responses=response_spec(200, CampaignReport))
async def show_report(hone: Injected, campaign: Campaign) -> Response[bytes]:
    """Return the report of a campaign as of now: its curve with intervals, the best version, and what was excluded."""
    found = await find_campaign(hone.project, campaign)
    return json_response(await gather_report(hone.project.store, found))


@get("/hone/v1/training", responses=response_spec(200, TrainingOverview))
async def show_training(
    hone: Injected, status_service: ForStatusService, alias: FromQuery[str | None] = None
) -> Response[bytes]:
    """Return what training waits for, budgets spent, the newest steps, campaigns, and outcomes by ledger code."""
    return json_response(await training_overview(hone.project, status_service.loop, alias))


CampaignName = Annotated[str, PathParameter(description="The campaign's id, or its name: the newest of that name.")]


@post("/hone/v1/campaigns/{name:str}/pause", status_code=202, responses=response_spec(202, CampaignView))
async def pause_campaign(hone: Injected, request: AnyRequest, name: CampaignName) -> Response[bytes]:
    """Ask a running campaign to pause after its step; the best validated version serves then.

    `hone train --resume NAME` continues it.
    """
    return await _ask(hone, request, name, "pause")


@post("/hone/v1/campaigns/{name:str}/end", status_code=202, responses=response_spec(202, CampaignView))
async def end_campaign(hone: Injected, request: AnyRequest, name: CampaignName) -> Response[bytes]:
    """Ask a running campaign to end after its step, as if its last step were done. It is not resumed."""
    return await _ask(hone, request, name, "end")


async def _ask(hone: Injected, request: AnyRequest, name: str, wish: Wish) -> Response[bytes]:
    asked = await ask_campaign(hone.project, name, wish, caller_id(caller_of(request)))
    return json_response(asked, status=202)

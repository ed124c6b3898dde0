"""Aliases and versions over /hone/v1: read.

Owns: these routes. Refuses: moving an alias, which is done on a page, over MCP and on the command line
(`proxy.api.actions`).

Steps and how training stands, over /hone/v1: read.

Owns: these routes. Refuses: training (the learner's), and moving versions.
"""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get
from litestar.params import FromQuery, PathParameter

from proxy.api.route_parts import Injected, json_response, response_spec
from proxy.api.status import ForStanding
from proxy.errors import UnknownObject
from recorder.registry.aliases import AliasView, get_aliases
from recorder.registry.moves import VersionMove, list_moves
from recorder.views.status.training import TrainingOverview, training_overview
from recorder.views.versions.ancestry import AncestryVersion, list_ancestry
from recorder.views.versions.detail import VersionDetail, version_detail
from recorder.views.versions.steps import StepSummary, list_steps

Version = Annotated[str, PathParameter(description="What a version is called: `helpdesk@3`.")]


@get("/hone/v1/aliases", responses=response_spec(200, list[AliasView]))
async def show_aliases(hone: Injected) -> Response[bytes]:
    """The names that agents ask for, and where they point."""
    return json_response(await get_aliases(hone.project))


@get("/hone/v1/versions", responses=response_spec(200, list[AncestryVersion]))
async def show_versions(hone: Injected, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """The versions of an alias, or of all, newest first: where each stands in its line, and what it was measured at."""
    aliases = [a for a in await get_aliases(hone.project) if alias in (None, a.name)]
    if not aliases:
        raise UnknownObject(f"no alias {alias!r}: GET /hone/v1/aliases lists them.", param="alias")
    return json_response([v for a in aliases for v in await list_ancestry(hone.project.store, a)])


@get("/hone/v1/versions/moves", responses=response_spec(200, list[VersionMove]))
async def show_moves(hone: Injected, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """What was decided about versions, newest first, at most the last hundred: who did, why, and by which figures."""
    return json_response(await list_moves(hone.project, alias=alias))


@get("/hone/v1/versions/{name:path}", responses=response_spec(200, VersionDetail))
async def show_version(
    hone: Injected, name: Version, beside: FromQuery[str | None] = None, task: FromQuery[str | None] = None
) -> Response[bytes]:
    """A version, whole: its decisions, its step, its groups, its tasks beside those of its parent, or of `beside`.

    `task`: the key of one of these tasks; how both versions answered it is then told too.
    """
    return json_response(await version_detail(hone.project, str(name).lstrip("/"), beside, task))


@get("/hone/v1/steps", responses=response_spec(200, list[StepSummary]))
async def show_steps(
    hone: Injected, alias: FromQuery[str | None] = None, after: FromQuery[str | None] = None
) -> Response[bytes]:
    """Training steps, newest first, fifty at a time. `after`: the id of the last one that is known."""
    return json_response(await list_steps(hone.project, alias=alias, after=after))


@get("/hone/v1/training", responses=response_spec(200, TrainingOverview))
async def show_training(hone: Injected, stands: ForStanding, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """How training stands: what is waited for, what was spent, the newest steps, campaigns, runs left out by reason."""
    return json_response(await training_overview(hone.project, stands.loop, alias))

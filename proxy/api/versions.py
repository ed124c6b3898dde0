"""Aliases and versions over /hone/v1: read.

Owns: these routes. Refuses: moving an alias, which is done on a page, over MCP and on the command line
(`proxy.api.steering`).
"""

from __future__ import annotations

from typing import Annotated

from litestar import Response, get
from litestar.params import FromQuery, PathParameter

from proxy.api.route_parts import Injected, answers, as_json
from proxy.errors import Missing
from recorder.learned.lines import VersionLine, line_of
from recorder.learned.whole import VersionWhole, whole_version
from recorder.registry.aliases import AliasView, get_aliases
from recorder.registry.moves import Move, list_moves

Version = Annotated[str, PathParameter(description="What a version is called: `helpdesk@3`.")]


@get("/hone/v1/aliases", responses=answers(200, list[AliasView]))
async def show_aliases(hone: Injected) -> Response[bytes]:
    """The names that agents ask for, and where they point."""
    return as_json(await get_aliases(hone.project))


@get("/hone/v1/versions", responses=answers(200, list[VersionLine]))
async def show_versions(hone: Injected, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """The versions of an alias, or of all, newest first: where each stands in its line, and what it was measured at."""
    aliases = [a for a in await get_aliases(hone.project) if alias in (None, a.name)]
    if not aliases:
        raise Missing(f"no alias {alias!r}: GET /hone/v1/aliases lists them.", param="alias")
    return as_json([v for a in aliases for v in await line_of(hone.project.store, a)])


@get("/hone/v1/versions/moves", responses=answers(200, list[Move]))
async def show_moves(hone: Injected, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """What was decided about versions, newest first, at most the last hundred: who did, why, and by which figures."""
    return as_json(await list_moves(hone.project, alias=alias))


@get("/hone/v1/versions/{name:path}", responses=answers(200, VersionWhole))
async def show_version(
    hone: Injected, name: Version, beside: FromQuery[str | None] = None, task: FromQuery[str | None] = None
) -> Response[bytes]:
    """A version, whole: its decisions, its step, its groups, its tasks beside those of its parent, or of `beside`.

    `task`: the key of one of these tasks; how both versions answered it is then told too.
    """
    return as_json(await whole_version(hone.project, str(name).lstrip("/"), beside, task))

"""Aliases and versions over /hone/v1: read.

Owns: these routes. Refuses: moving an alias, which is done over MCP and on the command line (`proxy.api.steering`).
"""

from __future__ import annotations

from litestar import Response, get
from litestar.params import FromQuery

from proxy.api.route_parts import Injected, answers, as_json
from proxy.errors import Missing
from recorder.registry.aliases import AliasView, get_aliases
from recorder.registry.moves import Move, list_moves
from recorder.registry.versions import VersionView, list_versions


@get("/hone/v1/aliases", responses=answers(200, list[AliasView]))
async def show_aliases(hone: Injected) -> Response[bytes]:
    """The names that agents ask for, and where they point."""
    return as_json(await get_aliases(hone.store, hone.project_id))


@get("/hone/v1/versions", responses=answers(200, list[VersionView]))
async def show_versions(hone: Injected, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """The versions of an alias, or of all, by number."""
    aliases = [a for a in await get_aliases(hone.store, hone.project_id) if alias in (None, a.name)]
    if not aliases:
        raise Missing(f"no alias {alias!r}: GET /hone/v1/aliases lists them.", param="alias")
    return as_json([v for a in aliases for v in await list_versions(hone.store, a.id)])


@get("/hone/v1/versions/moves", responses=answers(200, list[Move]))
async def show_moves(hone: Injected, alias: FromQuery[str | None] = None) -> Response[bytes]:
    """What was decided about versions, newest first, at most the last hundred: who did, why, and by which figures."""
    return as_json(await list_moves(hone.store, hone.project_id, alias=alias))

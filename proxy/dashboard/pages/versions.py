"""Versions: the line of descent of an alias, and one version whole.

Owns: these two pages. Refuses: moving a version (`moving`), and the views (`recorder.learned.lines`, `whole`).
"""

from __future__ import annotations

from pathlib import Path

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from proxy.api.route_parts import AnyRequest
from proxy.dashboard.drawn import VERSIONS, curve
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages
from recorder.learned.lines import VersionLine, line_of
from recorder.learned.whole import whole_version
from recorder.registry.aliases import AliasView, get_alias, get_aliases
from recorder.registry.moves import list_moves

MOVES = 20  # newest decisions that are shown


@get("/versions", include_in_schema=False)
async def versions_page(
    shown: ForPages,
    request: AnyRequest,
    alias: FromQuery[str | None] = None,
    before: FromQuery[int | None] = None,
) -> Response[str]:
    """The line of an alias: of the one that is named, else of the first."""
    aliases = await get_aliases(shown.project)
    chosen = await get_alias(shown.project, alias) if alias else next(iter(aliases), None)
    lines = await _lines(shown, chosen, before)
    return render(
        request,
        "versions.html",
        aliases=aliases,
        alias=chosen,
        lines=lines,
        before=before,
        older=lines[-1].number if len(lines) == VERSIONS and lines[-1].number > 0 else None,
        chart=curve(lines),
        moves=await list_moves(shown.project, alias=chosen.name, limit=MOVES) if chosen else [],
    )


async def _lines(shown: ForPages, alias: AliasView | None, before: int | None) -> list[VersionLine]:
    return await line_of(shown.project.store, alias, before=before, limit=VERSIONS) if alias is not None else []


@get("/versions/{name:path}", include_in_schema=False)
async def version_page(
    shown: ForPages,
    request: AnyRequest,
    name: FromPath[Path],
    beside: FromQuery[str | None] = None,
    task: FromQuery[str | None] = None,
) -> Response[str]:
    """One version; `beside`: which other one its tasks are shown with; `task`: the one whose answers are shown."""
    whole = await whole_version(shown.project, str(name).lstrip("/"), beside or None, task)
    alias = await get_alias(shown.project, whole.version.alias_name)
    others = [
        one.name for one in await line_of(shown.project.store, alias, limit=VERSIONS) if one.id != whole.version.id
    ]
    return render(request, "version.html", whole=whole, version=whole.version, alias=alias, others=others)

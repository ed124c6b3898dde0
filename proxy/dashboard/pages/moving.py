"""Moving an alias: a page that says what would happen, and the change itself.

Owns: asking a second time, from which to which and by which measures, and that nothing moved in between. Refuses: the
moves (`proxy.api.steering`), and which of them a version allows (`recorder.registry`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from litestar import Response, get, post
from litestar.params import FromQuery

from proxy.api import steering
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.dashboard import forms
from proxy.dashboard.render import render
from proxy.dashboard.shown import ForPages
from proxy.errors import BadRequest
from recorder.errors import Conflict
from recorder.learned.lines import VersionLine, line_at
from recorder.registry.aliases import AliasView, get_alias
from recorder.registry.keys import Scope
from recorder.registry.versions import by_name, get_version, parse_name

DEEDS: Final = ("promote", "rollback", "canary")
MAX_WHY_CHARS: Final = 2000


@dataclass(frozen=True, slots=True)
class Deed:
    """What is asked for: `version` is the one that comes in, with `share` (percent) where it is a canary."""

    kind: str
    version: str
    share: float


@get("/versions/move", include_in_schema=False)
async def ask_page(
    shown: ForPages,
    request: AnyRequest,
    do: FromQuery[str],
    alias: FromQuery[str | None] = None,
    version: FromQuery[str | None] = None,
    share: FromQuery[str] = "10",
) -> Response[str]:
    """What would happen."""
    caller_of(request).require(Scope.ADMIN, "moving a version")
    name = alias or parse_name(version or "")[0]
    one = await get_alias(shown.project, name)
    deed = Deed(_known(do), version or "", _percent(share))
    left, comes = await _ends(shown, one, deed)
    return render(request, "move.html", alias=one, deed=deed, left=left, comes=comes)


async def _ends(shown: ForPages, alias: AliasView, deed: Deed) -> tuple[VersionLine | None, VersionLine | None]:
    """The version that is left, and the one that comes into its place. Raises Conflict, NotFound."""
    store = shown.project.store
    left, comes = alias.live_version_id, alias.previous_version_id
    if deed.kind != "rollback":
        comes = (await by_name(shown.hone.project, deed.version)).id
    elif alias.canary_version_id is not None:
        left, comes = alias.canary_version_id, alias.live_version_id
    elif comes is None:
        raise Conflict(f"alias {alias.name!r} has no earlier version to go back to")
    ends = [await line_at(store, alias, await get_version(store, id_)) if id_ else None for id_ in (left, comes)]
    return ends[0], ends[1]


@post("/versions/move", include_in_schema=False)
async def move(shown: ForPages, request: AnyRequest) -> Response[None]:
    """Do it, as the page before said."""
    told = await forms.fields(request)
    alias = await get_alias(shown.hone.project, forms.text(told, "alias"))
    if forms.text(told, "generation") != str(alias.generation):
        raise Conflict(f"{alias.name} moved since you were asked: open its page, look again, and decide anew")
    deed = Deed(_known(forms.text(told, "do")), forms.text(told, "version"), _percent(forms.text(told, "share") or "0"))
    await _do(shown, alias, deed, steering.who(caller_of(request)), forms.text(told, "why")[:MAX_WHY_CHARS] or None)
    return forms.back_to(f"/hone/versions?alias={quote(alias.name)}")


async def _do(shown: ForPages, alias: AliasView, deed: Deed, who: str, why: str | None) -> None:
    match deed.kind:
        case "promote":
            await steering.promote(shown.hone.project, deed.version, who=who, why=why)
        case "canary":
            await steering.share(shown.hone.project, deed.version, deed.share / 100, who=who, why=why)
        case _:
            await steering.roll_back(shown.hone.project, alias.name, who=who, why=why)
    await shown.hone.versions.refresh()


def _known(do: str) -> str:
    if do not in DEEDS:
        raise BadRequest(f"what is to be done is {do[:100]!r}: one of {', '.join(DEEDS)}.", param="do")
    return do


def _percent(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 100:
        raise BadRequest(f"the share is {text[:100]!r}: say how many percent, 0 to 100.", param="share")
    return share

"""The page of an alias's versions, the page of one version, and the actions promote, canary and roll back.

An action is confirmed on a page that shows both versions with their measures and the evidence about each. It is refused
if the alias changed in between. Refuses: the views (`recorder.views.versions`), the actions themselves
(`proxy.api.actions`), and which of them a version allows (`recorder.registry`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery

from proxy.api import actions
from proxy.api.route_parts import AnyRequest, caller_of
from proxy.dashboard import forms
from proxy.dashboard.page_budget import fit_trajectory_pairs
from proxy.dashboard.renderer import ForPages, render_page
from proxy.errors import BadRequest
from recorder.errors import Conflict, NotFound
from recorder.registry.aliases import AliasView, get_alias, get_aliases
from recorder.registry.keys import Scope
from recorder.registry.versions import get_version, get_version_by_name, list_versions, parse_name
from recorder.views.charts.versions import VERSIONS, ancestry_chart
from recorder.views.comparison.trajectory_pair import load_pairs
from recorder.views.versions.ancestry import AncestryVersion, list_ancestry, load_ancestry_version
from recorder.views.versions.detail import load_evidence, version_detail
from recorder.views.versions.evidence import list_decisions
from recorder.views.versions.held_out import HeldOutComparison, HeldOutSource, HeldOutTask, describe_held_out

MAX_DECISIONS: Final = 20  # on the page of versions


@get("/versions", include_in_schema=False)
async def versions_page(
    context: ForPages,
    request: AnyRequest,
    alias: FromQuery[str | None] = None,
    before: FromQuery[int | None] = None,
) -> Response[str]:
    """The ancestry of an alias, by default of the first one."""
    aliases = await get_aliases(context.project)
    chosen = await get_alias(context.project, alias) if alias else next(iter(aliases), None)
    lines = await _lines(context, chosen, before)
    return render_page(
        request,
        "versions.html",
        aliases=aliases,
        alias=chosen,
        lines=lines,
        before=before,
        older=lines[-1].number if len(lines) == VERSIONS and lines[-1].number > 0 else None,
        chart=ancestry_chart(lines),
        moves=await list_decisions(context.project, alias=chosen.name, limit=MAX_DECISIONS) if chosen else [],
    )


async def _lines(context: ForPages, alias: AliasView | None, before: int | None) -> list[AncestryVersion]:
    return await list_ancestry(context.project.store, alias, before=before, limit=VERSIONS) if alias is not None else []


@get("/versions/{name:path}", include_in_schema=False)
async def version_page(
    context: ForPages,
    request: AnyRequest,
    name: FromPath[Path],
    compare: FromQuery[str | None] = None,
    task: FromQuery[str | None] = None,
    pair: FromQuery[str | None] = None,
) -> Response[str]:
    """One version. `compare`: the version that its tasks are compared with; `task`: the task to show the answers of;
    `pair`: the held-out task to show both transcripts of, by default the clearest win and the clearest loss."""
    store = context.project.store
    detail = await version_detail(context.project, str(name).lstrip("/"), compare or None, task)
    alias = await get_alias(context.project, detail.version.alias_name)
    newest = (await list_versions(store, alias.id))[:VERSIONS]
    opened = opened_tasks(detail.held_out, pair or None)
    loaded = await load_pairs(store, [(one.trajectory_before, one.trajectory_after) for _, one in opened])
    pairs = [
        (about, one, its_pair) for (about, one), its_pair in zip(opened, loaded, strict=True) if its_pair is not None
    ]
    return render_page(
        request,
        "version.html",
        detail=detail,
        version=detail.version,
        alias=alias,
        others=[one.name for one in newest if one.id != detail.version.id],
        describe=describe_held_out,
        pairs=pairs,
        fits=fit_trajectory_pairs([its_pair for _, _, its_pair in pairs]),
    )


def opened_tasks(held_out: Sequence[HeldOutComparison], key: str | None) -> list[tuple[HeldOutSource, HeldOutTask]]:
    """Return the held-out task with that key; without a key, the clearest win and the clearest loss of one source.

    Raises NotFound.
    """
    if key is None:
        first = next((one for one in held_out if one.shown), None)
        return [(first.about, task) for task in (*first.won[:1], *first.lost[:1])] if first is not None else []
    for one in held_out:
        for task in one.shown:
            if task.key == key:
                return [(one.about, task)]
    raise NotFound(f"no held-out task {key[:200]!r} was won or lost: open the version's page for those that were")


ACTIONS: Final = ("promote", "rollback", "canary")
MAX_WHY_CHARS: Final = 2000


@dataclass(frozen=True, slots=True)
class AliasAction:
    """A requested action: `kind` is one of `ACTIONS`, `version` the new version, `share` percent for a canary."""

    kind: str
    version: str
    share: float


@get("/versions/move", include_in_schema=False)
async def alias_action_page(
    context: ForPages,
    request: AnyRequest,
    do: FromQuery[str],
    alias: FromQuery[str | None] = None,
    version: FromQuery[str | None] = None,
    share: FromQuery[str] = "10",
) -> Response[str]:
    """The confirmation page of an action. Raises BadRequest, Conflict, NotFound."""
    caller_of(request).require(Scope.ADMIN, "moving a version")
    name = alias or parse_name(version or "")[0]
    one = await get_alias(context.project, name)
    action = AliasAction(_known(do), version or "", _percent(share))
    left, comes = await _ends(context, one, action)
    evidence = {end.id: await load_evidence(context.project, end) for end in (left, comes) if end is not None}
    return render_page(
        request, "alias_action.html", alias=one, action=action, left=left, comes=comes, evidence=evidence
    )


async def _ends(
    context: ForPages, alias: AliasView, action: AliasAction
) -> tuple[AncestryVersion | None, AncestryVersion | None]:
    """The version that is replaced, and its replacement. Raises Conflict, NotFound."""
    store = context.project.store
    left, comes = alias.live_version_id, alias.previous_version_id
    if action.kind != "rollback":
        comes = (await get_version_by_name(context.hone.project, action.version)).id
    elif alias.canary_version_id is not None:
        left, comes = alias.canary_version_id, alias.live_version_id
    elif comes is None:
        raise Conflict(f"alias {alias.name!r} has no earlier version to roll back to")
    ends = [
        await load_ancestry_version(store, alias, await get_version(store, id_)) if id_ else None
        for id_ in (left, comes)
    ]
    return ends[0], ends[1]


@post("/versions/move", include_in_schema=False)
async def apply_alias_action(context: ForPages, request: AnyRequest) -> Response[None]:
    """Apply the confirmed action. Raises Conflict if the alias changed since the page was opened."""
    form = await forms.read_fields(request)
    alias = await get_alias(context.hone.project, forms.field_text(form, "alias"))
    if forms.field_text(form, "generation") != str(alias.generation):
        raise Conflict(f"alias {alias.name!r} changed since this page was opened: open its page again and decide there")
    action = AliasAction(
        _known(forms.field_text(form, "do")),
        forms.field_text(form, "version"),
        _percent(forms.field_text(form, "share") or "0"),
    )
    await _do(
        context,
        alias,
        action,
        actions.caller_id(caller_of(request)),
        forms.field_text(form, "why")[:MAX_WHY_CHARS] or None,
    )
    return forms.back_to(f"/hone/versions?alias={quote(alias.name)}")


async def _do(context: ForPages, alias: AliasView, action: AliasAction, who: str, why: str | None) -> None:
    match action.kind:
        case "promote":
            await actions.promote_version(context.hone.project, action.version, who=who, why=why)
        case "canary":
            await actions.set_share(context.hone.project, action.version, action.share / 100, who=who, why=why)
        case _:
            await actions.roll_back_alias(context.hone.project, alias.name, who=who, why=why)
    await context.hone.versions.refresh()


def _known(do: str) -> str:
    if do not in ACTIONS:
        raise BadRequest(f"there is no action {do[:100]!r}: use one of {', '.join(ACTIONS)}.", param="do")
    return do


def _percent(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 100:
        raise BadRequest(f"the share {text[:100]!r} is not a percentage from 0 to 100.", param="share")
    return share

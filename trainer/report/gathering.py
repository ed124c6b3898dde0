"""A report, gathered from what a campaign wrote down and what the store knows of it.

Owns: bringing these together in one shape. Refuses: looks (`text`, `page`), and every decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from recorder import reasons
from recorder.errors import NotFound
from recorder.learned.campaign_events import StepDone
from recorder.learned.campaign_history import CampaignHistory, read_history
from recorder.registry import versions, writes
from recorder.registry.aliases import AliasView, get_aliases
from recorder.registry.versions import VersionView
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.work import campaigns
from recorder.work.campaigns import CampaignView
from recorder.work.spending import judged_for
from trainer.report import conversations, measured
from trainer.report.shapes import LeftOut, Pair, Point, Report, Withheld
from trainer.report.standing import stands


async def find(project: Project, name: str | None) -> CampaignView:
    """A campaign by its name (the newest of that name) or id; without one the newest. Raises NotFound."""
    listed = await campaigns.list_campaigns(project)
    found = next((one for one in listed if name is None or name in (one.name, one.id)), None)
    if found is None:
        known = ", ".join(dict.fromkeys(one.name for one in listed)) or "none: `hone train` runs one"
        raise NotFound(f"no campaign {name[:200]!r}; there is {known}" if name else f"no campaign yet; {known}")
    return found


async def gather(store: Store, campaign: CampaignView) -> Report:
    """All that is told of a campaign."""
    said, settings = await read_history(store, campaign), campaign.settings
    alias = await _alias(store, campaign)
    held = any(one.id == campaign.id for one in await campaigns.running_on(store, alias.id))
    kind = said.measure
    seen = [measured.point(one, kind) for one in said.validations]
    chosen = measured.best(said.validations, kind)
    best = measured.point(chosen, kind) if chosen is not None else None
    ended = said.ended[-1] if said.ended and campaign.ended_at is not None else None
    first = _first(said)
    pairs, notes = await _pairs(store, campaign, first, best)
    async with store.read() as conn:
        made_at = await sql.clock(conn)
    live = await versions.get_version(store, alias.live_version_id) if alias.live_version_id is not None else None
    return Report(
        id=campaign.id,
        name=campaign.name,
        alias=alias.name,
        state=campaign.state,
        made_at=made_at,
        began_at=campaign.started_at,
        ended_at=campaign.ended_at,
        stands=stands(campaign, ended, said.alarms, held=held),
        steps_done=len(said.steps),
        most_steps=settings.get("steps"),
        failed_steps=sum(step.failed for step in said.steps),
        kind=kind,
        target=settings.get("target"),
        beat=_beat(settings.get("beat")),
        own=[measured.point(step, kind) for step in said.steps],
        validations=seen,
        baselines=[measured.point(one, kind) for one in said.baselines],
        tests=[measured.point(one, kind) for one in said.tests],
        first=first,
        before=seen[0] if seen else None,
        best=best,
        served=ended.version if ended is not None else None,
        live=live.name if live is not None else None,
        goals=measured.goals(settings.get("goals") or (), best),
        alarms=await conversations.alarmed(store, said.alarms),
        changes=said.changes,
        judged=await judged_for(store, campaign),
        attempts=sum(step.attempts for step in said.steps),
        errored=sum(step.errored for step in said.steps),
        trained=sum(step.trained for step in said.steps),
        left_out=left_out(said.steps),
        withheld=Withheld(await writes.left_out(store, campaign.id), await writes.refused(store, campaign.id)),
        seconds=seconds(said.steps),
        health=measured.health(said.steps),
        steps=said.steps,
        pairs=pairs,
        notes=notes,
    )


async def _alias(store: Store, campaign: CampaignView) -> AliasView:
    return next(one for one in await get_aliases(Project(store, campaign.project_id)) if one.id == campaign.alias_id)


def _first(said: CampaignHistory) -> str | None:
    """The version that a campaign began with."""
    if said.validations and said.validations[0].step == 0:
        return said.validations[0].version
    return said.steps[0].sampled_by if said.steps else None


def _beat(wanted: Mapping[str, Any] | None) -> str | None:
    if not wanted:
        return None
    margin = wanted.get("margin") or 0.0
    return f"{wanted.get('baseline')}" + (f" by {margin:g}" if margin else "")


async def _pairs(
    store: Store, campaign: CampaignView, first: str | None, best: Point | None
) -> tuple[list[Pair], list[str]]:
    """Conversations before and after, or why there are none."""
    if first is None:
        return [], ["no conversations before and after: nothing was attempted yet"]
    if best is None:
        return [], ["no conversations before and after: no validation says which version is the best"]
    if best.version == first:
        return [], [f"no conversations before and after: no version measured better than {first}, the first"]
    old, new = [await _version(store, campaign, name) for name in (first, best.version)]
    if old is None or new is None:
        return [], [f"no conversations before and after: {first} or {best.version} is not in the store any more"]
    found = await conversations.pairs(store, campaign, old, new)
    return found, [] if found else [f"no scenario of which runs by both {first} and {best.version} are on record"]


async def _version(store: Store, campaign: CampaignView, name: str) -> VersionView | None:
    try:
        return await versions.by_name(Project(store, campaign.project_id), name)
    except NotFound:
        return None


def left_out(steps: Sequence[StepDone]) -> list[LeftOut]:
    """Runs that steps left out, by reason, most first."""
    counted: Counter[str] = Counter()
    for step in steps:
        counted.update(step.left_out)
    return [LeftOut(code, runs, reasons.meaning(code) or "") for code, runs in counted.most_common() if runs]


def seconds(steps: Sequence[StepDone]) -> dict[str, float]:
    """What all steps took, by phase."""
    total: Counter[str] = Counter()
    for step in steps:
        total.update(step.seconds)
    return dict(total)

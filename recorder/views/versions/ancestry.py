"""The line of descent of an alias: each version with what it was trained on, what it was measured at, and what was
decided about it.

Owns: these views. Refuses: deciding (`recorder.registry`), and drawing them.

A version's measure is, of what there is: a campaign's validation, its gate's held-out scenarios, or the rewards of
those of its own runs that a later step read. Each comes with the number of attempts behind it, and a 95 % interval.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.judging.scores import REWARD
from recorder.registry import ancestry, moves
from recorder.registry.aliases import AliasView
from recorder.registry.moves import VersionMove
from recorder.registry.versions import VersionView, list_versions
from recorder.states import StepState
from recorder.stats import means
from recorder.store.database import Project, Store
from recorder.store.schema import campaigns, ledger, score_parts, step_groups, step_trajectories, steps
from recorder.views.campaigns.events import VALIDATION, Validation, decode_event
from recorder.views.campaigns.measures import Measure, compute_measure, infer_measure

_GATES: Final = ("gated", "rejected")  # moves that a gate makes
_DECISIONS: Final = 20  # newest moves a version that are read


@dataclass(frozen=True, slots=True)
class TrainingSource:
    """What a version was trained on: the step that made it, with how many groups and runs."""

    step_id: str
    step: int
    campaign_id: str | None
    groups: int
    trajectories: int
    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AncestryVersion(VersionView):
    """A version where it stands in its line.

    `in_line`: it is live, or an ancestor of what is. `role`: what its alias points at it for. `share`: of new groups,
    where it has one. `decided`: the newest decision about it; `checked`: its gate's.
    """

    parent: str | None
    in_line: bool
    role: Literal["live", "canary", "previous"] | None
    share: float | None
    measure: Measure | None
    trained: TrainingSource | None
    decided: VersionMove | None
    checked: VersionMove | None


async def list_ancestry(
    store: Store, alias: AliasView, *, before: int | None = None, limit: int | None = None
) -> list[AncestryVersion]:
    """The versions of an alias, newest first: at most `limit`, of numbers below `before`."""
    everyone = await list_versions(store, alias.id)
    shown = [v for v in everyone if before is None or v.number < before][:limit]
    return await _lines(store, alias, shown, {v.id: v.name for v in everyone})


async def load_ancestry_version(store: Store, alias: AliasView, version: VersionView) -> AncestryVersion:
    """One version of it."""
    names = {v.id: v.name for v in await list_versions(store, alias.id)}
    return (await _lines(store, alias, [version], names))[0]


async def _lines(
    store: Store, alias: AliasView, shown: Sequence[VersionView], names: Mapping[str, str]
) -> list[AncestryVersion]:
    ids = [v.id for v in shown]
    decided = await moves.list_moves(
        Project(store, alias.project_id), version_ids=ids, limit=_DECISIONS * len(ids) or 1
    )
    async with store.read() as conn:
        trained = await _trained(conn, ids)
        own, line = await _own(conn, alias, ids), await _line(conn, alias)
        validated = await _validated(conn, alias)
    return [
        AncestryVersion(
            **{name: getattr(v, name) for name in VersionView.__slots__},
            parent=names.get(v.parent_id or ""),
            in_line=v.id in line,
            role=_role(alias, v),
            share=_share(alias, v),
            measure=validated.get(v.name) or _by_gate(decided, v) or own.get(v.id),
            trained=trained.get(v.id),
            decided=next((move for move in decided if move.version_id == v.id), None),
            checked=_checked(decided, v),
        )
        for v in shown
    ]


def _role(alias: AliasView, version: VersionView) -> Literal["live", "canary", "previous"] | None:
    if version.id == alias.live_version_id:
        return "live"
    if version.id == alias.canary_version_id:
        return "canary"
    return "previous" if version.id == alias.previous_version_id else None


def _share(alias: AliasView, version: VersionView) -> float | None:
    """What of new groups goes to a version that is not live: a canary's, or what is held back after a promotion."""
    if version.id == alias.canary_version_id:
        return alias.canary_share
    held = alias.watched_until is not None and version.id == alias.previous_version_id
    return alias.holdback_share if held else None


async def _line(conn: AsyncConnection, alias: AliasView) -> set[str]:
    live = alias.live_version_id
    return {row.id for row in await conn.execute(ancestry.ancestry_ages(live))} if live is not None else set()


# --- what a version was measured at


def _checked(decided: Sequence[VersionMove], version: VersionView) -> VersionMove | None:
    return next((m for m in decided if m.version_id == version.id and m.move in _GATES and m.figures), None)


def _by_gate(decided: Sequence[VersionMove], version: VersionView) -> Measure | None:
    """By the held-out scenarios of its gate, where there were any."""
    checked = _checked(decided, version)
    success = checked.figures.get("success") if checked is not None else None
    if checked is None or success is None:
        return None
    pairs = int(checked.figures.get("pairs", 0))
    return Measure("success", success, pairs, means.share_interval(success, pairs), "gate")


async def _validated(conn: AsyncConnection, alias: AliasView) -> dict[str, Measure]:
    """The newest validation of each version, by name."""
    own = select(campaigns.c.id).where(campaigns.c.alias_id == alias.id)
    query = select(ledger.c.detail).where(
        ledger.c.object_kind == "campaign", ledger.c.object_id.in_(own), ledger.c.code == VALIDATION
    )
    rows = (await conn.execute(query.order_by(ledger.c.id))).scalars()
    newest = {one.version: one for said in rows if isinstance(one := decode_event(VALIDATION, said or {}), Validation)}
    found = {name: compute_measure(one, infer_measure([one])) for name, one in newest.items()}
    return {name: measure for name, measure in found.items() if measure is not None}


async def _own(conn: AsyncConnection, alias: AliasView, ids: Collection[str]) -> dict[str, Measure]:
    """By the rewards that the next step read: most of its runs were sampled by the version that it began from."""
    counted = (score_parts.c.part == REWARD, score_parts.c.value.is_not(None), ~score_parts.c.unasked)
    runs = (
        select(
            step_groups.c.step_id,
            func.count().label("runs"),
            func.min(score_parts.c.value).label("least"),
            func.max(score_parts.c.value).label("most"),
        )
        .join(score_parts, score_parts.c.score_id == step_groups.c.score_id)
        .join(steps, steps.c.id == step_groups.c.step_id)
        .where(steps.c.alias_id == alias.id, steps.c.parent_version_id.in_(ids), steps.c.state == StepState.DONE)
        .where(*counted)
        .group_by(step_groups.c.step_id)
        .subquery()
    )
    query = select(steps.c.parent_version_id, steps.c.metrics, runs.c.runs, runs.c.least, runs.c.most).join(
        runs, runs.c.step_id == steps.c.id
    )
    rows = (await conn.execute(query.order_by(steps.c.number))).all()
    # One recipe judges them all: what any reward shows that it may be, every one may be.
    least, most = min((row.least for row in rows), default=0.0), max((row.most for row in rows), default=0.0)
    found = {}
    for parent, metrics, number, *_ in rows:
        if (mean := metrics.get("reward_mean")) is not None:
            sure = means.reward_interval(mean, metrics.get("reward_std", 0.0), number, least, most)
            found[str(parent)] = Measure("reward", mean, int(number), sure, "own runs")
    return found


# --- what it was trained on


async def _trained(conn: AsyncConnection, ids: Collection[str]) -> dict[str, TrainingSource]:
    made = (steps.c.version_id.in_(ids), steps.c.state == StepState.DONE)
    of_groups = select(func.count()).where(step_groups.c.step_id == steps.c.id).scalar_subquery()
    of_runs = select(func.count()).where(step_trajectories.c.step_id == steps.c.id).scalar_subquery()
    columns = (steps.c.version_id, steps.c.id, steps.c.number, steps.c.campaign_id, of_groups, of_runs, steps.c.metrics)
    return {str(row[0]): TrainingSource(*row[1:]) for row in await conn.execute(select(*columns).where(*made))}

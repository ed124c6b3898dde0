"""The ancestry of an alias: each version with its training data, its measure and the decisions about it.

Owns: these views. Refuses: deciding (`recorder.registry`), and drawing them.

A version's measure is of held-out scenarios: of a campaign's validation, else of its gate. Its reward is the mean over
the trajectories that it sampled (`recorder.views.versions.rewards`). Both have a number and a 95 % interval.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeVar

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.registry import ancestry
from recorder.registry.aliases import AliasView
from recorder.registry.moves import VersionMove
from recorder.registry.versions import VersionView, list_versions
from recorder.states import StepState
from recorder.stats import means
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import campaigns, ledger, step_groups, step_trajectories, steps
from recorder.views.campaigns.events import VALIDATION, Validation, decode_event
from recorder.views.campaigns.measures import Kind, Measure, compute_measure, infer_measure
from recorder.views.versions.evidence import Decision, list_decisions
from recorder.views.versions.rewards import VersionReward, load_rewards

M = TypeVar("M", bound=VersionMove)

_GATES: Final = ("gated", "rejected")  # the moves of a gate
_DECISIONS: Final = 20  # the newest moves of a version that are read


@dataclass(frozen=True, slots=True)
class TrainingSource:
    """The step that made a version, with its numbers of groups and trajectories and its metrics."""

    step_id: str
    step: int
    campaign_id: str | None
    groups: int
    trajectories: int
    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class AncestryVersion(VersionView):
    """A version with its place in the ancestry.

    `in_line`: it is live, or an ancestor of the live version. `role`: how its alias uses it. `share`: its share of new
    groups, if it is the canary or the version held back. `decided`: the newest decision about it; `checked`: its
    gate's decision. `measure`: of held-out scenarios; `reward`: of the trajectories that it sampled.
    """

    parent: str | None
    in_line: bool
    role: Literal["live", "canary", "previous"] | None
    share: float | None
    measure: Measure | None
    reward: VersionReward | None
    trained: TrainingSource | None
    decided: Decision | None
    checked: Decision | None


async def list_ancestry(
    store: Store, alias: AliasView, *, before: int | None = None, limit: int | None = None
) -> list[AncestryVersion]:
    """Return the versions of an alias with numbers below `before`, newest first, at most `limit`."""
    all_versions = await list_versions(store, alias.id)
    shown = [v for v in all_versions if before is None or v.number < before][:limit]
    return await _ancestry_versions(store, alias, shown, {v.id: v.name for v in all_versions})


async def load_ancestry_version(store: Store, alias: AliasView, version: VersionView) -> AncestryVersion:
    """Return one version of an alias with its place in the ancestry."""
    names = {v.id: v.name for v in await list_versions(store, alias.id)}
    return (await _ancestry_versions(store, alias, [version], names))[0]


async def _ancestry_versions(
    store: Store, alias: AliasView, shown: Sequence[VersionView], names: Mapping[str, str]
) -> list[AncestryVersion]:
    ids = [v.id for v in shown]
    project = Project(store, alias.project_id)
    decided = await list_decisions(project, version_ids=ids, limit=_DECISIONS * len(ids) or 1)
    async with store.read() as conn:
        trained = await _training_sources(conn, ids)
        rewards, live_line = await load_rewards(conn, ids), await _live_ancestry(conn, alias)
        validated = await load_validation_measures(conn, alias.id)
    return [
        AncestryVersion(
            **{name: getattr(v, name) for name in VersionView.__slots__},
            parent=names.get(v.parent_id or ""),
            in_line=v.id in live_line,
            role=_role(alias, v),
            share=_share(alias, v),
            measure=validated.get(v.name) or measure_gate_success(find_gate_decision(decided, v.id)),
            reward=rewards.get(v.id),
            trained=trained.get(v.id),
            decided=next((move for move in decided if move.version_id == v.id), None),
            checked=find_gate_decision(decided, v.id),
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
    """Return the share of new groups for a version that is not live: the canary's, or the holdback's."""
    if version.id == alias.canary_version_id:
        return alias.canary_share
    is_watched = alias.watched_until is not None and version.id == alias.previous_version_id
    return alias.holdback_share if is_watched else None


async def _live_ancestry(conn: AsyncConnection, alias: AliasView) -> set[str]:
    live = alias.live_version_id
    return {row.id for row in await conn.execute(ancestry.ancestry_ages(live))} if live is not None else set()


# --- the measure of a version


def find_gate_decision(decided: Sequence[M], version_id: str) -> M | None:
    """Return the decision of a version's gate, with its figures. `decided`: newest first."""
    return next((m for m in decided if m.version_id == version_id and m.move in _GATES and m.figures), None)


def measure_gate_success(checked: VersionMove | None) -> Measure | None:
    """Return the success rate at the held-out scenarios of a gate, if it had any."""
    return _measure_pairs(checked, "success", "success")


def measure_gate_wins(checked: VersionMove | None) -> Measure | None:
    """Return the share of a gate's pairs that the version won against the live version, if it compared any."""
    return _measure_pairs(checked, "win_rate", "win rate")


def _measure_pairs(checked: VersionMove | None, figure: str, kind: Kind) -> Measure | None:
    share = checked.figures.get(figure) if checked is not None else None
    if checked is None or share is None:
        return None
    pairs = int(checked.figures.get("pairs", 0))
    return Measure(kind, share, pairs, means.share_interval(share, pairs), "gate")


async def load_validation_measures(
    conn: AsyncConnection, alias_id: str, newest: int | None = None
) -> dict[str, Measure]:
    """Return the newest validation of each version, by name. `newest`: of the newest so many validations only."""
    own = select(campaigns.c.id).where(campaigns.c.alias_id == alias_id)
    query = select(ledger.c.detail).where(
        ledger.c.object_kind == "campaign", ledger.c.object_id.in_(own), ledger.c.code == VALIDATION
    )
    rows = (await conn.execute(query.order_by(sql.without_index(ledger.c.id).desc()).limit(newest))).scalars().all()
    by_version = {
        one.version: one
        for event in reversed(rows)
        if isinstance(one := decode_event(VALIDATION, event or {}), Validation)
    }
    found = {name: compute_measure(one, infer_measure([one])) for name, one in by_version.items()}
    return {name: measure for name, measure in found.items() if measure is not None}


# --- the training data of a version


async def _training_sources(conn: AsyncConnection, ids: Collection[str]) -> dict[str, TrainingSource]:
    made = (steps.c.version_id.in_(ids), steps.c.state == StepState.DONE)
    group_count = select(func.count()).where(step_groups.c.step_id == steps.c.id).scalar_subquery()
    trajectory_count = select(func.count()).where(step_trajectories.c.step_id == steps.c.id).scalar_subquery()
    columns = (
        steps.c.version_id,
        steps.c.id,
        steps.c.number,
        steps.c.campaign_id,
        group_count,
        trajectory_count,
        steps.c.metrics,
    )
    return {str(row[0]): TrainingSource(*row[1:]) for row in await conn.execute(select(*columns).where(*made))}

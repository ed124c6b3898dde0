"""Training steps, newest first, which trajectories of its groups a step trained on, and training outcomes over time.

Owns: these views, which of the trainer's figures have a field of their own, and the counts of trained and excluded
trajectories, by the ledger's codes. Refuses: claiming and recording steps (`recorder.queue.training.steps`), what the
codes mean (`recorder.reasons`), and totals since the beginning (`recorder.views.status.figures`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, Select, and_, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import first_id_at
from recorder.states import StepState, TrajectoryState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.ledger import TRAINED, UNTRAINED
from recorder.store.schema import (
    aliases,
    campaigns,
    ledger,
    step_groups,
    step_trajectories,
    steps,
    trajectories,
    versions,
)
from recorder.views.campaigns.history import read_measures, read_steps
from recorder.views.campaigns.measures import Measure, compute_measure, infer_measure

_LEDGER_ROWS: Final = 400  # rows of the ledger that are read
_LONGEST_S: Final = 86400.0  # of a step: bounds what is read to count those that ended lately
_SECONDS: Final = "seconds."  # the prefix of a phase's name in a step's metrics
_DRIFT: Final = "drift."  # that of a figure on the drift set


@dataclass(frozen=True, slots=True)
class StepSummary:
    """One step. `version`: the version it made, if any; `parent`: the version it started from. Times are unix seconds.

    `kl` is the divergence between engine and trainer over tokens of the parent; `seconds` is by phase of the trainer;
    `drift` has the figures on the alias's drift set, if it has one (docs/drift.md).
    `metrics` has all of the trainer's figures (docs/training.md). `measure` is the campaign's measure of the attempts
    that were made for this step, None until the campaign has recorded it.
    """

    id: str
    alias: str
    number: int
    state: StepState
    reason: str | None
    campaign: str | None
    parent: str | None
    version: str | None
    began_at: float
    ended_at: float | None
    groups: int
    trajectories: int
    reward_mean: float | None
    reward_std: float | None
    kl: float | None
    entropy: float | None
    clip_fraction: float | None
    tokens_per_s: float | None
    seconds: Mapping[str, float]
    drift: Mapping[str, float]
    metrics: Mapping[str, Any]
    measure: Measure | None = None


async def list_steps(
    project: Project,
    *,
    alias: str | None = None,
    version_id: str | None = None,
    after: str | None = None,
    limit: int = 50,
) -> list[StepSummary]:
    """Return steps, newest first, optionally only of one alias or of the step that made a version.

    `after` is the id of the last step of the previous page; ids sort by time.
    """
    query = _query().where(steps.c.project_id == project.id).order_by(steps.c.id.desc()).limit(limit)
    conditions: list[ColumnElement[bool]] = []
    if alias is not None:
        conditions.append(aliases.c.name == alias)
    if version_id is not None:
        conditions.append(and_(steps.c.version_id == version_id, steps.c.state == StepState.DONE))
    if after is not None:
        conditions.append(steps.c.id < after)
    async with project.store.read() as conn:
        rows = list(await conn.execute(query.where(*conditions)))
        measures = await _measures(conn, rows)
    return [_line(row, measures.get(row.id)) for row in rows]


async def count_done_steps(project: Project, since: float) -> dict[str, int]:
    """Count the steps that ended with a version since a time (unix seconds), by alias, those of campaigns included.

    Steps that took longer than a day are missed.
    """
    query = (
        select(aliases.c.name, func.count())
        .join(aliases, aliases.c.id == steps.c.alias_id)
        .where(steps.c.id >= first_id_at("step", since - _LONGEST_S), steps.c.state == StepState.DONE)
        .where(steps.c.ended_at >= since, sql.without_index(steps.c.project_id) == project.id)
        .group_by(aliases.c.name)
        .order_by(aliases.c.name)
    )
    async with project.store.read() as conn:
        return {str(name): int(number) for name, number in await conn.execute(query)}


async def _measures(conn: AsyncConnection, rows: Sequence[Any]) -> dict[str, Measure]:
    """Return campaigns' measures by step id.

    A campaign trains one step after the other and records each when it ends: the first record after a step began is
    about that step.
    """
    began = [row for row in rows if row.campaign_id is not None]
    if not began:
        return {}
    ids = {row.campaign_id for row in began}
    written = await read_steps(conn, ids, min(row.started_at for row in began), _LEDGER_ROWS)
    by = await read_measures(conn, ids)
    found = {}
    for row in began:
        event = next((one for at, one in written.get(row.campaign_id, ()) if at >= row.started_at), None)
        if event is not None and (measure := compute_measure(event, by.get(row.campaign_id) or infer_measure([event]))):
            found[row.id] = measure
    return found


def _query() -> Select[Any]:
    parent = versions.alias("parent")
    group_count = select(func.count()).where(step_groups.c.step_id == steps.c.id).scalar_subquery()
    trajectory_count = select(func.count()).where(step_trajectories.c.step_id == steps.c.id).scalar_subquery()
    made = and_(versions.c.id == steps.c.version_id, steps.c.state == StepState.DONE)
    return (
        select(
            steps,
            aliases.c.name.label("alias"),
            campaigns.c.name.label("campaign"),
            versions.c.number.label("made"),
            versions.c.metrics.label("of_version"),
            parent.c.number.label("began_from"),
            group_count.label("groups"),
            trajectory_count.label("runs"),
        )
        .join(aliases, aliases.c.id == steps.c.alias_id)
        .outerjoin(campaigns, campaigns.c.id == steps.c.campaign_id)
        .outerjoin(versions, made)
        .outerjoin(parent, parent.c.id == steps.c.parent_version_id)
    )


def _line(row: Any, measure: Measure | None) -> StepSummary:
    figures = row.metrics
    drift = {**(row.of_version or {}), **figures}  # its gate measured what it scores (`recorder.registry.drift_scores`)
    return StepSummary(
        id=row.id,
        alias=row.alias,
        number=row.number,
        state=StepState(row.state),
        reason=row.reason,
        campaign=row.campaign,
        parent=_name(row.alias, row.began_from),
        version=_name(row.alias, row.made),
        began_at=row.started_at,
        ended_at=row.ended_at,
        groups=row.groups,
        trajectories=row.runs,
        reward_mean=figures.get("reward_mean"),
        reward_std=figures.get("reward_std"),
        kl=figures.get("kl_engine"),
        entropy=figures.get("entropy"),
        clip_fraction=figures.get("clip_fraction"),
        tokens_per_s=figures.get("tokens_per_s"),
        seconds={name.removeprefix(_SECONDS): figures[name] for name in figures if name.startswith(_SECONDS)},
        drift={name.removeprefix(_DRIFT): drift[name] for name in drift if name.startswith(_DRIFT)},
        metrics=figures,
        measure=measure,
    )


def _name(alias: str, number: int | None) -> str | None:
    return None if number is None else f"{alias}@{number}"


@dataclass(frozen=True, slots=True)
class StepTrajectories:
    """The number of trajectories that a step trained on, and the number of the others by reason."""

    trained: int
    excluded: dict[str, int]


async def load_step_trajectories(store: Store, step_id: str | None, group_ids: Collection[str]) -> StepTrajectories:
    """Count the trajectories of these groups, trained on by the step or not; without a step, all count as excluded.

    A trajectory that did not complete is counted under its state, any other under its newest reason in the ledger.
    """
    newer, t = ledger.alias("said"), trajectories.c
    newest = (
        select(func.max(newer.c.id))
        .where(
            newer.c.object_kind == "trajectory", newer.c.object_id == t.id, newer.c.code.not_in((TRAINED, UNTRAINED))
        )
        .correlate(trajectories)
        .scalar_subquery()
    )
    own = select(step_trajectories.c.trajectory_id).where(step_trajectories.c.step_id == step_id)
    query = (
        select(t.id.in_(own).label("trained"), t.state, ledger.c.code)
        .select_from(trajectories)
        .outerjoin(ledger, ledger.c.id == newest)
        .where(t.group_id.in_(group_ids))
    )
    async with store.read() as conn:
        rows = (await conn.execute(query)).all()
    others = Counter(_why(row.state, row.code) for row in rows if not row.trained)
    return StepTrajectories(sum(row.trained for row in rows), dict(sorted(others.items())))


def _why(state: str, code: str | None) -> str:
    return code if state == TrajectoryState.COMPLETED and code is not None else state


ROWS: Final = 10_000  # the newest rows of the ledger that are read
_SPANS_S: Final = (60.0, 600.0, 3600.0, 6 * 3600.0, 86400.0, 7 * 86400.0, 28 * 86400.0)
_MOST: Final = 24  # spans in the result


@dataclass(frozen=True, slots=True)
class OutcomeCounts:
    """Numbers of trajectories by ledger code, in a span of time that begins at `since` (unix seconds)."""

    since: float
    span_s: float
    trajectories: dict[str, int]


async def training_outcomes(project: Project) -> list[OutcomeCounts]:
    """Count the ledger's newest rows by span, oldest first. All spans have one length; some may be empty."""
    newest = (
        select(ledger.c.object_kind, ledger.c.code, ledger.c.at)
        .where(sql.without_index(ledger.c.project_id) == project.id)
        .order_by(ledger.c.id.desc())
        .limit(ROWS)
        .subquery()
    )
    minute = cast(newest.c.at / _SPANS_S[0], Integer)
    query = select(minute, newest.c.code, func.count()).where(newest.c.object_kind == "trajectory")
    async with project.store.read() as conn:
        rows = [
            (int(at), str(code), int(n)) for at, code, n in await conn.execute(query.group_by(minute, newest.c.code))
        ]
    return outcome_spans([(at * _SPANS_S[0], code, n) for at, code, n in rows])


def outcome_spans(rows: Sequence[tuple[float, str, int]]) -> list[OutcomeCounts]:
    """Sum counts (unix seconds, code, number) by span, with the shortest span of which at most 24 are needed."""
    if not rows:
        return []
    first, last = min(at for at, _, _ in rows), max(at for at, _, _ in rows)
    span_s = next((s for s in _SPANS_S if last // s - first // s < _MOST), _SPANS_S[-1])
    counts: dict[int, Counter[str]] = {}
    for at, code, number in rows:
        counts.setdefault(int(at // span_s), Counter())[code] += number
    newest = int(last // span_s)
    oldest = max(int(first // span_s), newest - _MOST + 1)
    return [OutcomeCounts(n * span_s, span_s, dict(counts.get(n, Counter()))) for n in range(oldest, newest + 1)]

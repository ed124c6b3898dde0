"""What versions' answers to the drift set of their alias are worth: a value for each member, and their mean.

Owns: these rows, and the names of the metrics. Refuses: asking and judging (`proxy.gate.drift_answers`), and who is in
the set (`recorder.queue.training.drift_set`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Literal

from sqlalchemy import select, update

from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import drift_scores, versions

DriftScoreKind = Literal["reward", "win"]

SCORE: Final = "drift.score"  # the metrics of a version: the mean over the members, …
SCORED: Final = "drift.scored"  # … and their number


@dataclass(frozen=True, slots=True)
class DriftScores:
    """One version's values by member: each the reward of its answer, or 1, 0.5 or 0 for a win over the recorded one."""

    kind: DriftScoreKind
    values: Mapping[str, float]

    @property
    def mean(self) -> float:
        """The mean over the members."""
        return fmean(self.values.values())

    @property
    def metrics(self) -> dict[str, float]:
        """The metrics of the version."""
        return {SCORE: self.mean, SCORED: float(len(self.values))}


async def record_drift_scores(store: Store, version_id: str, scores: DriftScores) -> None:
    """Write a version's values, at least one, instead of those that it has, and its metrics."""
    rows = [
        {"version_id": version_id, "trajectory_id": member, "kind": scores.kind, "value": value}
        for member, value in scores.values.items()
    ]
    async with store.write() as conn:
        for row in rows:
            await conn.execute(sql.upsert(conn, drift_scores, ("version_id", "trajectory_id"), row))
        own = (await conn.execute(select(versions.c.metrics).where(versions.c.id == version_id))).scalar_one()
        measured = {**own, **scores.metrics}
        await conn.execute(update(versions).where(versions.c.id == version_id).values(metrics=measured))


async def load_drift_scores(store: Store, version_ids: Sequence[str], kind: DriftScoreKind) -> dict[str, DriftScores]:
    """Return the values of one kind of those versions that have any, in the order of their ids."""
    query = select(drift_scores).where(drift_scores.c.version_id.in_(version_ids), drift_scores.c.kind == kind)
    values: dict[str, dict[str, float]] = {id_: {} for id_ in version_ids}
    async with store.read() as conn:
        for row in await conn.execute(query.order_by(drift_scores.c.trajectory_id)):
            values[row.version_id][row.trajectory_id] = row.value
    return {id_: DriftScores(kind, own) for id_, own in values.items() if own}

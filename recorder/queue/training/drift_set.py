"""The drift set of an alias: recorded trajectories on which versions are compared, and which are never trained on.

Owns: drawing the set, who is in it, and its ledger code. Refuses: comparing versions on it (`trainer.step.drift`).

The set is drawn at once, from the newest traffic, as soon as `SHARE` tasks wait for each member: so it takes at most a
quarter of what may be trained on. It stays as it is. Only a deletion removes a member, and the next draw replaces it.
Which trajectories are drawn follows from their ids, so it does not matter who draws, nor how well they did. A task
gives one member, because those of one task say the same.

A trajectory that was ever trained on, or whose answers stand in a group of shadow answers, is not drawn.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, exists, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue import leases
from recorder.queue.groups.same_request import shadow_group_id
from recorder.queue.leases import Lease
from recorder.states import CallState, Origin, Purpose, TrajectoryState
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import calls, choices, groups, step_trajectories, steps, trajectories, uses
from recorder.store.sql import now

DRIFT_SET: Final = "drift_set"  # the ledger's code of a member, and why its answers are not trained on
SHARE: Final = 4  # tasks that wait for each member that is drawn
LOOKED_AT: Final = 2000  # of the newest trajectories
_ORIGINS: Final = (Origin.LIVE, Origin.CAMPAIGN)


@dataclass(frozen=True, slots=True)
class DriftCandidate:
    """A trajectory that may be drawn. `task`: its group, or itself."""

    id: str
    task: str


def choose_members(candidates: Collection[DriftCandidate], missing: int, taken: Collection[str] = ()) -> list[str]:
    """Return the ids of the `missing` members, or none if there are too few tasks for so many.

    `taken`: the tasks of the members that there are.
    """
    of_task: dict[str, str] = {}
    for one in sorted(candidates, key=lambda one: sha256(one.id.encode()).digest()):
        if one.task not in taken:
            of_task.setdefault(one.task, one.id)
    return list(of_task.values())[:missing] if len(of_task) >= SHARE * missing else []


async def list_members(store: Store, alias_id: str, fingerprint: str, limit: int) -> list[str]:
    """Return the ids of at most `limit` members whose answers a base with this fingerprint sampled, oldest first."""
    async with store.read() as conn:
        return [one.id for one in await _members(conn, alias_id, fingerprint)][:limit]


async def draw_members(project: Project, alias_id: str, fingerprint: str, size: int, lease: Lease) -> int:
    """Draw the members that a set of `size` lacks, if there is enough traffic. Return how many were drawn.

    `lease`: the trainer's, so that nothing is trained on meanwhile. Raises LeaseLost.
    """
    async with project.store.read() as conn:
        there = await _members(conn, alias_id, fingerprint)
        if len(there) >= size:
            return 0
        found = [_candidate(row) for row in await conn.execute(_candidates(project.id, alias_id, fingerprint))]
    chosen = choose_members(found, size - len(there), [one.task for one in there])
    if not chosen:
        return 0
    async with project.store.write() as conn:
        await leases.require_lease(conn, lease)
        free = [id_ for id_ in chosen if not await _has_shadows(conn, id_)]
        drawn = update(trajectories).where(trajectories.c.id.in_(free), trajectories.c.drift_set_at.is_(None))
        drawn = drawn.values(drift_set_at=now()).returning(trajectories.c.id)
        ids = sorted((await conn.execute(drawn)).scalars())
        await ledger.write_rows(conn, [LedgerRow(project.id, "trajectory", id_, DRIFT_SET) for id_ in ids])
    return len(ids)


async def _members(conn: AsyncConnection, alias_id: str, fingerprint: str) -> Sequence[DriftCandidate]:
    t = trajectories.c
    query = select(t.id, t.group_id).where(t.alias_id == alias_id, t.drift_set_at.is_not(None), _answered(fingerprint))
    return [_candidate(row) for row in await conn.execute(query.order_by(t.id))]


def _candidate(row: Any) -> DriftCandidate:
    return DriftCandidate(row.id, row.group_id or row.id)


def _answered(fingerprint: str) -> ColumnElement[bool]:
    """Whether an answer in the trajectory may be trained on: then its ids are there, and nothing was redacted."""
    of_it = calls.join(choices, choices.c.call_id == calls.c.id)
    whole = (calls.c.state == CallState.COMPLETE, calls.c.base_fingerprint == fingerprint, choices.c.trainable)
    answered = exists().select_from(of_it).where(calls.c.trajectory_id == trajectories.c.id, *whole)
    return answered.correlate(trajectories)


def _candidates(project_id: str, alias_id: str, fingerprint: str) -> Select[Any]:
    t = trajectories.c
    trained = select(step_trajectories.c.trajectory_id).join(steps, steps.c.id == step_trajectories.c.step_id)
    used = exists().where(uses.c.source_id == t.id)
    newest = select(t.id, t.group_id).where(
        t.project_id == project_id,
        t.alias_id == alias_id,
        t.state == TrajectoryState.COMPLETED,
        t.purpose == Purpose.TRAIN,
        t.origin.in_(_ORIGINS),
        t.selection.is_(None),
        t.mixed.is_(False),
        t.drift_set_at.is_(None),
        t.id.not_in(trained.where(steps.c.alias_id == alias_id)),
        ~used,
        _answered(fingerprint),
    )
    return newest.order_by(t.id.desc()).limit(LOOKED_AT)


async def _has_shadows(conn: AsyncConnection, trajectory_id: str) -> bool:
    own = (await conn.execute(select(calls.c.id).where(calls.c.trajectory_id == trajectory_id))).scalars()
    shadows = select(groups.c.id).where(groups.c.id.in_([shadow_group_id(call_id) for call_id in own]))
    return (await conn.execute(shadows.limit(1))).first() is not None

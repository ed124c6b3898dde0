"""Trials: an adapter of a trainer's settings that the proxy loads into every engine once, and unloads.

Owns: the rows, one for each alias from its trainer's start to its end, and whether anything could try one now. Refuses:
files (the trainer), engines (the proxy). A trial is no version: nothing routes to it, and no request can name it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, insert, select, update

from recorder.ids import new_id
from recorder.queue import leases
from recorder.registry import replicas
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import adapter_trials
from recorder.store.sql import now

RECENT_S: Final = 20.0  # engines report every ten seconds


@dataclass(frozen=True, slots=True)
class AdapterTrial:
    """One trial. Times are unix seconds. `path` None: the adapter is not written yet; `refusal` None: not refused."""

    id: str
    project_id: str
    alias_id: str
    engine_name: str | None
    path: str | None
    manifest_sha256: str | None
    refusal: str | None
    created_at: float
    answered_at: float | None


async def begin_trial(project: Project, alias_id: str) -> str:
    """Start an alias's trial in place of an older one, without an adapter. Return its id."""
    trial_id = new_id("trial")
    async with project.store.write() as conn:
        await conn.execute(delete(adapter_trials).where(adapter_trials.c.alias_id == alias_id))
        values = {"id": trial_id, "project_id": project.id, "alias_id": alias_id, "created_at": now()}
        await conn.execute(insert(adapter_trials).values(**values))
    return trial_id


async def offer_trial(store: Store, trial_id: str, *, engine_name: str, path: str, manifest_sha256: str) -> None:
    """Name the written adapter that is to be tried."""
    written = {"engine_name": engine_name, "path": path, "manifest_sha256": manifest_sha256}
    async with store.write() as conn:
        await conn.execute(update(adapter_trials).where(adapter_trials.c.id == trial_id).values(**written))


async def list_offered_trials(project: Project) -> list[AdapterTrial]:
    """The trials that wait for the engines' answer, the oldest first."""
    waiting = (adapter_trials.c.path.is_not(None), adapter_trials.c.answered_at.is_(None))
    query = select(adapter_trials).where(adapter_trials.c.project_id == project.id, *waiting)
    async with project.store.read() as conn:
        return sql.as_views(AdapterTrial, await conn.execute(query.order_by(adapter_trials.c.id)))


async def answer_trial(store: Store, trial_id: str, refusal: str | None) -> None:
    """Write the engines' answer: why one refuses the adapter, or None. Nothing if the trainer has ended."""
    mine = (adapter_trials.c.id == trial_id, adapter_trials.c.answered_at.is_(None))
    async with store.write() as conn:
        await conn.execute(update(adapter_trials).where(*mine).values(refusal=refusal, answered_at=now()))


async def find_trial(store: Store, alias_id: str) -> AdapterTrial | None:
    """The alias's trial, while its trainer runs."""
    async with store.read() as conn:
        row = (await conn.execute(select(adapter_trials).where(adapter_trials.c.alias_id == alias_id))).first()
    return sql.as_view(AdapterTrial, row) if row else None


async def end_trial(store: Store, trial_id: str) -> None:
    """Delete a trial: its trainer ends."""
    async with store.write() as conn:
        await conn.execute(delete(adapter_trials).where(adapter_trials.c.id == trial_id))


async def can_be_tried(project: Project) -> bool:
    """Whether an engine is up, and a proxy that would load an adapter into it."""
    if not await leases.list_holders(project, leases.CONTROLLER):
        return False
    return any(one.state == "up" for one in await replicas.list_replicas(project, RECENT_S))

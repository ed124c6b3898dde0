"""Count calls after they are committed: totals by time and by trajectory, each call once.

Owns: one counting step, when a step runs, and when old rows are deleted. Refuses: which calls wait (the indexer queues
them, `recorder.search.indexer`), and what a call adds (`recorder.totals.call_facts`).

The hot path writes nothing for it. The indexer, which takes each ended call from its queue, inserts a row into
`counted_calls`; an existing row stays, so a call that is indexed again is not counted again. A step marks its calls as
counted in the transaction that writes their totals. That transaction does nothing if another process took the lease,
or something was deleted (`projects.deletions`), after the step read. So a killed step leaves nothing half counted, and
two followers cannot both add to a row.

A call that the sweep marked as lost stays counted as lost, even if its proxy writes its end after all.

The newest calls are counted first, so filling an old store after its migration delays nothing new. Deleting a
trajectory takes its calls out of the totals by time (`recorder.maintenance.deletion`); retention does not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, delete, func, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import LeaseLost
from recorder.queue import leases
from recorder.queue.leased_loop import LeasedLoop
from recorder.queue.leases import Lease
from recorder.settings import RecorderSettings
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import counted_calls, projects
from recorder.store.sql import now
from recorder.totals.call_facts import CallFacts, load_call_facts
from recorder.totals.time_rows import (
    DAY_S,
    RowKey,
    Totals,
    delete_old_rows,
    load_rows,
    merge_rows,
    save_rows,
    sum_calls,
)
from recorder.totals.trajectory_rows import add_to_trajectories

CALLS: Final = 200  # of a step: its transaction writes a few hundred rows
LEASE: Final = "totals"
LEASE_S: Final = 30.0
LOOK_S: Final = 1.0
DELETE_EVERY_S: Final = 600.0  # the length of the time of most rows
MOST_WAITING: Final = 10_000
_WAITING: Final = counted_calls.c.counted_at.is_(None)


@dataclass(frozen=True, slots=True)
class _Step:
    """What a step read. `waiting`: ids of calls, of which some may be gone."""

    deletions: int
    at: float
    waiting: Sequence[str]
    called: Sequence[CallFacts]
    existing: dict[RowKey, Totals]
    added: dict[RowKey, Totals]


def is_waiting(project_id: str) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for calls of a project that wait to be counted."""
    return counted_calls.c.project_id == project_id, _WAITING


async def count_waiting(project: Project, *, most: int = MOST_WAITING) -> int:
    """Return how many indexed calls of a project wait to be counted, up to `most`."""
    some = select(literal(1)).select_from(counted_calls).where(*is_waiting(project.id)).limit(most).subquery("some")
    async with project.store.read() as conn:
        return int((await conn.execute(select(func.count()).select_from(some))).scalar_one())


async def count_calls(project: Project, lease: Lease) -> int:
    """Count the newest waiting calls; return how many. 0: none waits, or something was deleted meanwhile.

    `lease`: of `LEASE`. Raises LeaseLost if another process holds it now.
    """
    step = await _read(project)
    if not step.waiting:
        return 0
    rows = await asyncio.to_thread(merge_rows, step.existing, step.added)
    async with project.store.write() as conn:
        await leases.require_lease(conn, lease)
        counted = select(projects.c.deletions).where(projects.c.id == project.id).with_for_update(read=True)
        if (await conn.execute(counted)).scalar_one() != step.deletions:
            return 0
        await _take(conn, step)
        await save_rows(conn, project.id, rows)
        await add_to_trajectories(conn, project.id, step.called)
    return len(step.waiting)


async def _read(project: Project) -> _Step:
    newest = select(counted_calls.c.call_id).where(*is_waiting(project.id)).order_by(counted_calls.c.call_id.desc())
    counted = select(projects.c.deletions, now()).where(projects.c.id == project.id)
    async with project.store.read() as conn:
        deletions, at = (await conn.execute(counted)).one()
        waiting = list((await conn.execute(newest.limit(CALLS))).scalars())
        called = await load_call_facts(conn, waiting) if waiting else []
        added = await asyncio.to_thread(sum_calls, called, at)
        existing = await load_rows(conn, project.id, added)
    return _Step(deletions, at, waiting, called, existing, added)


async def _take(conn: AsyncConnection, step: _Step) -> None:
    """Mark the calls of a step as counted; rows of calls that are gone are deleted."""
    there = [call.call_id for call in step.called]
    taken = update(counted_calls).where(counted_calls.c.call_id.in_(there), _WAITING).values(counted_at=step.at)
    if there and (await conn.execute(taken)).rowcount != len(there):
        raise LeaseLost("calls were counted by another process meanwhile; the step is repeated")
    gone = sorted(set(step.waiting) - set(there))
    if gone:
        await conn.execute(delete(counted_calls).where(counted_calls.c.call_id.in_(gone), _WAITING))


class Follower:
    """Counts one project's calls in the background: `async with follower.running(): …`. `owner` names this process."""

    def __init__(self, project: Project, settings: RecorderSettings, owner: str) -> None:
        self._project = project
        days = settings.retention_days
        self._retention_s = None if days is None else days * DAY_S
        self._loop = LeasedLoop(project, LEASE, owner, self._look, lease_s=LEASE_S, retry_s=LOOK_S)
        self._delete_at = float("-inf")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Count until the block ends."""
        async with self._loop.running():
            yield

    async def _look(self) -> float:
        """Count some calls; return the seconds until the next look. If more wait, as long as this one took."""
        began = time.monotonic()
        old = began >= self._delete_at
        if not old and not await count_waiting(self._project, most=1):
            return LOOK_S
        lease = await self._loop.lease()
        if lease is None:
            return LOOK_S
        done = await count_calls(self._project, lease)
        if old:
            async with self._project.store.write() as conn:
                at = await sql.current_time(conn)
                await delete_old_rows(conn, self._project.id, at, self._retention_s)
            self._delete_at = time.monotonic() + DELETE_EVERY_S
        return time.monotonic() - began if done >= CALLS else LOOK_S

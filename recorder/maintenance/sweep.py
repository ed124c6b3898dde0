"""The sweep: all changes that time alone causes, and the `Sweeper` that runs it while a process lives.

Owns: idle trajectories, due groups, expired leases, calls of dead proxies, retention; when the next sweep runs, and the
lease `sweep` under which it runs. Refuses: the rules (`recorder.queue.groups.readiness`, `recorder.queue.attempts`),
judging and training.

A sweep reads first and takes the store's write lock only for what is due, a few objects per transaction, because a long
write would block every proxy. Any number of processes may run a `Sweeper`: one query finds the next due time, and the
first process to take the lease sweeps. Ended trajectories, groups that change their holder, and ended processes wake a
sweeper early. New trajectories and calls do not: they are due a timeout later at the earliest.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import (
    Select,
    and_,
    case,
    exists,
    func,
    literal,
    or_,
    select,
)
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound, StoreError
from recorder.maintenance.deletion import RETENTION, delete_trajectory, is_deletable
from recorder.queue import attempts as attempt_rows
from recorder.queue import leases
from recorder.queue.groups.closure import TrajectoryEnd, close_due_groups, close_trajectories, lock_groups_of
from recorder.queue.groups.idle_trajectories import DueRule, idle_trajectories
from recorder.queue.groups.lookup import is_counted
from recorder.queue.groups.readiness import GroupVerdict
from recorder.queue.leases import PROXY
from recorder.search.documents import queue_calls
from recorder.search.indexer import IndexMerge
from recorder.settings import RecorderSettings
from recorder.states import CallState, GroupState, TrajectoryState
from recorder.store import ledger
from recorder.store.changes import ChangeSignal, Topic
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import attempts, calls, groups, trajectories
from recorder.store.schema import leases as lease_rows
from recorder.store.sql import now
from recorder.store.statement import equals_literal
from recorder.store.transitions import guarded_update
from recorder.store.wal_checkpoint import empty_log

log = logging.getLogger(__name__)

BATCH: Final = 32  # objects per transaction
MERGE_S: Final = 0.2  # for removing deleted words from the index; `recorder.search.indexer` does the rest
DAY_S: Final = 86400.0
STALE_CALL_S: Final = 3600.0  # no answer takes an hour: a call without a process name is lost then
_EXPIRES: Final = {GroupState.JUDGING: GroupState.READY, GroupState.TRAINING: GroupState.SCORED}


@dataclass(frozen=True, slots=True)
class SweepReport:
    """How many objects the sweep changed."""

    calls_errored: int = 0
    trajectories_ended: int = 0
    groups_readied: int = 0
    groups_left_out: int = 0
    claims_expired: int = 0
    attempts_abandoned: int = 0
    trajectories_deleted: int = 0

    @property
    def changed(self) -> bool:
        """Whether anything was due."""
        return self != SweepReport()


def next_due_query(project_id: str, settings: RecorderSettings) -> Select[Any]:
    """Return the query for the time when a sweep next has something to do, for `seconds_until_due`.

    Retention is not included, because no index finds the oldest trajectory.
    """
    rules = (
        _lost_calls(project_id),
        idle_trajectories(project_id, settings),
        *(_claims(project_id, state) for state in _EXPIRES),
        _due_groups(project_id, settings),
        DueRule(attempts, attempt_rows.list_running(project_id), attempts.c.lease_expires_at),
        DueRule(attempts, attempt_rows.list_groupless(project_id), literal(0.0)),
    )
    return select(now(), *(first for rule in rules for first in rule.first()))


async def seconds_until_due(store: Store, question: Select[Any]) -> float:
    """Return the seconds until something is due; 0 or less: now. Infinite if nothing waits for time."""
    async with store.read() as conn:
        at, *times = (await conn.execute(question)).one()
    return min((float(time) - float(at) for time in times if time is not None), default=math.inf)


async def sweep(project: Project, settings: RecorderSettings) -> SweepReport:
    """Do everything that is due in a project now."""
    errored = await _error_lost_calls(project, _lost_calls(project.id), settings.lease_s)
    idle = idle_trajectories(project.id, settings).due()

    async def end(conn: AsyncConnection, trajectory_ids: Sequence[str]) -> int:
        return await _end_idle(conn, idle, trajectory_ids)

    ended = await _in_batches(project.store, idle, end, lock=False)
    expired = [await _expire_claims(project, state, _claims(project.id, state)) for state in _EXPIRES]
    verdicts: list[GroupVerdict] = []

    async def decide(conn: AsyncConnection, group_ids: Sequence[str]) -> int:
        due = await close_due_groups(conn, group_ids, settings)
        verdicts.extend(one.verdict for one in due)
        return len(due)

    await _in_batches(project.store, _due_groups(project.id, settings).due(), decide)
    return SweepReport(
        calls_errored=errored,
        trajectories_ended=ended,
        groups_readied=verdicts.count(GroupVerdict.READY),
        groups_left_out=verdicts.count(GroupVerdict.LEFT_OUT),
        claims_expired=sum(expired),
        attempts_abandoned=await _abandon_attempts(project),
        trajectories_deleted=await _delete_old(project, settings.retention_days),
    )


async def _in_batches(
    store: Store,
    due: Select[Any],
    act: Callable[[AsyncConnection, Sequence[str]], Awaitable[int]],
    *,
    lock: bool = True,
) -> int:
    """Act on the objects that `due` finds, again under the write lock, and return how many changed.

    Without `lock`, `act` locks the rows itself (PostgreSQL).
    """
    changed = 0
    while await _any(store, due):
        async with store.write() as conn:
            batch = due.limit(BATCH)
            ids = list((await conn.execute(batch.with_for_update(skip_locked=True) if lock else batch)).scalars())
            acted = await act(conn, ids)
        changed += acted
        if not acted:  # another sweep was faster, or holds them
            break
    return changed


async def _any(store: Store, query: Select[Any]) -> bool:
    async with store.read() as conn:
        return (await conn.execute(query.limit(1))).first() is not None


async def _end_idle(conn: AsyncConnection, idle: Select[Any], trajectory_ids: Sequence[str]) -> int:
    await lock_groups_of(conn, trajectory_ids)  # before their members: see its docstring
    still = idle.where(trajectories.c.id.in_(trajectory_ids)).with_for_update(skip_locked=True)
    closings = [TrajectoryEnd(id_, TrajectoryState.COMPLETED, "idle") for id_ in (await conn.execute(still)).scalars()]
    return len(await close_trajectories(conn, closings))


def _due_groups(project_id: str, settings: RecorderSettings) -> DueRule:
    """Open groups, and the time that `readiness.close_time` gives for each.

    It must miss no due group: tests/recorder/maintenance/test_due_groups.py compares the two.
    """
    member = trajectories.c.group_id == groups.c.id
    running = exists().where(member, trajectories.c.state == TrajectoryState.OPEN)
    counted = select(func.count()).where(member, is_counted()).scalar_subquery()
    full = and_(~running, counted >= func.coalesce(groups.c.declared_size, settings.group_size))
    declared = groups.c.declared_size.is_not(None)
    these = (groups.c.project_id == project_id, groups.c.state == GroupState.OPEN, or_(declared, ~running))
    at = case(
        (full, groups.c.joined_at),
        (declared, groups.c.last_call_at + settings.group_timeout_s),
        else_=groups.c.joined_at + settings.group_window_s,
    )
    return DueRule(groups, these, at)


def _claims(project_id: str, state: GroupState) -> DueRule:
    these = (groups.c.project_id == project_id, groups.c.state == state)
    return DueRule(groups, these, groups.c.lease_expires_at)


def _lost_calls(project_id: str) -> DueRule:
    """Open calls, and the time when each counts as lost: when the lease of its process ends."""
    held_until = select(lease_rows.c.lease_expires_at).where(
        lease_rows.c.project_id == calls.c.project_id,
        lease_rows.c.name == literal(PROXY) + calls.c.process,
        lease_rows.c.lease_owner.is_not(None),
    )
    known = (calls.c.process.is_not(None), func.coalesce(held_until.scalar_subquery(), literal(0.0)))
    is_open = equals_literal(calls.c.state, "open")  # a literal, as in the partial index
    these = (calls.c.project_id == project_id, is_open)
    return DueRule(calls, these, case(known, else_=calls.c.started_at + STALE_CALL_S))


async def _error_lost_calls(project: Project, lost: DueRule, lease_s: float) -> int:
    store = project.store
    if not await _any(store, lost.due()):
        return 0
    await leases.renew_late(project, PROXY, lease_s)
    why = "the proxy that served this call died before it ended"
    statement = guarded_update(calls, CallState.ERRORED, error=why, finished_at=now()).where(lost.is_due)
    async with store.write() as conn:
        rows = (await conn.execute(statement.returning(calls.c.project_id, calls.c.id))).all()
        for project_id, call_id in rows:
            await queue_calls(conn, project_id, [call_id])
    return len(rows)


async def _delete_old(project: Project, retention_days: float | None) -> int:
    """Delete trajectories past their retention, at most `BATCH` a sweep, each in its own transaction."""
    if retention_days is None:
        return 0
    old = is_deletable(now() - retention_days * DAY_S)
    query = select(trajectories.c.id).where(trajectories.c.project_id == project.id, *old)
    async with project.store.read() as conn:
        due = list((await conn.execute(query.order_by(trajectories.c.ended_at).limit(BATCH))).scalars())
    deleted = 0
    for trajectory_id in due:
        with contextlib.suppress(NotFound, Conflict):  # another sweep or a worker was faster
            await delete_trajectory(project, trajectory_id, RETENTION)
            deleted += 1
    if deleted:
        await IndexMerge(project.store).go_on(MERGE_S)
    if deleted and not await empty_log(project.store):
        log.warning("readers keep the store's WAL open: deleted content stays in it until it is emptied")
    return deleted


async def _expire_claims(project: Project, state: GroupState, held: DueRule) -> int:
    if not await _any(project.store, held.due()):
        return 0
    statement = guarded_update(groups, _EXPIRES[state], expect=state, lease_owner=None, lease_expires_at=None)
    async with project.store.write() as conn:
        back = list((await conn.execute(statement.where(held.is_due).returning(groups.c.id))).scalars())
        rows = [LedgerRow(project.id, "group", group_id, "lease_expired", {"was": state}) for group_id in back]
        await ledger.write_rows(conn, rows)
    return len(back)


async def _abandon_attempts(project: Project) -> int:
    abandoned = 0
    if await _any(project.store, select(attempts.c.id).where(*attempt_rows.list_expired(project.id))):
        abandoned += await attempt_rows.abandon_expired(project)
    if await _any(project.store, select(attempts.c.id).where(*attempt_rows.list_groupless(project.id))):
        abandoned += await attempt_rows.abandon_groupless(project)
    return abandoned


LEASE: Final = "sweep"
LEASE_S: Final = 60.0  # a longer sweep may overlap another without harm: each of its writes is guarded
BREATH_S: Final = 0.2  # the shortest pause between two queries
LOOK_S: Final = 20.0  # the longest pause between two queries: claiming an attempt sends no notification
RETENTION_EVERY_S: Final = 60.0  # retention is in days, so it need not be exact
HICCUP_S: Final = 1.0  # the pause after a sweep without changes, another process's sweep or a store error


class Sweeper:
    """Sweeps one project: `async with sweeper.running(): …`. `owner` names this process (`leases.holder_name`)."""

    def __init__(self, project: Project, settings: RecorderSettings, owner: str) -> None:
        self.sweeps = 0  # done by this process
        self._project = project
        self._settings = settings
        self._question = next_due_query(project.id, settings)  # built once: building it costs more than running it
        self._owner = owner
        self._stopping = False
        self._retained_at = float("-inf")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sweep until the block ends."""
        with self._project.store.watch.on(Topic.RUNS, Topic.GROUPS, Topic.LEASES) as news:
            task = asyncio.create_task(self._run(news), name="sweep")
            try:
                yield
            finally:
                self._stopping = True
                news.tell()
                await task  # not cancelled: an interrupted statement leaks its connection's thread

    async def _run(self, news: ChangeSignal) -> None:
        within_s: float | None = None
        while True:
            await news.wait(within_s)
            if self._stopping:
                return
            try:
                within_s = await self._look()
            except StoreError as e:
                log.warning("the sweep is paused until the store answers: %s", e)
                within_s = HICCUP_S
            except Exception:  # one object that triggers a bug must not block all others forever
                log.exception("the sweep failed")
                within_s = LOOK_S
            await asyncio.sleep(BREATH_S)

    async def _look(self) -> float:
        """Sweep if anything is due; return the seconds until the next query."""
        await leases.release_all_dead(self._project, PROXY)
        due_s = await seconds_until_due(self._project.store, self._question)
        if due_s > 0 and not self._retention_is_due():
            settings = self._settings
            return min(due_s, settings.answered_idle_s, settings.idle_timeout_s, settings.group_timeout_s, LOOK_S)
        lease = await leases.acquire_lease(self._project, LEASE, self._owner, LEASE_S)
        if lease is None:  # another process sweeps now
            await leases.release_all_dead(self._project, LEASE)
            return HICCUP_S
        try:
            report = await sweep(self._project, self._settings)
        finally:
            await leases.release_lease(self._project.store, lease)
        self.sweeps += 1
        self._retained_at = time.monotonic()
        return BREATH_S if report.changed else HICCUP_S

    def _retention_is_due(self) -> bool:
        due = time.monotonic() - self._retained_at >= RETENTION_EVERY_S
        return self._settings.retention_days is not None and due

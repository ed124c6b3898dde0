"""Attempts: one try of the agent at one scenario, claimed by a runner, repeated if the fault was not the agent's.

Owns: attempts and their leases. A claim also opens the attempt's trajectory before the agent's first call, so that the
proxy knows its purpose. Refuses: running the agent (trainer), and what a failed attempt means.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Update, and_, bindparam, exists, func, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, LeaseLost, NotFound
from recorder.ids import check_external, new_id
from recorder.queue.attempt_rows import (
    GROUP_CLOSED,
    AttemptView,
    group_is_open,
    open_trajectories,
    plan_again,
    trajectories_of,
)
from recorder.queue.campaigns import lease_name
from recorder.queue.groups.closure import TrajectoryEnd, close_trajectories
from recorder.queue.leases import runs_here
from recorder.queue.step_membership import is_of_step
from recorder.states import (
    AttemptState,
    CallKind,
    CallState,
    CampaignState,
    Purpose,
    TrajectoryState,
)
from recorder.store import ledger, sql
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import attempts, calls, campaigns, leases, trajectories
from recorder.store.sql import now
from recorder.store.transitions import guarded_update

__all__ = [
    "AttemptEnd",
    "AttemptFailure",
    "AttemptView",
    "LastCall",
    "NewAttempt",
    "abandon_expired",
    "abandon_groupless",
    "abandon_running",
    "claim_attempt",
    "claim_attempts",
    "count_by_state",
    "finish_attempt",
    "finish_attempts",
    "last_call",
    "last_calls",
    "list_expired",
    "list_failures",
    "list_groupless",
    "new_attempts",
    "record_successes",
    "renew_attempts",
]

LATE_S: Final = 15.0  # for which the sweep holds the attempts of a late runner; then it looks again
_ENDS: Final = {
    AttemptState.DONE: TrajectoryState.COMPLETED,
    AttemptState.ERRORED: TrajectoryState.ERRORED,
    AttemptState.ABANDONED: TrajectoryState.ABANDONED,
}


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """A planned attempt. `number` counts the attempts at its scenario in that step."""

    scenario_id: str
    step_number: int
    purpose: Purpose
    number: int
    group_external_id: str
    trajectory_external_id: str


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How a claimed attempt ended. Its trajectory ends in the same state unless `trajectory_state` is given.

    `retry`: the trajectory is abandoned and the attempt is planned again.
    """

    attempt: AttemptView
    state: AttemptState
    answer: Any = None
    error: str | None = None
    trajectory_state: TrajectoryState | None = None
    reason: str | None = None
    retry: bool = False


@dataclass(frozen=True, slots=True)
class AttemptFailure:
    """How an attempt failed. `reason`: its trajectory's `end_reason`, if it has one."""

    reason: str | None
    error: str | None


@dataclass(frozen=True, slots=True)
class LastCall:
    """How the newest main call of a trajectory ended. `complete`: how many main calls a model answered."""

    state: CallState
    http_status: int | None
    error: str | None
    complete: int


async def new_attempts(store: Store, campaign_id: str, planned: Iterable[NewAttempt]) -> None:
    """Write planned attempts; existing attempts of the campaign are not changed. Bind their groups first.

    Raises Conflict if two attempts at one scenario in a step share a number: number them across all its groups.
    """
    rows = [asdict(p) for p in planned]
    for row in rows:
        check_external(row["trajectory_external_id"], "the trajectory")
    async with store.write() as conn:
        project = select(campaigns.c.project_id).where(campaigns.c.id == campaign_id)
        project_id = (await conn.execute(project)).scalar_one_or_none()
        if project_id is None:
            raise NotFound(f"no campaign {campaign_id}")
        common = {"project_id": project_id, "campaign_id": campaign_id, "state": AttemptState.PENDING, "try": 0}
        if rows:
            values = [{"id": new_id("att"), **common, **row} for row in rows]
            await conn.execute(sql.insert_ignore(conn, attempts), values)
            await _require_all(conn, campaign_id, rows)


async def _require_all(conn: AsyncConnection, campaign_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
    planned = {(row["group_external_id"], row["trajectory_external_id"]) for row in rows}
    query = select(attempts.c.group_external_id, attempts.c.trajectory_external_id).where(
        attempts.c.campaign_id == campaign_id, attempts.c.step_number.in_({row["step_number"] for row in rows})
    )
    missing = planned - {(row[0], row[1]) for row in await conn.execute(query)}
    if missing:
        group, trajectory = min(missing)
        raise Conflict(
            f"attempt {trajectory!r} of group {group!r} has the number of another attempt at its scenario: "
            "number the attempts at a scenario across all its groups"
        )


async def claim_attempt(store: Store, campaign_id: str, owner: str, lease_s: float) -> AttemptView | None:
    """`claim_attempts` for one."""
    claimed = await claim_attempts(store, campaign_id, owner, lease_s, limit=1)
    return claimed[0] if claimed else None


async def claim_attempts(
    store: Store, campaign_id: str, owner: str, lease_s: float, limit: int, purpose: Purpose | None = None
) -> list[AttemptView]:
    """Claim the next attempts (group by group, so that the first groups are ready early) and open their trajectories.

    Attempts whose group has closed are never claimed; the sweep abandons them. `purpose`: only those of it.
    """
    mine = (attempts.c.campaign_id == campaign_id, *(() if purpose is None else (attempts.c.purpose == purpose,)))
    runnable = (
        select(attempts.c.id)
        .where(*mine, attempts.c.state == AttemptState.PENDING, group_is_open())
        .order_by(attempts.c.step_number, attempts.c.group_external_id, attempts.c.number)
        .limit(limit)
    )
    async with store.read() as conn:  # if there is nothing to claim, SQLite's only write lock is not taken
        if (await conn.execute(runnable.limit(1))).first() is None:
            return []
    picked = runnable.with_for_update(skip_locked=True, of=attempts).cte("picked")
    lease: dict[str, Any] = {
        "lease_owner": owner,
        "lease_epoch": attempts.c.lease_epoch + 1,
        "lease_expires_at": now() + lease_s,
    }
    take = guarded_update(attempts, AttemptState.RUNNING, started_at=now(), **lease)
    async with store.write() as conn:
        taken = take.where(attempts.c.id.in_(select(picked.c.id))).returning(attempts)
        rows = (await conn.execute(taken)).all()
        return await open_trajectories(
            conn, sorted(rows, key=lambda row: (row.step_number, row.group_external_id, row.number))
        )


async def renew_attempts(store: Store, campaign_id: str, owner: str, lease_s: float) -> int:
    """Renew the leases of an owner's running attempts, in one statement; return how many it still holds."""
    statement = (
        update(attempts)
        .where(
            attempts.c.campaign_id == campaign_id,
            attempts.c.lease_owner == owner,
            attempts.c.state == AttemptState.RUNNING,
        )
        .values(lease_expires_at=now() + lease_s)
    )
    async with store.write() as conn:
        return (await conn.execute(statement)).rowcount


async def finish_attempt(
    store: Store,
    attempt: AttemptView,
    state: AttemptState,
    answer: Any = None,
    error: str | None = None,
    *,
    trajectory_state: TrajectoryState | None = None,
    reason: str | None = None,
    retry: bool = False,
) -> None:
    """`finish_attempts` for one. Raises LeaseLost."""
    ending = AttemptEnd(attempt, state, answer, error, trajectory_state, reason, retry)
    if await finish_attempts(store, [ending]):
        raise LeaseLost(
            f"attempt {attempt.id} is no longer held by {attempt.owner} (epoch {attempt.epoch}): its lease expired. "
            "Discard its result: the attempt is repeated."
        )


async def finish_attempts(store: Store, endings: Sequence[AttemptEnd]) -> list[AttemptView]:
    """End attempts, and with them their trajectories, in one transaction. Returns those whose lease was lost.

    The number of statements does not grow with the number of attempts.
    """
    async with store.write() as conn:
        held = await _held(conn, [ending.attempt for ending in endings])
        ours = [ending for ending in endings if ending.attempt.id in held]
        for state in sorted({ending.state for ending in ours}):
            of_state = [_ended_row(ending) for ending in ours if ending.state == state]
            await conn.execute(_end_attempt(state), of_state)
        await close_trajectories(conn, [_closing(ending) for ending in ours])
        await plan_again(conn, [ending.attempt.id for ending in ours if ending.retry])
    return [ending.attempt for ending in endings if ending.attempt.id not in held]


async def _held(conn: AsyncConnection, claimed: Sequence[AttemptView]) -> set[str]:
    """Lock the attempts whose claim is still valid, and return their ids."""
    columns = (attempts.c.id, attempts.c.lease_owner, attempts.c.lease_epoch)
    query = select(*columns).where(
        attempts.c.id.in_([attempt.id for attempt in claimed]), attempts.c.state == AttemptState.RUNNING
    )
    holders = {row.id: (row.lease_owner, row.lease_epoch) for row in await conn.execute(query.with_for_update())}
    return {attempt.id for attempt in claimed if holders.get(attempt.id) == (attempt.owner, attempt.epoch)}


def _end_attempt(state: AttemptState) -> Update:
    values: dict[str, Any] = {
        "answer": bindparam("new_answer", type_=attempts.c.answer.type),
        "error": bindparam("new_error"),
        "ended_at": now(),
        "lease_owner": None,
        "lease_expires_at": None,
    }
    return guarded_update(attempts, state, **values).where(attempts.c.id == bindparam("attempt_id"))


def _ended_row(ending: AttemptEnd) -> dict[str, Any]:
    return {"attempt_id": ending.attempt.id, "new_answer": ending.answer, "new_error": ending.error}


def _closing(ending: AttemptEnd) -> TrajectoryEnd:
    if ending.retry:
        return TrajectoryEnd(ending.attempt.trajectory_id, TrajectoryState.ABANDONED, ending.reason or ending.error)
    state = ending.trajectory_state or _ENDS[ending.state]
    return TrajectoryEnd(ending.attempt.trajectory_id, state, ending.reason)


async def record_successes(
    store: Store, campaign_id: str, step_number: int, purpose: Purpose, succeeded: Mapping[str, bool]
) -> None:
    """Write which attempts of a campaign's round succeeded, by the ids of their trajectories.

    The page of a version compares its validation with an earlier one by these values.
    """
    a, t = attempts.c, trajectories.c
    address = select(t.id, t.address_group, t.external_id).where(t.id.in_(sorted(succeeded)))
    of_attempt = update(attempts).where(
        a.campaign_id == campaign_id, a.step_number == step_number, a.purpose == purpose,
        a.group_external_id == bindparam("of_group"), a.trajectory_external_id == bindparam("of_trajectory"),
    )  # fmt: skip
    async with store.write() as conn:
        rows = [
            {"of_group": row.address_group, "of_trajectory": row.external_id, "worth": float(succeeded[row.id])}
            for row in await conn.execute(address)
        ]
        if rows:
            await conn.execute(of_attempt.values(success=bindparam("worth")), rows)


async def abandon_running(store: Store, campaign_id: str) -> int:
    """Abandon every running attempt of a campaign whose runner died, and plan each again; return how many."""
    return await _abandon(store, attempts.c.campaign_id == campaign_id, "runner_died")


async def abandon_expired(project: Project) -> int:
    """Abandon every attempt of a running campaign whose lease expired, and plan it again; return how many.

    A runner of this machine that still runs its campaign may be late, because the machine is busy: its attempts are
    held for it.
    """
    gone: list[_ExpiredRunner] = []
    for runner in await _expired_runners(project):
        if runner.holds_campaign and runs_here(runner.owner, runner.since):
            await renew_attempts(project.store, runner.campaign_id, runner.owner, LATE_S)
        else:
            gone.append(runner)
    if not gone:
        return 0
    theirs = [and_(attempts.c.campaign_id == one.campaign_id, attempts.c.lease_owner == one.owner) for one in gone]
    return await _abandon(project.store, and_(*list_expired(project.id), or_(*theirs)), "lease_expired")


@dataclass(frozen=True, slots=True)
class _ExpiredRunner:
    """The runner of expired attempts. `since`: when it claimed the first of them (unix seconds)."""

    campaign_id: str
    owner: str
    since: float
    holds_campaign: bool


async def _expired_runners(project: Project) -> list[_ExpiredRunner]:
    a = attempts.c
    holder = (
        select(leases.c.lease_owner)
        .where(leases.c.project_id == project.id, leases.c.name == literal(lease_name("")) + a.campaign_id)
        .scalar_subquery()
    )
    query = select(a.campaign_id, a.lease_owner, func.min(a.started_at).label("since"), holder.label("holder"))
    query = query.where(*list_expired(project.id)).group_by(a.campaign_id, a.lease_owner)
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    return [_ExpiredRunner(row.campaign_id, row.lease_owner, row.since, row.holder == row.lease_owner) for row in rows]


async def abandon_groupless(project: Project) -> int:
    """Abandon attempts that never began and whose group has closed without them; return how many."""
    gone = guarded_update(attempts, AttemptState.ABANDONED, expect=AttemptState.PENDING, **GROUP_CLOSED)
    async with project.store.write() as conn:
        return (await conn.execute(gone.where(*list_groupless(project.id)))).rowcount


def list_groupless(project_id: str) -> tuple[ColumnElement[bool], ...]:
    """The conditions for planned attempts of running campaigns whose group has closed."""
    return _of_running(project_id), attempts.c.state == AttemptState.PENDING, ~group_is_open()


def list_expired(project_id: str) -> tuple[ColumnElement[bool], ...]:
    """The conditions for attempts of running campaigns whose lease expired."""
    return *list_running(project_id), attempts.c.lease_expires_at <= now()


def list_running(project_id: str) -> tuple[ColumnElement[bool], ...]:
    """The conditions for running attempts of running campaigns."""
    return _of_running(project_id), attempts.c.state == AttemptState.RUNNING


def _of_running(project_id: str) -> ColumnElement[bool]:
    """The condition for attempts of running campaigns and of all gates. An ended campaign has no runner."""
    runs = or_(campaigns.c.state == CampaignState.RUNNING, campaigns.c.version_id.is_not(None))
    return attempts.c.campaign_id.in_(select(campaigns.c.id).where(campaigns.c.project_id == project_id, runs))


async def _abandon(store: Store, condition: ColumnElement[bool], why: str) -> int:
    """Abandon running attempts with their trajectories, and plan them again.

    An attempt whose trajectory has completed is not repeated: its group has the trajectory.
    """
    dead = guarded_update(
        attempts, AttemptState.ABANDONED, expect=AttemptState.RUNNING, **{**GROUP_CLOSED, "error": why}
    )
    async with store.write() as conn:
        rows = (await conn.execute(dead.where(condition).returning(attempts))).all()
        runs = await trajectories_of(conn, rows)
        closings = [TrajectoryEnd(id_, TrajectoryState.ABANDONED, why) for id_ in runs.values()]
        ended = await close_trajectories(conn, closings)
        again = [row.id for row in rows if runs[row.group_external_id, row.trajectory_external_id] in ended]
        await plan_again(conn, again)
        await ledger.write_rows(
            conn,
            [LedgerRow(row.project_id, "attempt", row.id, why, {"planned_again": row.id in again}) for row in rows],
        )
    return len(rows)


async def count_by_state(
    store: Store,
    campaign_id: str,
    step_number: int,
    purpose: Purpose | None = None,
    numbers: Collection[int] | None = None,
) -> dict[AttemptState, int]:
    """Return the number of a step's attempts by state. `numbers`: count only attempts with these numbers."""
    query = select(attempts.c.state, func.count()).where(is_of_step(campaign_id, step_number))
    if purpose is not None:
        query = query.where(attempts.c.purpose == purpose)
    if numbers is not None:
        query = query.where(attempts.c.number.in_(numbers))
    async with store.read() as conn:
        return {AttemptState(s): int(n) for s, n in await conn.execute(query.group_by(attempts.c.state))}


async def list_failures(
    store: Store, campaign_id: str, step_number: int, purpose: Purpose, numbers: Collection[int]
) -> list[AttemptFailure]:
    """Return how the attempts of a step with these numbers failed, for those that are not repeated."""
    a, again = attempts.c, attempts.alias("again")
    same = [again.c[name] == a[name] for name in ("campaign_id", "step_number", "purpose", "scenario_id", "number")]
    query = select(attempts).where(
        is_of_step(campaign_id, step_number),
        a.purpose == purpose,
        a.number.in_(numbers),
        a.state == AttemptState.ERRORED,
        ~exists().where(*same, again.c["try"] > a["try"]),
    )
    async with store.read() as conn:
        rows = (await conn.execute(query.order_by(a.ended_at, a.id))).all()
        ids = await trajectories_of(conn, rows)
        of_runs = select(trajectories.c.id, trajectories.c.end_reason).where(trajectories.c.id.in_(ids.values()))
        reasons = {row.id: row.end_reason for row in await conn.execute(of_runs)}
    runs = [ids.get((row.group_external_id, row.trajectory_external_id)) for row in rows]
    return [AttemptFailure(reasons.get(run) if run else None, row.error) for row, run in zip(rows, runs, strict=True)]


async def last_call(store: Store, trajectory_id: str) -> LastCall | None:
    """`last_calls` for one trajectory; None if it has no main call."""
    return (await last_calls(store, [trajectory_id])).get(trajectory_id)


async def last_calls(store: Store, trajectory_ids: Collection[str]) -> dict[str, LastCall]:
    """Return the newest main call of each trajectory with one. It tells an engine's fault from the agent's."""
    c = calls.c
    query = select(c.trajectory_id, c.state, c.http_status, c.error).where(
        c.trajectory_id.in_(trajectory_ids), c.turn_kind == CallKind.MAIN
    )
    found: dict[str, LastCall] = {}
    async with store.read() as conn:
        for trajectory_id, state, status, error in await conn.execute(query.order_by(c.started_at, c.id)):
            before = found[trajectory_id].complete if trajectory_id in found else 0
            complete = before + (state == CallState.COMPLETE)
            found[trajectory_id] = LastCall(CallState(state), status, error, complete)
    return found

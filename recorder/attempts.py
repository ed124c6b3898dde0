"""Attempts: one run of the agent on one scenario, claimed by a runner, run again where the fault was not the agent's.

Owns: attempts and their leases, the trajectory row that an attempt opens before the agent's first call (so that the
proxy knows its purpose). Refuses: running the agent (trainer), what a failed run means.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder import ledger, sql
from recorder.campaigns import Scenario
from recorder.errors import Conflict, NotFound
from recorder.groups import close_trajectory
from recorder.ids import check_external, new_id
from recorder.ledger import LedgerRow
from recorder.schema import attempts, calls, campaigns, groups, scenarios, trajectories
from recorder.states import (
    AttemptState,
    CallState,
    CampaignState,
    GroupState,
    Origin,
    Purpose,
    TrajectoryState,
    TurnKind,
)
from recorder.store import Store, now
from recorder.transitions import guarded, move

_CLOSED: Final[Mapping[str, Any]] = {
    "error": "group_closed",
    "ended_at": now(),
    "lease_owner": None,
    "lease_expires_at": None,
}
_ENDS: Final = {
    AttemptState.DONE: TrajectoryState.COMPLETED,
    AttemptState.ERRORED: TrajectoryState.ERRORED,
    AttemptState.ABANDONED: TrajectoryState.ABANDONED,
}


@dataclass(frozen=True, slots=True)
class NewAttempt:
    """An attempt to be made. `number` counts the attempts at its scenario in that step."""

    scenario_id: str
    step_number: int
    purpose: Purpose
    number: int
    group_external_id: str
    trajectory_external_id: str


@dataclass(frozen=True, slots=True)
class AttemptView:
    """A claimed attempt: all that a runner needs. Held by `owner` until `expires_at` (unix seconds)."""

    id: str
    project_id: str
    campaign_id: str
    scenario: Scenario
    step_number: int
    purpose: Purpose
    number: int
    try_number: int
    group_id: str
    group_external_id: str
    trajectory_id: str
    trajectory_external_id: str
    owner: str
    epoch: int
    expires_at: float


@dataclass(frozen=True, slots=True)
class LastCall:
    """How the newest main call of a trajectory ended; `complete` counts those that a model answered."""

    state: CallState
    http_status: int | None
    error: str | None
    complete: int


async def new_attempts(store: Store, campaign_id: str, planned: Iterable[NewAttempt]) -> None:
    """Write attempts to be made; those that the campaign has already are left as they are. Bind their groups first.

    Raises Conflict where two attempts at one scenario in a step share a number: count them through all its groups.
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
            "count the attempts at a scenario through all its groups"
        )


async def claim_attempt(store: Store, campaign_id: str, owner: str, lease_s: float) -> AttemptView | None:
    """Take the next attempt (group by group, so that the first groups are ready early) and open its trajectory.

    Attempts whose group has closed meanwhile are never handed out; the sweep abandons them.
    """
    runnable = (
        select(attempts.c.id)
        .where(attempts.c.campaign_id == campaign_id, attempts.c.state == AttemptState.PENDING, group_is_open())
        .order_by(attempts.c.step_number, attempts.c.group_external_id, attempts.c.number)
        .limit(1)
    )
    async with store.read() as conn:  # runners poll: nothing to claim must not cost SQLite's only write lock
        if (await conn.execute(runnable)).first() is None:
            return None
    picked = runnable.with_for_update(skip_locked=True, of=attempts).cte("picked")
    lease: dict[str, Any] = {
        "lease_owner": owner,
        "lease_epoch": attempts.c.lease_epoch + 1,
        "lease_expires_at": now() + lease_s,
    }
    take = guarded(attempts, AttemptState.RUNNING, started_at=now(), **lease)
    async with store.write() as conn:
        taken = take.where(attempts.c.id.in_(select(picked.c.id))).returning(attempts)
        row = (await conn.execute(taken)).mappings().first()
        return await _open(conn, row) if row else None


def group_is_open() -> ColumnElement[bool]:
    """Whether an attempt's group still takes members."""
    return exists().where(
        groups.c.project_id == attempts.c.project_id,
        groups.c.external_id == attempts.c.group_external_id,
        groups.c.campaign_id == attempts.c.campaign_id,
        groups.c.state == GroupState.OPEN,
    )


async def _open(conn: AsyncConnection, row: Any) -> AttemptView | None:
    scenario = (await conn.execute(select(scenarios).where(scenarios.c.id == row["scenario_id"]))).one()
    joined = (
        update(groups)
        .where(
            groups.c.project_id == row["project_id"],
            groups.c.external_id == row["group_external_id"],
            groups.c.campaign_id == row["campaign_id"],
            groups.c.state == GroupState.OPEN,
        )
        .values(joined_at=now(), last_call_at=now())
        .returning(groups.c.id, groups.c.alias_id)
    )
    group = (await conn.execute(joined)).first()
    if group is None:  # it closed between the claim and now (PostgreSQL)
        await conn.execute(guarded(attempts, AttemptState.ABANDONED, **_CLOSED).where(attempts.c.id == row["id"]))
        return None
    trajectory_id = new_id("traj")
    await conn.execute(
        insert(trajectories).values(
            id=trajectory_id,
            project_id=row["project_id"],
            group_id=group.id,
            alias_id=group.alias_id,
            address_group=row["group_external_id"],
            external_id=row["trajectory_external_id"],
            state=TrajectoryState.OPEN,
            purpose=row["purpose"],
            origin=Origin.CAMPAIGN,
            tags={},
            started_at=now(),
            last_call_at=now(),
        )
    )
    return AttemptView(
        id=row["id"],
        project_id=row["project_id"],
        campaign_id=row["campaign_id"],
        scenario=sql.view(Scenario, scenario),
        step_number=row["step_number"],
        purpose=Purpose(row["purpose"]),
        number=row["number"],
        try_number=row["try"],
        group_id=group.id,
        group_external_id=row["group_external_id"],
        trajectory_id=trajectory_id,
        trajectory_external_id=row["trajectory_external_id"],
        owner=row["lease_owner"],
        epoch=row["lease_epoch"],
        expires_at=row["lease_expires_at"],
    )


async def renew_attempts(store: Store, campaign_id: str, owner: str, lease_s: float) -> int:
    """Hold every running attempt of an owner for longer, in one statement; returns how many it still holds."""
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
    """End an attempt, and with it its trajectory (by default as the attempt ended), in one transaction.

    `retry`: the trajectory is abandoned and the attempt is made again. Raises LeaseLost.
    """
    ended: dict[str, Any] = {"answer": answer, "error": error, "ended_at": now()}
    async with store.write() as conn:
        await move(conn, attempts, attempt.id, state, owner=attempt.owner, epoch=attempt.epoch, **ended)
        if retry:
            await close_trajectory(conn, attempt.trajectory_id, TrajectoryState.ABANDONED, reason or error)
            await _plan_again(conn, attempt.id)
        else:
            await close_trajectory(conn, attempt.trajectory_id, trajectory_state or _ENDS[state], reason)


async def abandon_running(store: Store, campaign_id: str) -> int:
    """Abandon every running attempt of a campaign whose runner died, and plan each again; returns how many."""
    return await _abandon(store, attempts.c.campaign_id == campaign_id, "runner_died")


async def abandon_expired(store: Store, project_id: str) -> int:
    """The same for every attempt of a running campaign whose lease ran out."""
    return await _abandon(store, and_(*expired(project_id)), "lease_expired")


async def abandon_groupless(store: Store, project_id: str) -> int:
    """Abandon attempts that were never begun and whose group has closed without them; returns how many."""
    gone = guarded(attempts, AttemptState.ABANDONED, expect=AttemptState.PENDING, **_CLOSED)
    async with store.write() as conn:
        return (await conn.execute(gone.where(*groupless(project_id)))).rowcount


def groupless(project_id: str) -> tuple[ColumnElement[bool], ...]:
    """Attempts of running campaigns that wait though their group has closed."""
    return _of_running(project_id), attempts.c.state == AttemptState.PENDING, ~group_is_open()


def expired(project_id: str) -> tuple[ColumnElement[bool], ...]:
    """Attempts of running campaigns whose lease ran out."""
    return _of_running(project_id), attempts.c.state == AttemptState.RUNNING, attempts.c.lease_expires_at <= now()


def _of_running(project_id: str) -> ColumnElement[bool]:
    running = select(campaigns.c.id).where(
        campaigns.c.project_id == project_id, campaigns.c.state == CampaignState.RUNNING
    )
    return attempts.c.campaign_id.in_(running)


async def _abandon(store: Store, condition: ColumnElement[bool], why: str) -> int:
    statement = (
        guarded(
            attempts,
            AttemptState.ABANDONED,
            expect=AttemptState.RUNNING,
            error=why,
            ended_at=now(),
            lease_owner=None,
            lease_expires_at=None,
        )
        .where(condition)
        .returning(attempts.c.id)
    )
    async with store.write() as conn:
        dead = list((await conn.execute(statement)).scalars())
        for attempt_id in dead:
            await _rerun(conn, attempt_id, why)
    return len(dead)


async def _rerun(conn: AsyncConnection, attempt_id: str, why: str) -> None:
    """Abandon the trajectory and plan the attempt again, unless the trajectory ended by itself: its group has it."""
    row = (await conn.execute(select(attempts).where(attempts.c.id == attempt_id))).one()
    query = select(trajectories.c.id).where(
        trajectories.c.project_id == row.project_id,
        trajectories.c.address_group == row.group_external_id,
        trajectories.c.external_id == row.trajectory_external_id,
        trajectories.c.sequence == 0,
    )
    trajectory_id = (await conn.execute(query)).scalar_one()
    again = await close_trajectory(conn, trajectory_id, TrajectoryState.ABANDONED, why)
    if again:
        await _plan_again(conn, attempt_id)
    await ledger.write(conn, [LedgerRow(row.project_id, "attempt", attempt_id, why, {"planned_again": again})])


async def _plan_again(conn: AsyncConnection, attempt_id: str) -> None:
    row = dict((await conn.execute(select(attempts).where(attempts.c.id == attempt_id))).mappings().one())
    kept = ("project_id", "campaign_id", "scenario_id", "step_number", "purpose", "number", "group_external_id")
    external, tries = row["trajectory_external_id"], row["try"] + 1
    base = external.rsplit("~", 1)[0] if row["try"] else external
    own = {
        "id": new_id("att"),
        "try": tries,
        "state": AttemptState.PENDING,
        "trajectory_external_id": f"{base}~{tries}",
    }
    await conn.execute(insert(attempts), [{**{name: row[name] for name in kept}, **own}])


async def progress(
    store: Store, campaign_id: str, step_number: int, purpose: Purpose | None = None
) -> dict[AttemptState, int]:
    """How many attempts of a step are in each state."""
    query = select(attempts.c.state, func.count()).where(
        attempts.c.campaign_id == campaign_id, attempts.c.step_number == step_number
    )
    if purpose is not None:
        query = query.where(attempts.c.purpose == purpose)
    async with store.read() as conn:
        return {AttemptState(s): int(n) for s, n in await conn.execute(query.group_by(attempts.c.state))}


async def last_call(store: Store, trajectory_id: str) -> LastCall | None:
    """The newest main call of a trajectory, which tells an engine's fault from the agent's. None: no such call."""
    of_it = and_(calls.c.trajectory_id == trajectory_id, calls.c.turn_kind == TurnKind.MAIN)
    complete = select(func.count()).where(of_it, calls.c.state == CallState.COMPLETE).scalar_subquery()
    query = select(calls.c.state, calls.c.http_status, calls.c.error, complete).where(of_it)
    async with store.read() as conn:
        row = (await conn.execute(query.order_by(calls.c.started_at.desc()).limit(1))).first()
    return LastCall(CallState(row[0]), *row[1:]) if row else None

"""Close trajectories and groups, and decide what follows for a group.

Owns: ending trajectories, and making groups ready or excluding them, for many at once. Refuses: the rule
(`recorder.queue.groups.readiness`), finding a group (`recorder.queue.groups.lookup`), which group a call joins
(`recorder.capture.group_assignment`), judging.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import and_, exists, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.messages.trainability import Exclusion
from recorder.queue.groups import same_request
from recorder.queue.groups.call_kinds import settle_kinds
from recorder.queue.groups.lookup import baseline_column, group_row, is_function_measured
from recorder.queue.groups.readiness import (
    MEASURED,
    WAIT,
    GroupCode,
    GroupFacts,
    GroupVerdict,
    Readiness,
    ReadinessMember,
    closing_verdict_for,
    count_members,
    is_full,
    is_usable,
    readiness,
)
from recorder.queue.groups.uses import is_for_measurement
from recorder.settings import RecorderSettings
from recorder.states import CallState, GroupState, Origin, Purpose, TrajectoryState
from recorder.store import ledger, sql
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import attempts, calls, choices, groups, trajectories
from recorder.store.sql import now
from recorder.store.transitions import guarded_update, try_move_state


@dataclass(frozen=True, slots=True)
class TrajectoryEnd:
    """A trajectory to end, with its final state and reason."""

    trajectory_id: str
    state: TrajectoryState
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _GroupMember:
    """A member of a group, with the facts that the ledger needs."""

    id: str
    project_id: str
    end_reason: str | None
    member: ReadinessMember


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The state of a group after closing."""

    id: str
    state: GroupState
    reason: str | None


async def close_group(project: Project, group: str, own: str = "") -> GroupOutcome:
    """Close a group by its internal or external id: it becomes ready, measured or excluded.

    Closing twice changes nothing.

    The caller declares the group complete. So live members without a running call are completed; the others are
    `sealed-late`. `own`: the key family whose group of that name is preferred. Raises NotFound.
    """
    async with project.store.write() as conn:
        row = await group_row(conn, project.id, group, own, lock=True)
        if row.state == GroupState.OPEN:
            quiet = await _quiet_members(conn, row.id)
            await _end(conn, [TrajectoryEnd(id_, TrajectoryState.COMPLETED, "group_closed") for id_ in quiet])
            seats = (await _seats(conn, [row.id]))[row.id]
            facts = (await _facts(conn, [row.id], declared=False))[row.id]
            due = closing_verdict_for(facts, [seat.member for seat in seats])
            await _close(conn, row.id, await _without_attempts(conn, row.id, due, seats), seats)
        closed = (await conn.execute(select(groups).where(groups.c.id == row.id))).one()
        return GroupOutcome(closed.id, GroupState(closed.state), closed.reason)


async def trajectory_group(store: Store, trajectory_id: str) -> GroupOutcome | None:
    """Return the state of a trajectory's group, or None if it has none."""
    query = select(groups).join(trajectories, trajectories.c.group_id == groups.c.id)
    async with store.read() as conn:
        row = (await conn.execute(query.where(trajectories.c.id == trajectory_id))).one_or_none()
    return GroupOutcome(row.id, GroupState(row.state), row.reason) if row is not None else None


async def _quiet_members(conn: AsyncConnection, group_id: str) -> list[str]:
    busy = exists().where(calls.c.trajectory_id == trajectories.c.id, calls.c.state == CallState.OPEN)
    query = select(trajectories.c.id).where(
        trajectories.c.group_id == group_id,
        trajectories.c.state == TrajectoryState.OPEN,
        trajectories.c.origin == Origin.LIVE,
        ~busy,
    )
    return list((await conn.execute(query)).scalars())


async def close_trajectory(
    conn: AsyncConnection, trajectory_id: str, state: TrajectoryState, reason: str | None = None
) -> bool:
    """`close_trajectories` for one trajectory. Returns False if it had ended before."""
    return bool(await close_trajectories(conn, [TrajectoryEnd(trajectory_id, state, reason)]))


async def close_trajectories(conn: AsyncConnection, closings: Sequence[TrajectoryEnd]) -> set[str]:
    """End trajectories, and close the groups whose declared size they fill. Return the ids of those that were open.

    A trajectory without a complete answer is errored, not completed: there is nothing to judge. Of a first call with
    n>1 that was never continued, each choice becomes a trajectory. The number of statements does not grow with the
    number of trajectories.
    """
    group_ids = await lock_groups_of(conn, [closing.trajectory_id for closing in closings])
    ended = await _end(conn, closings)
    if ended:
        await close_due_groups(conn, group_ids)
    return ended


async def lock_groups_of(conn: AsyncConnection, trajectory_ids: Collection[str]) -> list[str]:
    """Lock the open groups of some trajectories (PostgreSQL), and return their ids.

    Otherwise two last members that end at the same time would each see the other as running. A transaction that locks
    groups and trajectories must lock the groups first, in the order of their ids; otherwise two transactions deadlock.
    """
    of = select(trajectories.c.group_id).where(trajectories.c.id.in_(trajectory_ids))
    query = select(groups.c.id).where(groups.c.id.in_(of), groups.c.state == GroupState.OPEN)
    return list((await conn.execute(query.order_by(groups.c.id).with_for_update())).scalars())


async def _end(conn: AsyncConnection, closings: Sequence[TrajectoryEnd]) -> set[str]:
    completing = [c.trajectory_id for c in closings if c.state == TrajectoryState.COMPLETED]
    await settle_kinds(conn, completing)
    answered = await same_request.filter_answered(conn, completing)
    unanswered = set(completing) - answered
    by_end: dict[tuple[TrajectoryState, str | None], list[str]] = defaultdict(list)
    for closing in closings:
        errored = (TrajectoryState.ERRORED, GroupCode.NO_COMPLETE_CALL)
        empty = closing.trajectory_id in unanswered
        by_end[errored if empty else (closing.state, closing.reason)].append(closing.trajectory_id)
    project_of: dict[str, str] = {}
    for (state, reason), ids in by_end.items():
        end = guarded_update(trajectories, state, ended_at=now(), end_reason=reason).where(trajectories.c.id.in_(ids))
        rows = await conn.execute(end.returning(trajectories.c.id, trajectories.c.project_id))
        project_of |= {row.id: row.project_id for row in rows}
    empty_ones = sorted(unanswered & project_of.keys())
    code = GroupCode.NO_COMPLETE_CALL
    await ledger.write_rows(conn, [LedgerRow(project_of[id_], "trajectory", id_, code) for id_ in empty_ones])
    await same_request.split_siblings(conn, answered & project_of.keys())
    return set(project_of)


async def close_due_groups(
    conn: AsyncConnection, group_ids: Collection[str], settings: RecorderSettings | None = None
) -> list[Readiness]:
    """Make the due groups among some open groups ready or measured, or exclude them. Return the verdicts.

    Without `settings` no timeout counts: only groups whose declared size is filled are due.
    """
    facts = await _facts(conn, group_ids, declared=settings is None)
    seats = await _seats(conn, facts)
    at = await sql.current_time(conn) if facts and settings is not None else 0.0
    verdicts = []
    for group_id, group in facts.items():
        members = [seat.member for seat in seats[group_id]]
        if settings is not None:
            due = readiness(group, members, at, settings)
        else:
            full = group.declared_size is not None and is_full(count_members(members), group.declared_size)
            due = closing_verdict_for(group, members) if full else WAIT
        if due != WAIT:
            due = await _without_attempts(conn, group_id, due, seats[group_id])
            await _close(conn, group_id, due, seats[group_id])
            verdicts.append(due)
    return verdicts


async def _facts(conn: AsyncConnection, group_ids: Collection[str], *, declared: bool) -> dict[str, GroupFacts]:
    if not group_ids:
        return {}
    g = groups.c
    columns = (
        g.id,
        g.declared_size,
        g.joined_at,
        g.last_call_at,
        g.campaign_id,
        baseline_column(),
        is_function_measured(),
    )
    query = select(*columns).where(groups.c.id.in_(group_ids), groups.c.state == GroupState.OPEN)
    if declared:
        query = query.where(groups.c.declared_size.is_not(None))
    rows = await conn.execute(query.order_by(groups.c.id).with_for_update())
    return {row.id: sql.as_view(GroupFacts, row) for row in rows}


async def _seats(conn: AsyncConnection, group_ids: Collection[str]) -> dict[str, list[_GroupMember]]:
    found: dict[str, list[_GroupMember]] = {group_id: [] for group_id in group_ids}
    if not found:
        return found
    t = trajectories.c
    columns = (t.id, t.group_id, t.project_id, t.end_reason, t.state, t.purpose, t.selection)
    for row in await conn.execute(select(*columns).where(t.group_id.in_(found)).order_by(t.id)):
        member = ReadinessMember(TrajectoryState(row.state), Purpose(row.purpose), row.selection)
        found[row.group_id].append(_GroupMember(row.id, row.project_id, row.end_reason, member))
    return found


async def _without_attempts(
    conn: AsyncConnection, group_id: str, due: Readiness, seats: Sequence[_GroupMember]
) -> Readiness:
    """Return the verdict, but `measured` for a group of a validation whose attempts all failed before a first call.

    It has no member that says what it is for; the planned attempts do.
    """
    if seats or due.verdict != GroupVerdict.LEFT_OUT:
        return due
    planned = and_(
        attempts.c.campaign_id == groups.c.campaign_id,
        attempts.c.group_external_id == groups.c.external_id,
        attempts.c.purpose.in_(sorted(MEASURED)),
    )
    found = await conn.execute(select(groups.c.id).where(groups.c.id == group_id, exists().where(planned)))
    return due if found.first() is None else Readiness(GroupVerdict.MEASURED, due.code)


async def _close(conn: AsyncConnection, group_id: str, due: Readiness, seats: Sequence[_GroupMember]) -> None:
    seats = await _seal(conn, group_id, seats)
    if due.verdict == GroupVerdict.MEASURED:
        await try_move_state(conn, groups, group_id, GroupState.MEASURED, reason=due.code, ready_at=now())
        return
    if due.verdict == GroupVerdict.LEFT_OUT:
        assert due.code is not None
        await try_move_state(conn, groups, group_id, GroupState.LEFT_OUT, reason=due.code, ready_at=now())
        await write_exclusions(conn, [group_id], due.code)
        return
    await try_move_state(conn, groups, group_id, GroupState.READY, ready_at=now())
    await ledger.write_rows(conn, _unjudged(group_id, seats))
    purposes = {m.purpose for m in (seat.member for seat in seats) if is_usable(m.state, m.purpose, m.selection)}
    if len(purposes) > 1 and Purpose.TRAIN in purposes:
        await write_exclusions(conn, [group_id], GroupCode.MIXED_PURPOSE, {"purposes": sorted(purposes)})
    elif Purpose.TRAIN in purposes and await _is_text_alone(conn, group_id):
        await write_exclusions(conn, [group_id], Exclusion.IDS_MISSING)


async def _is_text_alone(conn: AsyncConnection, group_id: str) -> bool:
    """Whether only other providers' models answered a group, so that it cannot be trained on.

    Its trajectories are still judged and exported.
    """
    answered = select(choices.c.call_id).join(calls, calls.c.id == choices.c.call_id)
    answered = answered.join(trajectories, trajectories.c.id == calls.c.trajectory_id)
    answered = answered.where(trajectories.c.group_id == group_id)
    provider_only = select(groups.c.id).where(
        groups.c.id == group_id,
        groups.c.alias_id.is_(None),
        answered.where(choices.c.untrainable_reason == Exclusion.IDS_MISSING).exists(),
        ~answered.where(choices.c.trainable).exists(),
    )
    return (await conn.execute(provider_only)).first() is not None


async def _seal(conn: AsyncConnection, group_id: str, seats: Sequence[_GroupMember]) -> list[_GroupMember]:
    """Seal the open members, because their group closes without them; return all members."""
    late = {seat.id for seat in seats if seat.member.state == TrajectoryState.OPEN}
    if late:
        seal = guarded_update(trajectories, TrajectoryState.SEALED_LATE, ended_at=now(), end_reason="group_closed")
        await conn.execute(seal.where(trajectories.c.group_id == group_id))
    return [
        replace(seat, member=replace(seat.member, state=TrajectoryState.SEALED_LATE)) if seat.id in late else seat
        for seat in seats
    ]


def _unjudged(group_id: str, seats: Iterable[_GroupMember]) -> list[LedgerRow]:
    """Return the ledger rows for members that are not judged with their group. Those of a measurement get none."""
    detail = {"group": group_id}
    return [
        LedgerRow(seat.project_id, "trajectory", seat.id, code, {**detail, "end_reason": seat.end_reason})
        for seat in seats
        if (code := _unjudged_code(seat)) is not None
    ]


def _unjudged_code(seat: _GroupMember) -> str | None:
    if seat.end_reason == GroupCode.NO_COMPLETE_CALL:  # written when the trajectory ended
        return None
    if seat.member.purpose in MEASURED:
        return None
    if seat.member.state != TrajectoryState.COMPLETED:
        return str(seat.member.state)
    return seat.member.selection or (GroupCode.PURPOSE_NONE if seat.member.purpose == Purpose.NONE else None)


async def list_for_measurement(conn: AsyncConnection, group_ids: Collection[str]) -> set[str]:
    """Return those of some groups that end as `measured`: not one that a trainer holds, which it should never have."""
    held = groups.c.state == GroupState.TRAINING
    query = select(groups.c.id).where(groups.c.id.in_(group_ids), ~held, is_for_measurement())
    return set((await conn.execute(query)).scalars())


async def write_exclusions(
    conn: AsyncConnection, group_ids: Sequence[str], code: str, detail: dict[str, Any] | None = None
) -> None:
    """Write a code to the ledger for groups and for each of their trajectories."""
    of_groups = select(groups.c.project_id, groups.c.id).where(groups.c.id.in_(group_ids))
    of_members = select(trajectories.c.project_id, trajectories.c.id, trajectories.c.group_id).where(
        trajectories.c.group_id.in_(group_ids)
    )
    rows = [LedgerRow(project, "group", group, code, detail) for project, group in await conn.execute(of_groups)]
    rows += [
        LedgerRow(project, "trajectory", member, code, {"group": group})
        for project, member, group in await conn.execute(of_members)
    ]
    await ledger.write_rows(conn, rows)

"""Groups: when one is ready to be judged, and closing groups and trajectories.

Owns: readiness as a pure function (contracts.md, 6), the transaction that readies a group or leaves it out.
Refuses: which group a call joins (`recorder.recorder`), judging.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder import ledger, siblings, sql
from recorder.errors import Conflict, NotFound
from recorder.ledger import LedgerRow
from recorder.schema import aliases, calls, groups, trajectories
from recorder.settings import RecorderSettings
from recorder.states import CallState, GroupState, Origin, Purpose, TrajectoryState
from recorder.store import Store, now
from recorder.transitions import guarded, try_move

MEASURED: Final = frozenset({Purpose.VAL, Purpose.EVAL})
ON_THE_WAY: Final = tuple(state for state in GroupState if state not in (GroupState.TRAINED, GroupState.LEFT_OUT))


class Verdict(StrEnum):
    """What should become of an open group."""

    WAIT = "wait"
    READY = "ready"
    LEFT_OUT = "left_out"


class GroupCode(StrEnum):
    """Why a group is left out, or what else the ledger says about it."""

    TOO_FEW = "too_few"  # fewer than two members that can be compared
    NO_COMPLETE_CALL = "no_complete_call"  # of a trajectory: no model ever answered it
    PURPOSE_NONE = "purpose_none"  # recorded, but its caller wanted it neither measured nor trained
    MIXED_PURPOSE = "mixed_purpose"  # judged, but never trained: not every member is there for training


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What readiness needs to know of a group. Times are unix seconds."""

    declared_size: int | None
    joined_at: float
    last_call_at: float


@dataclass(frozen=True, slots=True)
class Member:
    """What readiness needs to know of a trajectory."""

    state: TrajectoryState
    purpose: Purpose = Purpose.TRAIN
    selection: str | None = None


@dataclass(frozen=True, slots=True)
class Readiness:
    """The verdict; `code` says why a group is left out."""

    verdict: Verdict
    code: GroupCode | None = None


WAIT: Final = Readiness(Verdict.WAIT)


def usable(state: str, purpose: str, selection: str | None) -> bool:
    """Whether a member can be judged: it ended by itself, nobody chose another in its place, and it may be measured."""
    return state == TrajectoryState.COMPLETED and selection is None and purpose != Purpose.NONE


def counts_toward_size(member: Member) -> bool:
    """A re-run replaces an abandoned attempt, and an unchosen sibling was never an attempt of its own."""
    return member.state != TrajectoryState.ABANDONED and member.selection is None


def outcome(members: Sequence[Member]) -> Readiness:
    """What a group that waits for nobody becomes: two can be compared, one that is only measured can be scored."""
    able = [m for m in members if usable(m.state, m.purpose, m.selection)]
    needed = 1 if able and all(m.purpose in MEASURED for m in able) else 2
    if len(able) >= needed:
        return Readiness(Verdict.READY)
    unmeasured = any(m.purpose == Purpose.NONE for m in members)
    return Readiness(Verdict.LEFT_OUT, GroupCode.PURPOSE_NONE if unmeasured else GroupCode.TOO_FEW)


def complete(group: GroupFacts, members: Sequence[Member]) -> bool:
    """Rule (a): the declared size is reached and every member has ended."""
    if group.declared_size is None or any(m.state == TrajectoryState.OPEN for m in members):
        return False
    return sum(map(counts_toward_size, members)) >= group.declared_size


def readiness(group: GroupFacts, members: Sequence[Member], at: float, settings: RecorderSettings) -> Readiness:
    """What an open group becomes at time `at` (unix seconds), by contracts.md, 6 (a), (c) and the timeout."""
    if complete(group, members):
        return outcome(members)
    if group.declared_size is not None:
        return outcome(members) if at - group.last_call_at >= settings.group_timeout_s else WAIT
    running = any(m.state == TrajectoryState.OPEN for m in members)
    return WAIT if running or at - group.joined_at < settings.group_window_s else outcome(members)


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """A group after an attempt to close it."""

    id: str
    state: GroupState
    reason: str | None


async def declare(conn: AsyncConnection, group_id: str, size: int) -> None:
    """Set a group's size. Raises Conflict where another size was declared, ValueError below 1."""
    if size < 1:
        raise ValueError(f"a group's size must be at least 1, not {size}")
    same = or_(groups.c.declared_size.is_(None), groups.c.declared_size == size)
    statement = update(groups).where(groups.c.id == group_id, same).values(declared_size=size)
    if (await conn.execute(statement)).rowcount == 0:
        found = await _facts(conn, group_id)
        raise Conflict(f"group {group_id} was declared with size {found.declared_size}, not {size}: keep to one size")


async def find_group(store: Store, project_id: str, group: str) -> str:
    """The internal id of a group, given that or its external id (the newest of that name). Raises NotFound."""
    async with store.read() as conn:
        return str((await _find(conn, project_id, group)).id)


async def counts(store: Store, alias_id: str, campaign_id: str | None = None) -> dict[GroupState, int]:
    """How many groups an alias has in each state on the way to training; of a campaign, or of none. Fit for polling.

    Groups that are done with (trained, left out) and those that are not for training do not count.
    """
    foreign = exists().where(trajectories.c.group_id == groups.c.id, trajectories.c.purpose != Purpose.TRAIN)
    mine = groups.c.campaign_id.is_(None) if campaign_id is None else groups.c.campaign_id == campaign_id
    project = select(aliases.c.project_id).where(aliases.c.id == alias_id).scalar_subquery()
    on_the_way = (groups.c.project_id == project, groups.c.state.in_(ON_THE_WAY), groups.c.alias_id == alias_id)
    query = select(groups.c.state, func.count()).where(*on_the_way, mine, ~foreign)
    async with store.read() as conn:
        return {GroupState(state): int(n) for state, n in await conn.execute(query.group_by(groups.c.state))}


async def close_group(store: Store, project_id: str, group: str) -> GroupOutcome:
    """Close a group by its internal or external id: it becomes ready, or left out. Closing twice changes nothing.

    Its caller says that the group is over, so live members without a call in flight are completed; the others are
    sealed late. Raises NotFound.
    """
    async with store.write() as conn:
        row = await _find(conn, project_id, group)
        if row.state == GroupState.OPEN:
            for member in await _quiet_members(conn, row.id):
                await _end(conn, member, TrajectoryState.COMPLETED, "group_closed")
            await _close(conn, row.id, outcome(await _members(conn, row.id)))
        closed = (await conn.execute(select(groups).where(groups.c.id == row.id))).one()
        return GroupOutcome(closed.id, GroupState(closed.state), closed.reason)


async def _find(conn: AsyncConnection, project_id: str, group: str) -> Any:
    named = or_(groups.c.id == group, groups.c.external_id == group)
    query = select(groups.c.id, groups.c.state).where(groups.c.project_id == project_id, named)
    row = (await conn.execute(query.order_by(groups.c.sequence.desc()).limit(1))).first()
    if row is None:
        raise NotFound(f"no group {group!r} in project {project_id!r}: `hone groups` lists them")
    return row


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
    """End an open trajectory, and ready its group if that filled a declared size. False: it had ended before.

    One that no model ever answered is errored, not completed: there is nothing to judge. A first call with n>1 that
    was never continued becomes as many trajectories as it has choices (contracts.md, 5).
    """
    group_id = await _lock_group_of(conn, trajectory_id)
    if not await _end(conn, trajectory_id, state, reason):
        return False
    if group_id is not None:
        await settle(conn, group_id)
    return True


async def _end(conn: AsyncConnection, trajectory_id: str, state: TrajectoryState, reason: str | None) -> bool:
    if state != TrajectoryState.COMPLETED:
        return await try_move(conn, trajectories, trajectory_id, state, ended_at=now(), end_reason=reason)
    if not await siblings.has_answer(conn, trajectory_id):
        return await _error_unanswered(conn, trajectory_id)
    if not await try_move(conn, trajectories, trajectory_id, state, ended_at=now(), end_reason=reason):
        return False
    await siblings.split(conn, trajectory_id)
    return True


async def _error_unanswered(conn: AsyncConnection, trajectory_id: str) -> bool:
    code = GroupCode.NO_COMPLETE_CALL
    if not await try_move(conn, trajectories, trajectory_id, TrajectoryState.ERRORED, ended_at=now(), end_reason=code):
        return False
    project = select(trajectories.c.project_id).where(trajectories.c.id == trajectory_id)
    project_id = (await conn.execute(project)).scalar_one()
    await ledger.write(conn, [LedgerRow(project_id, "trajectory", trajectory_id, code)])
    return True


async def _lock_group_of(conn: AsyncConnection, trajectory_id: str) -> str | None:
    """The trajectory's group, locked (PostgreSQL), or two last members would each see the other as running."""
    of = select(trajectories.c.group_id).where(trajectories.c.id == trajectory_id).scalar_subquery()
    return (await conn.execute(select(groups.c.id).where(groups.c.id == of).with_for_update())).scalar_one_or_none()


async def settle(conn: AsyncConnection, group_id: str, settings: RecorderSettings | None = None) -> Readiness:
    """Ready an open group, or leave it out, if it is due. Without `settings` only the clockless rule counts."""
    state = (await conn.execute(select(groups.c.state).where(groups.c.id == group_id).with_for_update())).scalar_one()
    if state != GroupState.OPEN:
        return WAIT
    facts, members = await _facts(conn, group_id), await _members(conn, group_id)
    if settings is not None:
        due = readiness(facts, members, await sql.clock(conn), settings)
    else:
        due = outcome(members) if complete(facts, members) else WAIT
    if due.verdict != Verdict.WAIT:
        await _close(conn, group_id, due)
    return due


async def _facts(conn: AsyncConnection, group_id: str) -> GroupFacts:
    query = select(groups.c.declared_size, groups.c.joined_at, groups.c.last_call_at).where(groups.c.id == group_id)
    row = (await conn.execute(query)).first()
    if row is None:
        raise NotFound(f"no group {group_id}")
    return GroupFacts(*row)


async def _members(conn: AsyncConnection, group_id: str) -> list[Member]:
    columns = (trajectories.c.state, trajectories.c.purpose, trajectories.c.selection)
    rows = await conn.execute(select(*columns).where(trajectories.c.group_id == group_id))
    return [Member(TrajectoryState(state), Purpose(purpose), selection) for state, purpose, selection in rows]


async def _close(conn: AsyncConnection, group_id: str, due: Readiness) -> None:
    seal = guarded(trajectories, TrajectoryState.SEALED_LATE, ended_at=now(), end_reason="group_closed")
    await conn.execute(seal.where(trajectories.c.group_id == group_id))
    if due.verdict == Verdict.LEFT_OUT:
        assert due.code is not None
        await try_move(conn, groups, group_id, GroupState.LEFT_OUT, reason=due.code, ready_at=now())
        await write_left_out(conn, group_id, due.code)
        return
    await try_move(conn, groups, group_id, GroupState.READY, ready_at=now())
    await _write_unusable(conn, group_id)
    purposes = {m.purpose for m in await _members(conn, group_id) if usable(m.state, m.purpose, m.selection)}
    if len(purposes) > 1 and Purpose.TRAIN in purposes:
        await write_left_out(conn, group_id, GroupCode.MIXED_PURPOSE, {"purposes": sorted(purposes)})


async def _write_unusable(conn: AsyncConnection, group_id: str) -> None:
    """Write to the ledger why members of a group that is judged are not judged with it."""
    t = trajectories.c
    columns = (t.id, t.project_id, t.state, t.purpose, t.selection, t.end_reason)
    found = await conn.execute(select(*columns).where(t.group_id == group_id))
    await ledger.write(
        conn,
        [
            LedgerRow(row.project_id, "trajectory", row.id, code, {"group": group_id, "end_reason": row.end_reason})
            for row in found
            if (code := _unusable_code(row)) is not None
        ],
    )


def _unusable_code(row: Any) -> str | None:
    if row.end_reason == GroupCode.NO_COMPLETE_CALL:  # written when the trajectory ended
        return None
    if row.state != TrajectoryState.COMPLETED:
        return str(row.state)
    return row.selection or (GroupCode.PURPOSE_NONE if row.purpose == Purpose.NONE else None)


async def write_left_out(conn: AsyncConnection, group_id: str, code: str, detail: dict[str, Any] | None = None) -> None:
    """Write a code to the ledger for a group and for each of its trajectories."""
    project_id = (await conn.execute(select(groups.c.project_id).where(groups.c.id == group_id))).scalar_one()
    members = await conn.execute(select(trajectories.c.id).where(trajectories.c.group_id == group_id))
    of_members = [LedgerRow(project_id, "trajectory", id_, code, {"group": group_id}) for (id_,) in members]
    await ledger.write(conn, [LedgerRow(project_id, "group", group_id, code, detail), *of_members])

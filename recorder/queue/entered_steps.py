"""The training groups of a campaign that samples ahead: which have ended, and which step each entered.

Owns: reading them, writing the step of a group once, and ending those that no step takes, at the campaign's end.
Refuses: the choice (`trainer.campaign.pipeline`), and planning attempts (`recorder.queue.attempts`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from sqlalchemy import and_, case, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.attempt_rows import trajectories_of
from recorder.queue.groups.closure import TrajectoryEnd, close_trajectories, write_exclusions
from recorder.states import AttemptState, GroupState, Purpose, TrajectoryState
from recorder.store.database import Store
from recorder.store.schema import attempts, groups
from recorder.store.sql import now
from recorder.store.transitions import guarded_update

CAMPAIGN_ENDED: Final = "campaign_ended"  # why a group that no step took is excluded
_WAITS: Final = (AttemptState.PENDING, AttemptState.RUNNING)
_UNUSED: Final = (
    GroupState.OPEN, GroupState.READY, GroupState.JUDGING, GroupState.UNSCORED, GroupState.SCORED,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """A group that no step has taken. `ended_at`: when its last attempt ended (unix seconds); None: one waits or runs.

    `ended`: how many of its attempts have ended.
    """

    name: str  # its external id
    scenario_id: str
    planned_step: int
    ended_at: float | None
    ended: int


async def list_waiting_groups(store: Store, campaign_id: str) -> list[PlannedGroup]:
    """Return the training groups that no step has taken, in the order in which they were planned."""
    a = attempts.c
    left = func.sum(case((a.state.in_(_WAITS), 1), else_=0))
    query = (
        select(
            a.group_external_id,
            a.scenario_id,
            a.step_number,
            left.label("left"),
            func.max(a.ended_at).label("ended_at"),
            func.sum(case((a.state.in_((AttemptState.DONE, AttemptState.ERRORED)), 1), else_=0)).label("ended"),
        )
        .where(a.campaign_id == campaign_id, a.purpose == Purpose.TRAIN, a.entered_step.is_(None))
        .group_by(a.group_external_id, a.scenario_id, a.step_number)
        .order_by(a.step_number, a.group_external_id)
    )
    async with store.read() as conn:
        return [
            PlannedGroup(
                row.group_external_id,
                row.scenario_id,
                row.step_number,
                None if row.left else row.ended_at,
                int(row.ended),
            )
            for row in await conn.execute(query)
        ]


async def list_entered_groups(store: Store, campaign_id: str, step: int) -> dict[str, str]:
    """Return the groups that entered a step: the scenario of each, by the group's external id."""
    a = attempts.c
    query = select(a.group_external_id, a.scenario_id).where(a.campaign_id == campaign_id, a.entered_step == step)
    async with store.read() as conn:
        rows = await conn.execute(query.distinct().order_by(a.group_external_id))
        return {row.group_external_id: row.scenario_id for row in rows}


async def list_taken_ids(store: Store, campaign_id: str, step: int) -> list[str]:
    """Return the ids of the groups that entered this step or an earlier one."""
    a = attempts.c
    names = select(a.group_external_id).where(a.campaign_id == campaign_id, a.entered_step <= step)
    query = select(groups.c.id).where(groups.c.campaign_id == campaign_id, groups.c.external_id.in_(names))
    async with store.read() as conn:
        return list((await conn.execute(query.order_by(groups.c.id))).scalars())


async def last_planned_step(store: Store, campaign_id: str) -> int:
    """Return the last step whose training attempts are planned; 0: none is."""
    query = select(func.max(attempts.c.step_number)).where(
        attempts.c.campaign_id == campaign_id, attempts.c.purpose == Purpose.TRAIN
    )
    async with store.read() as conn:
        return int((await conn.execute(query)).scalar_one() or 0)


async def count_planned_groups(store: Store, campaign_id: str, step: int) -> int:
    """Return how many groups were planned for a step."""
    a = attempts.c
    query = select(func.count(a.group_external_id.distinct())).where(
        a.campaign_id == campaign_id, a.purpose == Purpose.TRAIN, a.step_number == step
    )
    async with store.read() as conn:
        return int((await conn.execute(query)).scalar_one())


async def samples_ahead(store: Store, campaign_id: str) -> bool:
    """Return whether a step of the campaign was made of the groups that entered it."""
    query = select(attempts.c.id).where(attempts.c.campaign_id == campaign_id, attempts.c.entered_step.is_not(None))
    async with store.read() as conn:
        return (await conn.execute(query.limit(1))).first() is not None


async def enter_groups(store: Store, campaign_id: str, step: int, names: Collection[str]) -> None:
    """Write that groups entered a step, all in one transaction. Groups that a step has taken stay where they are."""
    a = attempts.c
    statement = update(attempts).where(
        a.campaign_id == campaign_id,
        a.purpose == Purpose.TRAIN,
        a.group_external_id.in_(sorted(names)),
        a.entered_step.is_(None),
    )
    async with store.write() as conn:
        await conn.execute(statement.values(entered_step=step))


async def enter_earlier_steps(store: Store, campaign_id: str, done: int) -> None:
    """Let the groups of `done` steps that were made without sampling ahead have entered the step they were planned for.

    So none of them waits for another step.
    """
    a, other = attempts.c, attempts.alias("entered").c
    entered = select(other.entered_step).where(other.campaign_id == campaign_id, other.entered_step.is_not(None))
    statement = update(attempts).where(
        a.campaign_id == campaign_id,
        a.purpose == Purpose.TRAIN,
        a.step_number <= done,
        a.entered_step.is_(None),
        a.step_number.not_in(entered),
    )
    async with store.write() as conn:
        await conn.execute(statement.values(entered_step=a.step_number))


async def end_waiting_groups(store: Store, campaign_id: str) -> int:
    """End the attempts of groups that no step took, and exclude the groups; return how many attempts had begun.

    Nothing else may run attempts of the campaign meanwhile.
    """
    a = attempts.c
    mine = and_(a.campaign_id == campaign_id, a.purpose == Purpose.TRAIN, a.entered_step.is_(None))
    ends = {"error": CAMPAIGN_ENDED, "ended_at": now(), "lease_owner": None, "lease_expires_at": None}
    async with store.write() as conn:
        begun = (
            await conn.execute(select(func.count()).select_from(attempts).where(mine, a.started_at.is_not(None)))
        ).scalar_one()
        names = sorted((await conn.execute(select(a.group_external_id).where(mine).distinct())).scalars())
        gone = guarded_update(attempts, AttemptState.ABANDONED, expect=_WAITS, **ends)
        rows = (await conn.execute(gone.where(mine).returning(attempts))).all()
        await _exclude(conn, campaign_id, names)
        runs = await trajectories_of(conn, rows) if rows else {}
        await close_trajectories(
            conn, [TrajectoryEnd(id_, TrajectoryState.ABANDONED, CAMPAIGN_ENDED) for id_ in sorted(runs.values())]
        )
    return int(begun)


async def _exclude(conn: AsyncConnection, campaign_id: str, names: Collection[str]) -> None:
    mine = and_(groups.c.campaign_id == campaign_id, groups.c.external_id.in_(names))
    locked = select(groups.c.id).where(mine).order_by(groups.c.id).with_for_update()
    ids = list((await conn.execute(locked)).scalars())
    out = guarded_update(
        groups,
        GroupState.LEFT_OUT,
        expect=_UNUSED,
        reason=CAMPAIGN_ENDED,
        ready_at=func.coalesce(groups.c.ready_at, now()),
        lease_owner=None,
        lease_expires_at=None,
        try_after=None,
    )
    gone = (await conn.execute(out.where(groups.c.id.in_(ids)).returning(groups.c.id))).scalars()
    await write_exclusions(conn, sorted(gone), CAMPAIGN_ENDED)

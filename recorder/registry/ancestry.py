"""Ancestry: what versions were trained on, as versions are accepted, rolled back or rejected.

Owns: which groups and trajectories count as trained (`trained`, `untrained` in the ledger: a trajectory's newest row
counts), and what happens to the groups of a version that is not accepted. All functions run in the transaction that
decides on the version. Refuses: deciding (`recorder.registry.alias_moves` moves the alias, `recorder.registry.versions`
a version), and steps (`recorder.queue.training.steps`).

An alias counts as trained on what its live version and that version's ancestors were trained on. So after a move, the
versions that enter and leave the ancestry are the difference of two chains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Select, and_, func, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.states import GroupState, StepState
from recorder.store import ledger
from recorder.store.ledger import TRAINED, UNTRAINED, LedgerRow
from recorder.store.schema import aliases, groups, step_groups, step_trajectories, steps, versions
from recorder.store.schema import ledger as ledger_table
from recorder.store.transitions import guarded_update

Lessons = Literal["again", "left_out"]

VERSION_REJECTED: Final = "version_rejected"  # of a group: its version behaved badly, or was rolled back
VERSIONS_FAILED: Final = "versions_failed"  # of a group: too many of its versions never went live
OF_VERSIONS: Final = (VERSION_REJECTED, VERSIONS_FAILED)  # reasons that concern the version, and not the group
GIVEN_BACK: Final = "given_back"  # of a group: it may be trained on again
RETURNS: Final = 2  # how often a group may be returned: if three versions fail, the group is at fault
_BACK: Final = (GroupState.TRIED, GroupState.TRAINING, GroupState.SCORED)
_WITHOUT_LEASE: Final[Mapping[str, Any]] = {"lease_owner": None, "lease_expires_at": None}


def ancestry_ages(version_id: str) -> Select[Any]:
    """The query for the ids of a version and its ancestors, each with its number of steps back (`age`)."""
    own = select(versions.c.id, versions.c.parent_id, literal(0).label("age")).where(versions.c.id == version_id)
    line = own.cte("line", recursive=True)
    older = select(versions.c.id, versions.c.parent_id, line.c.age + 1).where(versions.c.id == line.c.parent_id)
    line = line.union_all(older)
    return select(line.c.id, line.c.age).order_by(line.c.age)


async def move_ancestry(conn: AsyncConnection, left: str | None, live: str, *, why: str, who: str) -> None:
    """Record that the alias moved from the version `left` to `live`.

    Trajectories of versions that left the ancestry become untrained; those of versions that entered it become trained.
    """
    before, after = await _line(conn, left), await _line(conn, live)
    await _take_back(conn, before - after, {"why": why, "who": who})
    await _accept(conn, after - before)


async def _line(conn: AsyncConnection, version_id: str | None) -> set[str]:
    return {row.id for row in await conn.execute(ancestry_ages(version_id))} if version_id else set()


async def _accept(conn: AsyncConnection, version_ids: Collection[str]) -> None:
    accepted = guarded_update(groups, GroupState.TRAINED, reason=None, try_after=None, **_WITHOUT_LEASE)
    await conn.execute(accepted.where(_of(version_ids)))
    await _write_runs(conn, version_ids, TRAINED, {})


async def _take_back(conn: AsyncConnection, version_ids: Collection[str], detail: Mapping[str, Any]) -> None:
    await _leave_out(conn, and_(_of(version_ids), groups.c.state == GroupState.TRAINED), VERSION_REJECTED, detail)
    await _write_runs(conn, version_ids, UNTRAINED, detail)


async def end_version(conn: AsyncConnection, version_id: str, lessons: Lessons, reason: str | None) -> None:
    """End a version that is not accepted: return the groups it was trained on, or exclude them (`lessons`)."""
    tried = and_(_of([version_id]), groups.c.state == GroupState.TRIED)
    detail = {"version": await _name(conn, version_id), "reason": reason}
    if lessons == "left_out":
        await _leave_out(conn, tried, VERSION_REJECTED, detail)
    else:
        await give_back(conn, tried, detail)


async def give_back(conn: AsyncConnection, these: ColumnElement[bool], detail: Mapping[str, Any]) -> None:
    """Allow groups to be trained on again, `RETURNS` times.

    These are tried groups, groups that a trainer held, and groups of a dead trainer that are `scored` again already.
    """
    await _leave_out(conn, and_(these, _returns() >= RETURNS), VERSIONS_FAILED, detail)
    back = list(await conn.execute(select(groups.c.id, groups.c.project_id).where(these, groups.c.state.in_(_BACK))))
    freed = guarded_update(groups, GroupState.SCORED, expect=(GroupState.TRIED, GroupState.TRAINING), **_WITHOUT_LEASE)
    await conn.execute(freed.where(groups.c.id.in_([row.id for row in back])))
    await _write(conn, back, GIVEN_BACK, detail)


def _returns() -> ColumnElement[int]:
    """A column: how often a group was returned since it was last excluded (a person may request it again)."""
    back, up = ledger_table.alias("back"), ledger_table.alias("up")
    given_up = select(func.coalesce(func.max(up.c.id), 0)).where(
        up.c.object_kind == "group", up.c.object_id == back.c.object_id, up.c.code == VERSIONS_FAILED
    )
    rows = select(func.count()).where(
        back.c.object_kind == "group",
        back.c.object_id == groups.c.id,
        back.c.code == GIVEN_BACK,
        back.c.id > given_up.correlate(back).scalar_subquery(),
    )
    return rows.correlate(groups).scalar_subquery()


async def _leave_out(conn: AsyncConnection, these: ColumnElement[bool], code: str, detail: Mapping[str, Any]) -> None:
    out = guarded_update(groups, GroupState.LEFT_OUT, reason=code, **_WITHOUT_LEASE).where(these)
    await _write(conn, await _moved(conn, out), code, detail)


async def _moved(conn: AsyncConnection, statement: Any) -> Sequence[Any]:
    return list(await conn.execute(statement.returning(groups.c.id, groups.c.project_id)))


async def _write(conn: AsyncConnection, moved: Sequence[Any], code: str, detail: Mapping[str, Any]) -> None:
    await ledger.write_rows(conn, [LedgerRow(row.project_id, "group", row.id, code, dict(detail)) for row in moved])


async def _write_runs(
    conn: AsyncConnection, version_ids: Collection[str], code: str, detail: Mapping[str, Any]
) -> None:
    """Write a ledger row for each trajectory that these versions were trained on."""
    query = (
        select(step_trajectories.c.trajectory_id, steps.c.project_id, aliases.c.name, versions.c.number)
        .join(steps, steps.c.id == step_trajectories.c.step_id)
        .join(versions, versions.c.id == steps.c.version_id)
        .join(aliases, aliases.c.id == versions.c.alias_id)
        .where(_made(version_ids))
        .order_by(versions.c.number, step_trajectories.c.trajectory_id)
    )
    rows = [
        LedgerRow(
            row.project_id, "trajectory", row.trajectory_id, code, {"version": f"{row.name}@{row.number}", **detail}
        )
        for row in await conn.execute(query)
    ]
    await ledger.write_rows(conn, rows)


def _made(version_ids: Collection[str]) -> ColumnElement[bool]:
    return and_(steps.c.version_id.in_(sorted(version_ids)), steps.c.state == StepState.DONE)


def _of(version_ids: Collection[str]) -> ColumnElement[bool]:
    """A column: whether the steps that made these versions used a group."""
    used = select(step_groups.c.group_id).join(steps, steps.c.id == step_groups.c.step_id)
    return groups.c.id.in_(used.where(_made(version_ids)))


async def _name(conn: AsyncConnection, version_id: str) -> str:
    query = select(aliases.c.name, versions.c.number).join(aliases, aliases.c.id == versions.c.alias_id)
    row = (await conn.execute(query.where(versions.c.id == version_id))).one()
    return f"{row.name}@{row.number}"

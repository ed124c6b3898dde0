"""The rows behind an attempt: the trajectory that it opens, and the attempt that replaces an abandoned one.

Owns: creating those rows, for many attempts at once. Refuses: claiming and ending attempts (`recorder.queue.attempts`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, exists, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import new_id
from recorder.queue.campaigns import Scenario
from recorder.states import AttemptState, GroupState, Origin, Purpose, TrajectoryState
from recorder.store import sql
from recorder.store.changes import mark_quiet
from recorder.store.schema import attempts, campaigns, groups, scenarios, trajectories
from recorder.store.sql import now
from recorder.store.transitions import guarded_update

GROUP_CLOSED: Final[Mapping[str, Any]] = {
    "error": "group_closed",
    "ended_at": now(),
    "lease_owner": None,
    "lease_expires_at": None,
}


@dataclass(frozen=True, slots=True)
class AttemptView:
    """A claimed attempt: everything that a runner needs. Held by `owner` until `expires_at` (unix seconds)."""

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


def group_is_open() -> ColumnElement[bool]:
    """Whether an attempt's group still accepts members."""
    return exists().where(
        groups.c.project_id == attempts.c.project_id,
        groups.c.external_id == attempts.c.group_external_id,
        groups.c.campaign_id == attempts.c.campaign_id,
        groups.c.state == GroupState.OPEN,
    )


async def open_trajectories(conn: AsyncConnection, rows: Sequence[Row[Any]]) -> list[AttemptView]:
    """Open a trajectory for each claimed attempt."""
    tasks = await _scenarios(conn, {row.scenario_id for row in rows})
    joined = await _join_groups(conn, rows)
    origins = await _origins(conn, {row.campaign_id for row in rows})
    made = [(row, joined[row.group_external_id], new_id("traj")) for row in rows if row.group_external_id in joined]
    if made:
        await conn.execute(
            mark_quiet(insert(trajectories)),
            [_trajectory_row(row, group, id_) | {"origin": origins[row.campaign_id]} for row, group, id_ in made],
        )
    late = [row.id for row in rows if row.group_external_id not in joined]
    if late:  # their group closed between the claim and now (PostgreSQL)
        await conn.execute(
            guarded_update(attempts, AttemptState.ABANDONED, **GROUP_CLOSED).where(attempts.c.id.in_(late))
        )
    return [_view(row, tasks[row.scenario_id], group.id, id_) for row, group, id_ in made]


async def _scenarios(conn: AsyncConnection, ids: Collection[str]) -> dict[str, Scenario]:
    found = await conn.execute(select(scenarios).where(scenarios.c.id.in_(ids)))
    return {row.id: sql.as_view(Scenario, row) for row in found}


async def _origins(conn: AsyncConnection, ids: Collection[str]) -> dict[str, Origin]:
    """Return the origin of each campaign's attempts: an agent, or a replay of the record."""
    found = await conn.execute(select(campaigns.c.id, campaigns.c.settings).where(campaigns.c.id.in_(ids)))
    return {id_: Origin.REPLAY if settings.get("replay") else Origin.CAMPAIGN for id_, settings in found}


async def _join_groups(conn: AsyncConnection, rows: Sequence[Row[Any]]) -> dict[str, Row[Any]]:
    """Set the join time of the attempts' groups to now; return the open groups, by external id."""
    if not rows:
        return {}
    join = mark_quiet(
        update(groups)
        .where(
            groups.c.project_id == rows[0].project_id,
            groups.c.external_id.in_({row.group_external_id for row in rows}),
            groups.c.campaign_id == rows[0].campaign_id,
            groups.c.state == GroupState.OPEN,
        )
        .values(joined_at=now(), last_call_at=now())
        .returning(groups.c.id, groups.c.external_id, groups.c.alias_id, groups.c.joined_at)
    )
    return {row.external_id: row for row in await conn.execute(join)}


def _trajectory_row(row: Row[Any], group: Row[Any], trajectory_id: str) -> dict[str, Any]:
    return {
        "id": trajectory_id,
        "project_id": row.project_id,
        "group_id": group.id,
        "alias_id": group.alias_id,
        "address_group": row.group_external_id,
        "external_id": row.trajectory_external_id,
        "state": TrajectoryState.OPEN,
        "purpose": row.purpose,
        "tags": {},
        "started_at": group.joined_at,
        "last_call_at": group.joined_at,
        "made_by": row.campaign_id,  # its agents' key belongs to the campaign's key family
    }


def _view(row: Row[Any], scenario: Scenario, group_id: str, trajectory_id: str) -> AttemptView:
    return sql.as_view(
        AttemptView,
        row,
        scenario=scenario,
        purpose=Purpose(row.purpose),
        try_number=row._mapping["try"],
        group_id=group_id,
        trajectory_id=trajectory_id,
        owner=row.lease_owner,
        epoch=row.lease_epoch,
        expires_at=row.lease_expires_at,
    )


async def trajectories_of(conn: AsyncConnection, rows: Sequence[Row[Any]]) -> dict[tuple[str, str], str]:
    """Return the ids of the attempts' trajectories, by address."""
    t = trajectories.c
    query = select(t.id, t.address_group, t.external_id).where(
        t.project_id.in_({row.project_id for row in rows}),
        t.address_group.in_({row.group_external_id for row in rows}),
        t.external_id.in_({row.trajectory_external_id for row in rows}),
        t.sequence == 0,
    )
    return {(row.address_group, row.external_id): row.id for row in await conn.execute(query)}


async def plan_again(conn: AsyncConnection, attempt_ids: Collection[str]) -> None:
    """Plan attempts once more, each with its number of tries raised by one and a new trajectory."""
    if not attempt_ids:
        return
    found = await conn.execute(select(attempts).where(attempts.c.id.in_(attempt_ids)).order_by(attempts.c.id))
    await conn.execute(insert(attempts), [_again(dict(row)) for row in found.mappings()])


def _again(row: dict[str, Any]) -> dict[str, Any]:
    kept = ("project_id", "campaign_id", "scenario_id", "step_number", "purpose", "number", "group_external_id")
    tries, external = row["try"] + 1, row["trajectory_external_id"]
    base = external.rsplit("~", 1)[0] if row["try"] else external
    own = {"id": new_id("att"), "try": tries, "state": AttemptState.PENDING}
    return {**{name: row[name] for name in kept}, **own, "trajectory_external_id": f"{base}~{tries}"}

"""The uses of a trajectory by objectives other than `group`, whose steps `outcome` has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import String, cast, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.states import StepState, VersionState
from recorder.store import sql
from recorder.store.schema import aliases, steps, uses, versions


@dataclass(frozen=True, slots=True)
class ObjectiveUseView:
    """A step in which an objective used the trajectory. `times`: its passes over it."""

    objective: str
    times: int
    step_id: str
    number: int
    version: str | None
    version_state: VersionState | None
    ended_at: float | None


async def load_objective_uses(conn: AsyncConnection, source_id: str) -> tuple[ObjectiveUseView, ...]:
    """Return the uses of a trajectory, or of a row of a file, by finished steps; the oldest first."""
    name = aliases.c.name + "@" + cast(versions.c.number, String)
    query = (
        select(
            uses.c.objective, uses.c.times, steps.c.id.label("step_id"), steps.c.number, steps.c.ended_at,
            name.label("version"), versions.c.state.label("version_state"),
        )
        .join(steps, steps.c.id == uses.c.step_id)
        .outerjoin(versions, versions.c.id == steps.c.version_id)
        .outerjoin(aliases, aliases.c.id == versions.c.alias_id)
        .where(uses.c.source_id == source_id, steps.c.state == StepState.DONE)
        .order_by(steps.c.alias_id, steps.c.number, uses.c.objective)
    )  # fmt: skip
    rows: Sequence[Any] = (await conn.execute(query)).all()
    return tuple(
        sql.as_view(ObjectiveUseView, row, version_state=VersionState(row.version_state) if row.version_state else None)
        for row in rows
    )

"""What the objectives of a step used: trajectories, and rows of files.

Owns: writing and counting uses. Refuses: how often an objective may use a datum (its settings), and the trajectories of
scored groups (`step_trajectories`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.registry.ancestry import ancestry_ages
from recorder.states import StepState
from recorder.store.database import Store
from recorder.store.schema import steps, uses

_PAGE: Final = 500  # ids per SELECT


@dataclass(frozen=True, slots=True)
class ObjectiveUse:
    """A use of one datum by an objective in a step.

    `kind`: `trajectory`, `file`, `pair` or `turn`. `times`: the passes over it.
    """

    objective: str
    kind: str
    source_id: str
    times: int = 1


async def write_uses(conn: AsyncConnection, step_id: str, used: Sequence[ObjectiveUse]) -> None:
    """Write the uses of a step, in the transaction that makes the step visible."""
    for at in range(0, len(used), _PAGE):
        await conn.execute(insert(uses), [{"step_id": step_id, **asdict(one)} for one in used[at : at + _PAGE]])


async def count_uses(
    store: Store, objective: str, source_ids: Sequence[str], version_id: str, since: Mapping[str, float] | None = None
) -> dict[str, int]:
    """Return how often a version and its ancestors were trained on each datum by an objective; without zeros.

    A version that was rejected or rolled back is in no ancestry: what it used may be used again. `since`: unix seconds
    before which steps do not count, of data that changed then.
    """
    changed = since or {}
    found: dict[str, int] = {}
    for at in range(0, len(source_ids), _PAGE):
        line = ancestry_ages(version_id).subquery()
        query = (
            select(uses.c.source_id, uses.c.times, steps.c.ended_at)
            .join(steps, steps.c.id == uses.c.step_id)
            .join(line, line.c.id == steps.c.version_id)
            .where(uses.c.objective == objective, uses.c.source_id.in_(source_ids[at : at + _PAGE]))
            .where(steps.c.state == StepState.DONE)
        )
        async with store.read() as conn:
            for id_, times, ended_at in await conn.execute(query):
                if ended_at > changed.get(id_, 0):
                    found[id_] = found.get(id_, 0) + times
    return found

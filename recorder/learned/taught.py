"""What a training step came to, by its runs: how many were trained on, and why others of its groups were not.

Owns: counting them from the store, for whoever was not there when the step was made. Refuses: the step's own figures
(`recorder.work.steps`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import func, select

from recorder.states import TrajectoryState
from recorder.store.database import Store
from recorder.store.ledger import TRAINED, UNTRAINED
from recorder.store.schema import ledger, step_trajectories, trajectories


@dataclass(frozen=True, slots=True)
class Taught:
    """Of the runs of some groups: how many a step was trained on, and the others by why not."""

    trained: int
    left_out: dict[str, int]


async def taught(store: Store, step_id: str | None, group_ids: Collection[str]) -> Taught:
    """What a step made of all runs of these groups; without a step they were all left out.

    A run that did not complete counts as what became of it, any other by the newest reason that the ledger has.
    """
    said, t = ledger.alias("said"), trajectories.c
    newest = (
        select(func.max(said.c.id))
        .where(said.c.object_kind == "trajectory", said.c.object_id == t.id, said.c.code.not_in((TRAINED, UNTRAINED)))
        .correlate(trajectories)
        .scalar_subquery()
    )
    own = select(step_trajectories.c.trajectory_id).where(step_trajectories.c.step_id == step_id)
    query = (
        select(t.id.in_(own).label("trained"), t.state, ledger.c.code)
        .select_from(trajectories)
        .outerjoin(ledger, ledger.c.id == newest)
        .where(t.group_id.in_(group_ids))
    )
    async with store.read() as conn:
        rows = (await conn.execute(query)).all()
    others = Counter(_why(row.state, row.code) for row in rows if not row.trained)
    return Taught(sum(row.trained for row in rows), dict(sorted(others.items())))


def _why(state: str, code: str | None) -> str:
    return code if state == TrajectoryState.COMPLETED and code is not None else state

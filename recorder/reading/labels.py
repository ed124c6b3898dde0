"""What people said of the runs of groups, to hold a judge against: preferences, and feedback that is a number.

Owns: the queries. Refuses: what a judge said, and what comes of the two (`judge.calibration`).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import select

from recorder.store.project import Project
from recorder.store.schema import feedback, trajectories
from recorder.work.feedback import PREFERENCE, TIE, choice_of


@dataclass(frozen=True, slots=True)
class Preferred:
    """One attempt of a group that somebody found better than another, or as good as it (`tie`); all by their ids."""

    group: str
    better: str
    worse: str
    tie: bool = False


async def preferences(project: Project) -> list[Preferred]:
    """All that were said of two attempts of one group, the oldest first."""
    query = (
        select(feedback.c.trajectory_id, feedback.c.name, feedback.c.value, feedback.c.tags)
        .where(feedback.c.project_id == project.id, feedback.c.name.in_((PREFERENCE, TIE)))
        .order_by(feedback.c.created_at, feedback.c.id)
    )
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    told = [(row.tags, choice_of(row.trajectory_id, row.name, row.value, row.tags)) for row in rows]
    return [
        Preferred(str(tags["group"]), choice.better, choice.worse, choice.tie)
        for tags, choice in told
        if choice is not None and tags.get("group") and not tags.get("other_group")
    ]


async def rated(project: Project, name: str) -> dict[str, dict[str, float]]:
    """The newest feedback of that name on each run, where it is a number or yes or no: group → run → value."""
    query = (
        select(feedback.c.trajectory_id, feedback.c.value, trajectories.c.group_id)
        .join(trajectories, trajectories.c.id == feedback.c.trajectory_id)
        .where(feedback.c.project_id == project.id, feedback.c.name == name, trajectories.c.group_id.is_not(None))
        .order_by(feedback.c.created_at, feedback.c.id)
    )
    found: dict[str, dict[str, float]] = {}
    async with project.store.read() as conn:
        for row in (await conn.execute(query)).all():
            if isinstance(row.value, int | float):
                found.setdefault(row.group_id, {})[row.trajectory_id] = float(row.value)
    return found

"""What answering live turns again has cost, by alias, as recorded.

Owns: that sum. Refuses: bounding it (the proxy does).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, func, select

from recorder.ids import first_id_at
from recorder.states import Origin, Purpose
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import aliases, calls, trajectories
from recorder.store.statement import equals

LASTS_S: Final = 3600.0  # a run of an answer given again is over by then


@dataclass(frozen=True, slots=True)
class ShadowCost:
    """Further answers to an alias's live turns, and their tokens."""

    alias: str
    answers: int
    prompt_tokens: int
    sampled_tokens: int

    @property
    def tokens(self) -> int:
        """Read and sampled."""
        return self.prompt_tokens + self.sampled_tokens


async def shadow_costs(project: Project, since: float) -> list[ShadowCost]:
    """What was answered again since a time (unix seconds), by the alias's name; an alias without any is not there."""

    def tokens(kind: str) -> ColumnElement[int]:
        return func.coalesce(func.sum(calls.c.usage[kind].as_integer()), 0)

    t = trajectories.c
    answered_again = select(t.id).where(
        t.project_id == project.id,
        equals(t.origin, Origin.SHADOW),  # the word, as the index has it
        t.purpose == Purpose.TRAIN,
        t.id >= first_id_at("traj", since - LASTS_S),
    )
    query = (
        select(aliases.c.name, func.count(), tokens("prompt_tokens"), tokens("completion_tokens"))
        .join(aliases, aliases.c.id == calls.c.alias_id)
        .where(
            calls.c.trajectory_id.in_(answered_again),
            sql.passed_by(calls.c.id) >= first_id_at("call", since),  # of its few calls, not of all since then
        )
    )
    async with project.store.read() as conn:
        rows = await conn.execute(query.group_by(aliases.c.name).order_by(aliases.c.name))
        return [ShadowCost(*row) for row in rows]

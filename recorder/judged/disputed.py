"""Groups about which judges disagree: they wait for a person.

Owns: which those are, and the code. Refuses: what a person chooses (`recorder.work.feedback`), scoring it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.states import GroupState
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import aliases, groups, scores

CODE: Final = "judges_disagree"
MOST: Final = 200


@dataclass(frozen=True, slots=True)
class Disputed:
    """One of them. `score_id`: the judges' words and parts, which do not count. `at`: when it was judged (unix s)."""

    group_id: str
    external_id: str | None
    alias: str | None
    campaign_id: str | None
    score_id: str
    agreement: float
    at: float


def is_disputed() -> ColumnElement[bool]:
    """Whether a group waits for a person, as a column: no judge takes it again by itself."""
    return and_(groups.c.state == GroupState.UNSCORED, groups.c.reason == CODE)


def agreement_of_dispute() -> ColumnElement[float | None]:
    """How far the judges of a group agree that waits for a person, as a column; null for any other group."""
    newest = select(scores.c.agreement).where(scores.c.group_id == groups.c.id, is_disputed())
    newest = newest.order_by(scores.c.created_at.desc(), scores.c.id.desc()).limit(1)
    return newest.correlate(groups).scalar_subquery()


async def disputed(project: Project, *, limit: int = MOST) -> list[Disputed]:
    """The groups of a project that wait, those that judges agree about least first."""
    newest = select(scores.c.id).where(scores.c.group_id == groups.c.id, scores.c.agreement.is_not(None))
    newest = newest.order_by(scores.c.created_at.desc(), scores.c.id.desc()).limit(1).correlate(groups)
    query = (
        select(
            groups.c.id.label("group_id"),
            groups.c.external_id,
            aliases.c.name.label("alias"),
            groups.c.campaign_id,
            scores.c.id.label("score_id"),
            scores.c.agreement,
            scores.c.created_at.label("at"),
        )
        .join(scores, scores.c.id == newest.scalar_subquery())
        .outerjoin(aliases, aliases.c.id == groups.c.alias_id)
        .where(groups.c.project_id == project.id, is_disputed())
        .order_by(scores.c.agreement, groups.c.id)
        .limit(limit)
    )
    async with project.store.read() as conn:
        return sql.views(Disputed, list(await conn.execute(query)))


async def waiting_for_person(conn: AsyncConnection, project_id: str) -> int:
    """How many wait."""
    query = select(func.count()).select_from(groups).where(groups.c.project_id == project_id, is_disputed())
    return int((await conn.execute(query)).scalar_one())

"""Which of two judges scores an alias's groups by a recipe, from when on, and why.

Owns: these rows. Each names the judges' settings, so that what holds of two judges says nothing of two others. Refuses:
the rule (`recorder.judged.drift`), what judges said (`recorder.judged.seconds`).

The first turn of an alias and recipe follows the cheap judge, which scores where no row says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import new_id
from recorder.judged.drift import CHEAP, STRONG, Agreement, Judge
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import judge_turns
from recorder.store.sql import now

Reason = Literal["judge_drift", "judge_agrees", "judges_set"]
DRIFT: Final = "judge_drift"  # the two agree too little: the strong one scores
AGREES: Final = "judge_agrees"  # they agree again: the cheap one scores
SET: Final = "judges_set"  # other judges are set: the cheap one of these scores


@dataclass(frozen=True, slots=True)
class Turn:
    """From `at` (unix seconds) on `judge` scores; `judge_model` is its name. `mean` to `high`: the two's agreement over
    `groups` groups, and `bound` what was asked of it; None: it is not why.
    """

    project_id: str
    alias: str
    recipe: str
    number: int
    pair: str
    judge: Judge
    judge_model: str
    reason: Reason
    at: float
    bound: float | None = None
    groups: int = 0
    mean: float | None = None
    low: float | None = None
    high: float | None = None

    @property
    def drifted(self) -> bool:
        """Whether the strong one scores."""
        return self.judge == STRONG

    def __str__(self) -> str:
        of = f"{self.alias or 'no alias'}, recipe {self.recipe}"
        if self.reason == SET:
            return f"{of}: {self.judge_model or 'nobody'} scores, as other judges are set"
        how = "too little" if self.drifted else "again"
        return (
            f"{of}: the judge and the strong one agree {how} ({self.agreed()}; judge.strong.min_agreement is "
            f"{self.bound:g}): {self.judge_model} scores"
        )

    def agreed(self) -> str:
        """How far they agree, in words."""
        if self.mean is None:
            return "no group that both judged"
        return f"mean tau-b {self.mean:.2f}, {self.low:.2f} to {self.high:.2f}, over {self.groups} groups"


async def in_force(project: Project, alias: str, recipe: str) -> Turn | None:
    """The newest turn of an alias and recipe; None: the cheap judge has always scored."""
    async with project.store.read() as conn:
        return await newest(conn, project.id, alias, recipe)


def scores_now(newest: Turn | None, pair: str) -> Judge:
    """Who scores, of two judges by the hash of their settings."""
    return newest.judge if newest is not None and newest.pair == pair else CHEAP


async def newest(conn: AsyncConnection, project_id: str, alias: str, recipe: str) -> Turn | None:
    """`in_force`, inside the caller's transaction."""
    t = judge_turns.c
    mine = (t.project_id == project_id, t.alias == alias, t.recipe == recipe)
    row = (await conn.execute(select(judge_turns).where(*mine).order_by(t.number.desc()).limit(1))).first()
    return sql.view(Turn, row) if row is not None else None


async def of_project(conn: AsyncConnection, project_id: str) -> list[Turn]:
    """The newest turn of each alias and recipe that had any."""
    t = judge_turns.c
    last = select(t.alias, t.recipe, func.max(t.number).label("number")).where(t.project_id == project_id)
    last_of = last.group_by(t.alias, t.recipe).subquery()
    own = and_(t.alias == last_of.c.alias, t.recipe == last_of.c.recipe, t.number == last_of.c.number)
    query = select(judge_turns).join(last_of, own).where(t.project_id == project_id).order_by(t.alias, t.recipe)
    return sql.views(Turn, await conn.execute(query))


async def since(conn: AsyncConnection, project_id: str, first_id: str) -> dict[str, Turn]:
    """The turns from an id on, by their ids, oldest first."""
    t = judge_turns.c
    rows = await conn.execute(
        select(judge_turns).where(t.project_id == project_id, t.id >= first_id).order_by(t.at, t.id)
    )
    return {row.id: sql.view(Turn, row) for row in rows}


async def take(conn: AsyncConnection, after: Turn | None, new: Turn, found: Agreement | None = None) -> Turn | None:
    """Write a turn down that follows `after`; None: somebody else wrote one down meanwhile."""
    figures = asdict(found) if found is not None else {}
    taken = replace(new, number=after.number + 1 if after is not None else 1, at=await sql.clock(conn), **figures)
    statement = sql.insert_ignore(conn, judge_turns).values(id=new_id("turn"), **asdict(taken) | {"at": now()})
    written = await conn.execute(statement)
    return taken if written.rowcount else None


async def settle(project: Project, pairs: Mapping[str, str], model: str) -> list[Turn]:
    """End the turns of strong judges whose settings are in force no more; the turns that are written for that.

    `pairs`: the hash of both judges' settings, by recipe; a recipe of one judge alone is not in it. `model`: who scores
    then.
    """
    async with project.store.write() as conn:
        ended = [one for one in await of_project(conn, project.id) if one.drifted and pairs.get(one.recipe) != one.pair]
        taken = [
            await take(
                conn, one, Turn(project.id, one.alias, one.recipe, 0, pairs.get(one.recipe, ""), CHEAP, model, SET, 0.0)
            )
            for one in ended
        ]
    return [one for one in taken if one is not None]

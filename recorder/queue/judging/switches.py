"""Which of two judges scores an alias's groups by a judge recipe, since when and why: the rule of `[judge.strong]`.

Owns: the agreement of two scores of one group, its mean over groups with an interval, when the other judge takes over,
and the rows of these switches. Refuses: verdicts (`recorder.queue.judging.cross_checks`), and requests to judges.

The mean of a few groups is noisy and is tested after each group. A rule by the mean alone would switch judges because
of noise and switch back. So judges are switched only if the whole interval of the mean, over a full window, is beyond
the bound, in either direction. A simulation measures the error rate and the delay (`benchmarks/drift.py`,
docs/judging.md).

Each row has the settings of both judges and applies only to this pair. Without a row the cheap judge scores.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, Literal

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import new_id
from recorder.stats.agreement import PairAgreement, compare_rewards
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import judge_turns
from recorder.store.sql import now

Judge = Literal["cheap", "strong"]
CHEAP: Final = "cheap"
STRONG: Final = "strong"
Values = Mapping[str, float | None]  # by trajectory id

SURELY: Final = 2.576  # standard errors on either side: 99 % for a single test over many groups
# If all groups have the same agreement (say, with two trajectories each), a window has no spread, though the next group
# may differ. So the spread includes one more group at this distance from the mean.
ONE_MORE: Final = 0.5


@dataclass(frozen=True, slots=True)
class Agreement:
    """The mean tau-b over `groups` groups, and its interval; both None without groups."""

    groups: int
    mean: float | None = None
    low: float | None = None
    high: float | None = None


def group_tau(cheap: Sequence[Values], strong: Sequence[Values]) -> float | None:
    """Return the agreement of two judges on the order of a group's trajectories: tau-b over the pairs of all parts.

    None if the strong judge ties all trajectories: there is no order to agree with. If only the cheap judge ties all of
    them, the agreement is 0.
    """
    pairs = sum((compare_rewards(one, other) for one, other in zip(cheap, strong, strict=True)), PairAgreement())
    ordered_by_strong = pairs.kept + pairs.turned + pairs.tied_before
    if not ordered_by_strong:
        return None
    return pairs.tau or 0.0


def mean_agreement(taus: Sequence[float]) -> Agreement:
    """Return the mean of some groups' tau-b, and its interval (Student's t)."""
    count = len(taus)
    if not count:
        return Agreement(0)
    mean = statistics.fmean(taus)
    spread = (math.fsum((tau - mean) ** 2 for tau in taus) + ONE_MORE**2) / count
    off = _student(max(1, count - 1)) * math.sqrt(spread / count)
    return Agreement(count, mean, max(-1.0, mean - off), min(1.0, mean + off))


def _student(freedom: int) -> float:
    """Return `SURELY` for few values: the quantile of Student's t (Abramowitz and Stegun 26.7.5)."""
    z = SURELY
    return z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def next_judge(now: Judge, found: Agreement, bound: float, window: int) -> Judge:
    """Return the judge that scores from now on.

    It is the other judge if the agreement's interval over a full window is beyond the bound.
    """
    if found.groups < window or found.low is None or found.high is None:
        return now
    if found.high < bound:
        return STRONG
    return CHEAP if found.low >= bound else now


Reason = Literal["judge_drift", "judge_agrees", "judges_set"]
DRIFT: Final = "judge_drift"  # they agree too little: the strong judge scores
AGREES: Final = "judge_agrees"  # they agree again: the cheap judge scores
SET: Final = "judges_set"  # the settings name other judges: their cheap judge scores


@dataclass(frozen=True, slots=True)
class JudgeSwitch:
    """From `at` (unix seconds) on, `judge` scores; `judge_model` is its name.

    `mean` to `high`: the agreement of both judges over `groups` groups. `bound`: the required agreement. They are None
    if agreement is not the reason.
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
        """Whether the strong judge scores."""
        return self.judge == STRONG

    def __str__(self) -> str:
        of = f"{self.alias or 'no alias'}, recipe {self.recipe}"
        if self.reason == SET:
            return f"{of}: {self.judge_model or 'no judge'} scores, because the judges' settings changed"
        how = "too little" if self.drifted else "again"
        return (
            f"{of}: the judge and the strong judge agree {how} ({self.agreed()}; judge.strong.min_agreement is "
            f"{self.bound:g}): {self.judge_model} scores"
        )

    def agreed(self) -> str:
        """Return how far the two agree, as text."""
        if self.mean is None:
            return "no group that both judged"
        return f"mean tau-b {self.mean:.2f}, {self.low:.2f} to {self.high:.2f}, over {self.groups} groups"


async def current_switch(project: Project, alias: str, recipe: str) -> JudgeSwitch | None:
    """Return the newest switch of an alias and judge recipe; None: the cheap judge has always scored."""
    async with project.store.read() as conn:
        return await newest_switch(conn, project.id, alias, recipe)


def scoring_judge(newest: JudgeSwitch | None, pair: str) -> Judge:
    """Return which of two judges scores; `pair` is the hash of their settings."""
    return newest.judge if newest is not None and newest.pair == pair else CHEAP


async def newest_switch(conn: AsyncConnection, project_id: str, alias: str, recipe: str) -> JudgeSwitch | None:
    """`current_switch`, inside the caller's transaction."""
    t = judge_turns.c
    mine = (t.project_id == project_id, t.alias == alias, t.recipe == recipe)
    row = (await conn.execute(select(judge_turns).where(*mine).order_by(t.number.desc()).limit(1))).first()
    return sql.as_view(JudgeSwitch, row) if row is not None else None


async def project_switches(conn: AsyncConnection, project_id: str) -> list[JudgeSwitch]:
    """Return the newest switch of each alias and judge recipe with one."""
    t = judge_turns.c
    last = select(t.alias, t.recipe, func.max(t.number).label("number")).where(t.project_id == project_id)
    last_of = last.group_by(t.alias, t.recipe).subquery()
    own = and_(t.alias == last_of.c.alias, t.recipe == last_of.c.recipe, t.number == last_of.c.number)
    query = select(judge_turns).join(last_of, own).where(t.project_id == project_id).order_by(t.alias, t.recipe)
    return sql.as_views(JudgeSwitch, await conn.execute(query))


async def switches_since(conn: AsyncConnection, project_id: str, first_id: str) -> dict[str, JudgeSwitch]:
    """Return the switches from an id on, by id, oldest first."""
    t = judge_turns.c
    rows = await conn.execute(
        select(judge_turns).where(t.project_id == project_id, t.id >= first_id).order_by(t.at, t.id)
    )
    return {row.id: sql.as_view(JudgeSwitch, row) for row in rows}


async def write_switch(
    conn: AsyncConnection, after: JudgeSwitch | None, new: JudgeSwitch, found: Agreement | None = None
) -> JudgeSwitch | None:
    """Write a switch that follows `after`, and return it; None if another process wrote one meanwhile."""
    figures = asdict(found) if found is not None else {}
    taken = replace(
        new, number=after.number + 1 if after is not None else 1, at=await sql.current_time(conn), **figures
    )
    statement = sql.insert_ignore(conn, judge_turns).values(id=new_id("turn"), **asdict(taken) | {"at": now()})
    written = await conn.execute(statement)
    return taken if written.rowcount else None


async def end_outdated_switches(project: Project, pairs: Mapping[str, str], model: str) -> list[JudgeSwitch]:
    """End the switches to strong judges with outdated settings; return the new switches.

    `pairs`: the hash of both judges' settings, by judge recipe; a recipe with one judge is absent. `model`: the judge
    that scores from then on.
    """
    async with project.store.write() as conn:
        ended = [
            one for one in await project_switches(conn, project.id) if one.drifted and pairs.get(one.recipe) != one.pair
        ]
        taken = [
            await write_switch(
                conn,
                one,
                JudgeSwitch(project.id, one.alias, one.recipe, 0, pairs.get(one.recipe, ""), CHEAP, model, SET, 0.0),
            )
            for one in ended
        ]
    return [one for one in taken if one is not None]

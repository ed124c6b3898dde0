"""Cross-checks: a second judge's verdict on a group that another judge scored, and how far both agree.

Owns: these rows, and the window over which two judges are compared. Refuses: scores (`recorder.queue.judging.scores`; a
cross-check is not a score), the rule (`recorder.queue.judging.switches`), requests to judges.

A window has only groups of the same two judges with the same settings. It begins anew when a judge reports a version
that is new for this pair.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, case, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import first_id_at, new_id
from recorder.queue.groups.uses import group_use
from recorder.queue.judging import switches
from recorder.queue.judging.switches import (
    AGREES,
    DRIFT,
    STRONG,
    Agreement,
    Judge,
    JudgeSwitch,
    Reason,
    mean_agreement,
    next_judge,
)
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import groups, second_scores, trajectories
from recorder.store.sql import now

_BESIDE: Final = ("parts",)  # fields of a cross-check that are not stored unchanged in a column


@dataclass(frozen=True, slots=True)
class PartVerdict:
    """A judge's value of one trajectory for one part. `value`: None if missing; then `explanation` says why."""

    trajectory_id: str
    part: str
    value: float | None
    explanation: str | None = None


@dataclass(frozen=True, slots=True)
class NewCrossCheck:
    """The other judge's result. `failed`: why there is none. `tau`: the agreement with the judge that scored.

    `pair`: a hash of the settings of both. The versions are those that their providers reported.
    """

    alias: str
    recipe: str
    pair: str
    judge: Judge
    judge_model: str
    cheap_version: str | None = None
    strong_version: str | None = None
    failed: str | None = None
    parts: Sequence[PartVerdict] = ()
    tau: float | None = None
    tokens_in: int = 0
    tokens_cached: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    latency_s: float | None = None


@dataclass(frozen=True, slots=True)
class SwitchRule:
    """The required agreement of two judges, and which judge scores below and above it."""

    bound: float
    window: int
    cheap_model: str
    strong_model: str


@dataclass(frozen=True, slots=True)
class CrossCheck:
    """The stored verdict of the other judge on a group."""

    id: str
    group_id: str
    alias: str
    recipe: str
    pair: str
    judge: Judge
    judge_model: str
    failed: str | None
    tau: float | None
    groups: int
    mean: float | None
    low: float | None
    high: float | None
    created_at: float
    parts: tuple[PartVerdict, ...] = ()


async def record_cross_check(
    project: Project, group_id: str, new: NewCrossCheck, rule: SwitchRule
) -> JudgeSwitch | None:
    """Write the other judge's verdict, and a switch to the other judge if one is due; return that switch.

    It is one transaction, so of several workers only one writes the switch.
    """
    row = {name: _storable(value) for name, value in asdict(new).items() if name not in _BESIDE}
    own = {"id": new_id("second"), "project_id": project.id, "group_id": group_id, "created_at": now()}
    async with project.store.write() as conn:
        parts = await _of_runs_there(conn, group_id, new.parts)
        await conn.execute(insert(second_scores).values(**own, **row, parts=parts))
        found = mean_agreement(await _window(conn, project.id, new, rule.window))
        await conn.execute(update(second_scores).where(second_scores.c.id == own["id"]).values(**asdict(found)))
        return await _turned(conn, project.id, new, rule, found) if new.tau is not None else None


async def _of_runs_there(conn: AsyncConnection, group_id: str, said: Sequence[PartVerdict]) -> str | None:
    """Return verdicts on a group's trajectories in stored form.

    None if a trajectory was deleted meanwhile, because a verdict may quote it.
    """
    query = select(trajectories.c.id).where(trajectories.c.group_id == group_id)
    there = set((await conn.execute(query)).scalars())
    if not said or any(one.trajectory_id not in there for one in said):
        return None
    return sql.storable_text(json.dumps([asdict(one) for one in said], ensure_ascii=False))


async def _turned(
    conn: AsyncConnection, project_id: str, new: NewCrossCheck, rule: SwitchRule, found: Agreement
) -> JudgeSwitch | None:
    before = await switches.newest_switch(conn, project_id, new.alias, new.recipe)
    scoring = switches.scoring_judge(before, new.pair)
    then = next_judge(scoring, found, rule.bound, rule.window)
    if then == scoring:
        return None
    reason: Reason = DRIFT if then == STRONG else AGREES
    model = rule.strong_model if then == STRONG else rule.cheap_model
    taken = JudgeSwitch(project_id, new.alias, new.recipe, 0, new.pair, then, model, reason, 0.0, rule.bound)
    return await switches.write_switch(conn, before, taken, found)


async def _window(conn: AsyncConnection, project_id: str, new: NewCrossCheck, window: int) -> list[float]:
    """Return the newest taus of these two judges with their current settings and versions."""
    rows = _rows_of_window(project_id, new.alias, new.recipe, new.pair, window)
    return [float(tau) for tau in (await conn.execute(rows.with_only_columns(second_scores.c.tau))).scalars()]


def _rows_of_window(project_id: str, alias: str, recipe: str, pair: str, window: int) -> Select[Any]:
    """The query for the newest groups that these two judges both ordered, newest first."""
    s = second_scores.c
    mine = (
        s.project_id == project_id, s.alias == alias, s.recipe == recipe, s.pair == pair, s.failed.is_(None),
    )  # fmt: skip
    firsts = select(func.min(s.id).label("first")).where(*mine).group_by(s.cheap_version, s.strong_version).subquery()
    as_they_are = select(func.max(firsts.c.first)).scalar_subquery()
    newest = select(second_scores).where(*mine, s.tau.is_not(None), s.id >= as_they_are)
    return newest.order_by(s.id.desc()).limit(window)


async def least_agreed_groups(conn: AsyncConnection, drifted: JudgeSwitch) -> list[CrossCheck]:
    """Return the groups with the lowest agreement, of the current window in which two judges drifted apart.

    The lowest comes first; only groups below the required agreement are returned.
    """
    window = _rows_of_window(drifted.project_id, drifted.alias, drifted.recipe, drifted.pair, drifted.groups)
    found = [_view(row) for row in await conn.execute(window)]
    bound = 1.0 if drifted.bound is None else drifted.bound
    apart = [one for one in found if one.tau is not None and one.tau < bound]
    return sorted(apart, key=lambda one: one.tau or 0.0)


@dataclass(frozen=True, slots=True)
class CrossCheckCost:
    """The cost of cross-checks. `usd`: None if no price is known. `unpriced`: how many have no known price."""

    at: float
    count: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    usd: float | None
    unpriced: int
    in_vain: int


def cost_query(*groups_by: ColumnElement[Any]) -> Select[Any]:
    """The query for costs, one row for each value of `groups_by`, for `read_cost`."""
    s = second_scores.c
    asked = s.tokens_in + s.tokens_out > 0
    query = select(
        func.max(s.created_at).label("at"),
        func.count().label("count"),
        func.coalesce(func.sum(s.tokens_in), 0).label("tokens_in"),
        func.coalesce(func.sum(s.tokens_cached), 0).label("tokens_cached"),
        func.coalesce(func.sum(s.tokens_out), 0).label("tokens_out"),
        func.sum(s.cost_usd).label("usd"),
        func.coalesce(func.sum(case((asked & s.cost_usd.is_(None), 1), else_=0)), 0).label("unpriced"),
        func.count(s.failed).label("in_vain"),
    )
    return query.group_by(*groups_by) if groups_by else query


def read_cost(row: Any) -> CrossCheckCost:
    """Return the cost in a row of `cost_query`."""
    return sql.as_view(CrossCheckCost, row, at=float(row.at or 0.0))


async def cross_check_costs(conn: AsyncConnection, project_id: str, since: float) -> dict[str, CrossCheckCost]:
    """Return the cost of cross-checks since a time (unix seconds), by the `GroupUse` of the groups."""
    s, use = second_scores.c, group_use().label("use")
    query = cost_query(use).add_columns(use).join(groups, groups.c.id == s.group_id)
    recent = (s.id >= first_id_at("second", since), sql.without_index(s.project_id) == project_id)
    return {str(row.use): read_cost(row) for row in await conn.execute(query.where(*recent))}


async def is_cross_checked(store: Store, group_id: str, pair: str) -> bool:
    """Whether both judges of a pair have judged a group."""
    s = second_scores.c
    query = select(s.id).where(s.group_id == group_id, s.pair == pair, s.failed.is_(None)).limit(1)
    async with store.read() as conn:
        return (await conn.execute(query)).first() is not None


async def list_cross_checks(store: Store, group_id: str) -> list[CrossCheck]:
    """Return the cross-checks of a group, oldest first."""
    query = select(second_scores).where(second_scores.c.group_id == group_id).order_by(second_scores.c.id)
    async with store.read() as conn:
        return [_view(row) for row in await conn.execute(query)]


async def newest_of_each(conn: AsyncConnection, project_id: str) -> list[CrossCheck]:
    """Return the newest cross-check of each alias and judge recipe."""
    s = second_scores.c
    last = select(func.max(s.id)).where(s.project_id == project_id).group_by(s.alias, s.recipe)
    query = select(second_scores).where(s.id.in_(last)).order_by(s.alias, s.recipe)
    return [_view(row) for row in await conn.execute(query)]


async def newest_of_campaign(store: Store, campaign_id: str) -> tuple[CrossCheck, JudgeSwitch | None] | None:
    """Return the newest cross-check of a campaign's groups, and the judge switch in effect there, or None."""
    its = select(second_scores).join(groups, groups.c.id == second_scores.c.group_id)
    query = its.where(groups.c.campaign_id == campaign_id).order_by(second_scores.c.id.desc()).limit(1)
    async with store.read() as conn:
        row = (await conn.execute(query)).first()
        if row is None:
            return None
        return _view(row), await switches.newest_switch(conn, row.project_id, row.alias, row.recipe)


def _view(row: Any) -> CrossCheck:
    return sql.as_view(
        CrossCheck, row, parts=tuple(PartVerdict(**one) for one in json.loads(row.parts)) if row.parts else ()
    )


def _storable(value: Any) -> Any:
    return sql.storable_text(value) if isinstance(value, str) else value

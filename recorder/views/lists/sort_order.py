"""Trajectories in another order than by time: by tokens, cost, duration, first token, reward or version.

Owns: these orders, and how many of the newest matches are sorted. Refuses: which trajectories match
(`recorder.views.lists.scans`), and the order by time (`recorder.views.lists.paging`).

No index has these orders, so only the newest matches are sorted. A place in a sorted list is the number of lines before
it. The largest value comes first, and trajectories without a value last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, FromClause, Select, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import FilterInvalid
from recorder.queue.judging.scores import REWARD
from recorder.store.database import Store
from recorder.store.schema import groups, score_parts, scores, trajectories, trajectory_totals, versions
from recorder.views.lists.paging import IndexedScan, Page
from recorder.views.lists.scans import RUNS, Scan

MOST_SORTED: Final = 10_000  # of the newest matches: a page stays below 100 ms


class Sort(StrEnum):
    """The orders of a list of trajectories."""

    TIME = "time"
    TOKENS = "tokens"
    COST = "cost"
    DURATION = "duration"
    FIRST_TOKEN = "first_token"  # noqa: S105 - no password
    REWARD = "reward"
    VERSION = "version"


def parse_sort(text: str | None) -> Sort:
    """Return the order with this name; by time without one. Raises FilterInvalid."""
    if text and text not in tuple(Sort):
        raise FilterInvalid(f"sort: {text[:80]!r} is not one of {', '.join(Sort)}", "sort")
    return Sort(text) if text else Sort.TIME


async def find_sorted_page(store: Store, sort: Sort, scan: Scan, *, before: str | None, limit: int) -> Page[str]:
    """Return a page of ids of the newest matches, sorted. Raises FilterInvalid for a place that is no number."""
    skipped = _place(before)
    candidates = scan.candidates
    if isinstance(candidates, IndexedScan):
        candidates = replace(candidates, most=MOST_SORTED)
    stretch = await candidates.below(store, None, enough=None if scan.checks else MOST_SORTED + 1)
    t = trajectories.c
    matches = select(t.id, t.group_id).where(*stretch.which, *scan.checks).order_by(RUNS.id.desc())
    newest = matches.limit(MOST_SORTED).subquery("newest")
    async with store.read() as conn:
        number = int((await conn.execute(select(func.count()).select_from(newest))).scalar_one())
        if sort is Sort.COST:
            ids = (await _sorted_by_cost(conn, newest))[skipped : skipped + limit + 1]
        else:
            query, value = _SORTED[sort](newest)
            in_order = query.order_by(value.desc().nulls_last(), newest.c.id.desc())
            found = await conn.execute(in_order.offset(skipped).limit(limit + 1))
            ids = [str(row[0]) for row in found]
    more = str(skipped + limit) if len(ids) > limit else None
    complete = number < MOST_SORTED and stretch.end is None
    return Page(ids[:limit], more, sorted_over=None if complete else number)


def _place(before: str | None) -> int:
    if before is None:
        return 0
    if not (before.isascii() and before.isdigit() and len(before) <= len(str(MOST_SORTED))):
        raise FilterInvalid(
            f"before: {before[:80]!r} is not a position in this list: use the `next` of a page", "before"
        )
    return int(before)


_Sorted = tuple[Select[tuple[str]], ColumnElement[Any]]  # the query for the ids, and the value that they are sorted by


def _by_totals(value: ColumnElement[Any]) -> Callable[[FromClause], _Sorted]:
    def query(newest: FromClause) -> _Sorted:
        joined = newest.outerjoin(trajectory_totals, trajectory_totals.c.trajectory_id == newest.c.id)
        return select(newest.c.id).select_from(joined), value

    return query


async def _sorted_by_cost(conn: AsyncConnection, newest: FromClause) -> list[str]:
    """Return all ids by the cost of calls and the share of judging.

    The share is read once for each group. SQLite would join it by a scan of all groups for each trajectory.
    """
    of_groups = select(newest.c.group_id).where(newest.c.group_id.is_not(None))
    scored = scores.join(groups, groups.c.current_score_id == scores.c.id)
    judged = select(groups.c.id, judging_share()).select_from(scored)
    judged = judged.where(groups.c.id.in_(of_groups), scores.c.cost_usd.is_not(None))
    shares = {id_: share for id_, share in await conn.execute(judged) if share is not None}
    joined = newest.outerjoin(trajectory_totals, trajectory_totals.c.trajectory_id == newest.c.id)
    query = select(newest.c.id, newest.c.group_id, trajectory_totals.c.cost_usd).select_from(joined)
    priced: list[tuple[float, str]] = []
    for id_, group_id, cost in await conn.execute(query):
        known = [one for one in (cost, shares.get(group_id)) if one is not None]
        priced.append((sum(known) if known else -1.0, id_))
    return [id_ for _, id_ in sorted(priced, reverse=True)]


def judging_share() -> ColumnElement[Any]:
    """A column: the cost of a query's score for each trajectory that it scored; NULL if no price is known."""
    part = score_parts.alias("scored_part")
    number = select(func.count()).where(part.c.score_id == scores.c.id, part.c.part == REWARD).scalar_subquery()
    return scores.c.cost_usd / func.nullif(number, 0)


def _by_duration(newest: FromClause) -> _Sorted:
    t = trajectories.c
    return select(newest.c.id).join(trajectories, t.id == newest.c.id), t.last_call_at - t.started_at


def _by_reward(newest: FromClause) -> _Sorted:
    part = score_parts.c
    of_score = and_(part.score_id == groups.c.current_score_id, part.trajectory_id == newest.c.id, part.part == REWARD)
    joined = newest.outerjoin(groups, groups.c.id == newest.c.group_id).outerjoin(score_parts, of_score)
    return select(newest.c.id).select_from(joined), part.value


def _by_version(newest: FromClause) -> _Sorted:
    """By the number of the pinned version, its own or its group's."""
    pinned = func.coalesce(trajectories.c.version_id, groups.c.version_id)
    joined = (
        newest.join(trajectories, trajectories.c.id == newest.c.id)
        .outerjoin(groups, groups.c.id == newest.c.group_id)
        .outerjoin(versions, versions.c.id == pinned)
    )
    return select(newest.c.id).select_from(joined), versions.c.number


_TOTALS = trajectory_totals.c
_SORTED: Final[Mapping[Sort, Callable[[FromClause], _Sorted]]] = {
    Sort.TOKENS: _by_totals(_TOTALS.tokens_in + _TOTALS.tokens_out),
    Sort.DURATION: _by_duration,
    Sort.FIRST_TOKEN: _by_totals(_TOTALS.first_token_s / func.nullif(_TOTALS.first_tokens, 0)),
    Sort.REWARD: _by_reward,
    Sort.VERSION: _by_version,
}

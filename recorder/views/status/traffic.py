"""Traffic over a range of time: calls, errors by kind, percentiles, tokens and cost, whole and split by one dimension.

Owns: the points of a range, and which values of a split are shown. Refuses: writing the totals that it reads
(`recorder.totals`), and charts.

Each range is read in rows that are about as long as its points, so the cost depends on the number of points and not on
the number of calls.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import FilterInvalid
from recorder.registry.keys import key_names
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import traffic
from recorder.totals.call_facts import Dimension
from recorder.totals.follower import count_waiting
from recorder.totals.histograms import Counts, quantiles
from recorder.totals.time_rows import KEPT_S, Totals, read_totals
from recorder.views.lists.filters import RANGES_S, Split, TrafficFilter

MOST_POINTS: Final = 240
MOST_SHOWN: Final = 8  # values of a split; charts have so many series


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles in seconds, within a fifth of the true values; None without a complete call."""

    p50_s: float | None
    p95_s: float | None
    p99_s: float | None


@dataclass(frozen=True, slots=True)
class TrafficFigures:
    """The figures of some calls. `cost_usd`: what other providers charge; None if no call has a price."""

    calls: int
    errors: int
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    duration: Percentiles
    first_token: Percentiles


@dataclass(frozen=True, slots=True)
class TrafficPoint:
    """The calls that began within a part of the range. Times are unix seconds. `errors`: by kind."""

    at: float
    until: float
    figures: TrafficFigures
    errors: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TrafficValue:
    """The calls with one value of the split, in all and by point. `value` "": they have none. `name`: for people."""

    value: str
    name: str
    total: TrafficFigures
    points: Sequence[TrafficFigures]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Traffic from `since` to `until` (unix seconds), in points of `step_s` seconds.

    `values`: of the split, those with the most calls; `more_values`: how many there are beside them. `waiting`: calls
    that are recorded and not counted yet, up to 10,000.
    """

    since: float
    until: float
    step_s: int
    split: Split | None
    total: TrafficFigures
    errors: Mapping[str, int]
    points: Sequence[TrafficPoint]
    values: Sequence[TrafficValue]
    more_values: int
    waiting: int


@dataclass(frozen=True, slots=True)
class _Range:
    """The points of a range: `count` times of `step_s` seconds from `first` on, read in rows of `row_s` seconds."""

    row_s: int
    step_s: int
    first: int
    count: int

    def index(self, at: int) -> int:
        """Return the point that a row belongs to."""
        return (at - self.first) // self.step_s

    def within(self, project_id: str, dimension: Dimension, wanted: TrafficFilter) -> list[ColumnElement[bool]]:
        """Return the conditions for the rows of a dimension."""
        t = traffic.c
        times = (t.at >= self.first, t.at < self.first + self.count * self.step_s)
        where = [t.project_id == project_id, t.step_s == self.row_s, t.dimension == dimension.value, *times]
        return [*where, t.origin.in_([origin.value for origin in wanted.origins])]


def choose_range(since: float, until: float, now: float) -> _Range:
    """Return the finest points of a range whose rows are kept, at most `MOST_POINTS` and one. Pure.

    Raises FilterInvalid for an empty range.
    """
    if until <= since:
        raise FilterInvalid("since: the range is empty, because it begins after its end", "since")
    span_s = until - since
    row_s = next(
        (s for s, kept_s in KEPT_S.items() if span_s <= s * MOST_POINTS and since >= now - kept_s), max(KEPT_S)
    )
    step_s = row_s * max(1, math.ceil(span_s / (row_s * MOST_POINTS)))
    first = int(since // step_s) * step_s
    return _Range(row_s, step_s, first, math.ceil((until - first) / step_s))


async def load_traffic(project: Project, wanted: TrafficFilter) -> Traffic:
    """Return the traffic of a range. Raises FilterInvalid for an empty range."""
    async with project.store.read() as conn:
        now = await sql.current_time(conn)
        until = now if wanted.until is None else wanted.until
        since = until - RANGES_S[wanted.range] if wanted.since is None else wanted.since
        of = choose_range(since, until, now)
        whole = await _sum(conn, of, of.within(project.id, Dimension.ALL, wanted))
        kinds = await _errors(conn, of, of.within(project.id, Dimension.ERROR, wanted))
        shown, more = await _largest_values(conn, of, project.id, wanted)
        parts = await _parts(conn, of, project.id, wanted, shown)
        names = await key_names(conn, project.id, shown) if wanted.split is Split.KEY else {}
    totals = whole.get("", {})
    return Traffic(
        since=of.first,
        until=until,
        step_s=of.step_s,
        split=wanted.split,
        total=_figures(_total(totals)),
        errors=_all_errors(kinds),
        points=[
            TrafficPoint(at, min(at + of.step_s, until), _figures(totals.get(n)), kinds.get(n, {}))
            for n, at in enumerate(range(of.first, of.first + of.count * of.step_s, of.step_s))
        ],
        values=[
            TrafficValue(
                value,
                names.get(value, value),
                _figures(_total(parts.get(value, {}))),
                [_figures(parts.get(value, {}).get(n)) for n in range(of.count)],
            )
            for value in shown
        ],
        more_values=more,
        waiting=await count_waiting(project),
    )


_Points = dict[int, Totals]


async def _sum(conn: AsyncConnection, of: _Range, which: Sequence[ColumnElement[bool]]) -> dict[str, _Points]:
    """Return the totals of rows, by value and point."""
    found: dict[str, _Points] = {}
    for row in await conn.execute(select(traffic).where(*which)):
        points, totals = found.setdefault(row.value, {}), read_totals(row)
        if (known := points.setdefault(of.index(row.at), totals)) is not totals:
            known.add(totals)
    return found


async def _errors(conn: AsyncConnection, of: _Range, which: Sequence[ColumnElement[bool]]) -> dict[int, dict[str, int]]:
    t = traffic.c
    query = select(t.at, t.value, func.sum(t.calls)).where(*which).group_by(t.at, t.value).order_by(t.at, t.value)
    found: dict[int, dict[str, int]] = {}
    for at, kind, number in await conn.execute(query):
        kinds = found.setdefault(of.index(at), {})
        kinds[kind] = kinds.get(kind, 0) + int(number)
    return found


async def _largest_values(
    conn: AsyncConnection, of: _Range, project_id: str, wanted: TrafficFilter
) -> tuple[list[str], int]:
    """Return the values of the split with the most calls, and how many there are beside them."""
    if wanted.split is None:
        return [], 0
    which = of.within(project_id, Dimension(wanted.split.value), wanted)
    if wanted.split is Split.TAG and wanted.tag is not None:
        which.append(traffic.c.value.startswith(f"{wanted.tag}=", autoescape=True))
    number = func.sum(traffic.c.calls)
    query = select(traffic.c.value).where(*which).group_by(traffic.c.value).order_by(number.desc(), traffic.c.value)
    values = list((await conn.execute(query)).scalars())
    return values[:MOST_SHOWN], max(0, len(values) - MOST_SHOWN)


async def _parts(
    conn: AsyncConnection, of: _Range, project_id: str, wanted: TrafficFilter, values: Sequence[str]
) -> dict[str, _Points]:
    if wanted.split is None or not values:
        return {}
    which = of.within(project_id, Dimension(wanted.split.value), wanted)
    return await _sum(conn, of, [*which, traffic.c.value.in_(values)])


def _total(points: Mapping[int, Totals]) -> Totals:
    total = Totals()
    for one in points.values():
        total.add(one)
    return total


def _all_errors(kinds: Mapping[int, Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for kind, number in (pair for of_point in kinds.values() for pair in of_point.items()):
        found[kind] = found.get(kind, 0) + number
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))


_NO_CALLS: Final = TrafficFigures(0, 0, 0, 0, None, Percentiles(None, None, None), Percentiles(None, None, None))


def _figures(totals: Totals | None) -> TrafficFigures:
    if totals is None or not totals.calls:
        return _NO_CALLS
    return TrafficFigures(
        totals.calls,
        totals.errors,
        totals.tokens_in,
        totals.tokens_out,
        totals.cost_usd,
        _percentiles(totals.durations),
        _percentiles(totals.first_tokens),
    )


_SHARES: Final = (0.5, 0.95, 0.99)


def _percentiles(counts: Counts) -> Percentiles:
    return Percentiles(*quantiles(counts, _SHARES))

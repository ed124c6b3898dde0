"""Totals of calls by time: rows of several lengths of time, for each value of each dimension.

Owns: the lengths and how long their rows are kept, how many values a dimension has at a time, adding calls and taking
them out, and deleting old rows. Refuses: who may write when (`recorder.totals.follower`,
`recorder.maintenance.deletion`), and reading a range (`recorder.views.status.traffic`).

A range is read in rows that are about as long as its points, so a chart of 30 days costs as much as one of an hour. A
call is added to each length by the time at which it began, however late it is counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from sqlalchemy import delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store import sql
from recorder.store.schema import traffic
from recorder.totals.call_facts import CallFacts, Dimension
from recorder.totals.histograms import Counts, add_packed, bucket_of, empty_counts, pack_counts

DAY_S: Final = 86400
# The length of a row's time in seconds, and how long its rows are kept: an hour is shown by minutes, a day by ten
# minutes, a week by hours, 30 days by six hours, and each once more beside it for comparison.
KEPT_S: Final[Mapping[int, int]] = {60: 2 * DAY_S, 600: 10 * DAY_S, 3600: 45 * DAY_S, 21600: 400 * DAY_S}
MOST_VALUES: Final = 50  # of a dimension at one time: the cost of a page is bounded, whatever clients name
OTHERS: Final = "(others)"  # the value of all further ones
_ROWS: Final = 200  # per statement


class RowKey(NamedTuple):
    """What one row counts."""

    step_s: int
    dimension: str
    at: int
    value: str
    origin: str


@dataclass(slots=True)
class Totals:
    """The totals of some calls; durations in seconds, of complete answers."""

    calls: int = 0
    errors: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    cost_usd: float | None = None
    durations: Counts = field(default_factory=empty_counts)
    first_tokens: Counts = field(default_factory=empty_counts)

    def add_call(self, call: CallFacts, sign: int = 1) -> None:
        """Add a call, or take it out (`sign` -1)."""
        self.calls += sign
        self.errors += sign * (call.error is not None)
        self.tokens_in += sign * call.tokens_in
        self.tokens_out += sign * call.tokens_out
        if call.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + sign * call.cost_usd
        if call.duration_s is not None:
            self.durations[bucket_of(call.duration_s)] += sign
        if call.first_token_s is not None:
            self.first_tokens[bucket_of(call.first_token_s)] += sign

    def add(self, other: Totals) -> None:
        """Add other totals."""
        self.calls += other.calls
        self.errors += other.errors
        self.tokens_in += other.tokens_in
        self.tokens_out += other.tokens_out
        if other.cost_usd is not None:
            self.cost_usd = (self.cost_usd or 0.0) + other.cost_usd
        self.durations += other.durations
        self.first_tokens += other.first_tokens

    def values(self) -> dict[str, Any]:
        """Return the columns of a row. What would be negative, after a call was taken out twice, is 0."""
        return {
            "calls": max(self.calls, 0),
            "errors": max(self.errors, 0),
            "tokens_in": max(self.tokens_in, 0),
            "tokens_out": max(self.tokens_out, 0),
            "cost_usd": None if self.cost_usd is None else max(self.cost_usd, 0.0),
            "durations": pack_counts(self.durations.clip(0)),
            "first_tokens": pack_counts(self.first_tokens.clip(0)),
        }


def read_totals(row: Any) -> Totals:
    """Return the totals of a row of `traffic`."""
    totals = Totals(row.calls, row.errors, row.tokens_in, row.tokens_out, row.cost_usd)
    add_packed(totals.durations, bytes(row.durations))
    add_packed(totals.first_tokens, bytes(row.first_tokens))
    return totals


def sum_calls(called: Iterable[CallFacts], now: float, sign: int = 1) -> dict[RowKey, Totals]:
    """Return what calls add to rows, by row; rows that would be deleted already are omitted. Pure.

    Calls are summed by the shortest time first, because there are fewer such sums than calls.
    """
    shortest = min(KEPT_S)
    sums: defaultdict[RowKey, Totals] = defaultdict(Totals)
    for call in called:
        at = int(call.started_at // shortest) * shortest
        for dimension, value in call.dimensions():
            sums[RowKey(shortest, dimension, at, value, call.origin)].add_call(call, sign)
    found: defaultdict[RowKey, Totals] = defaultdict(Totals)
    for step_s, kept_s in KEPT_S.items():
        for key, totals in sums.items():
            at = key.at // step_s * step_s
            if at >= now - kept_s:
                found[key._replace(step_s=step_s, at=at)].add(totals)
    return found


async def load_rows(conn: AsyncConnection, project_id: str, changed: Iterable[RowKey]) -> dict[RowKey, Totals]:
    """Return all existing rows of the times and dimensions of some keys."""
    wanted: dict[int, tuple[set[str], set[int]]] = {}
    for key in changed:
        dimensions, times = wanted.setdefault(key.step_s, (set(), set()))
        dimensions.add(key.dimension)
        times.add(key.at)
    found: dict[RowKey, Totals] = {}
    for step_s, (dimensions, times) in wanted.items():
        query = select(traffic).where(
            traffic.c.project_id == project_id,
            traffic.c.step_s == step_s,
            traffic.c.dimension.in_(dimensions),
            traffic.c.at.in_(times),
        )
        for row in await conn.execute(query):
            found[RowKey(step_s, row.dimension, row.at, row.value, row.origin)] = read_totals(row)
    return found


def merge_rows(existing: Mapping[RowKey, Totals], added: Mapping[RowKey, Totals]) -> dict[RowKey, Totals]:
    """Return the rows that change, with their new totals. Values beyond `MOST_VALUES` are added to `OTHERS`. Pure."""
    values: dict[tuple[int, str, int], set[str]] = {}
    for key in existing:
        values.setdefault(key[:3], set()).add(key.value)
    changed: dict[RowKey, Totals] = {}
    for key, totals in sorted(added.items()):
        there = values.setdefault(key[:3], set())
        fits = key.value in there or (totals.calls > 0 and len(there - {OTHERS}) < MOST_VALUES)
        into = key if fits else key._replace(value=OTHERS)
        there.add(into.value)
        if into not in changed:
            changed[into] = Totals()
            if into in existing:
                changed[into].add(existing[into])
        changed[into].add(totals)
    return changed


async def save_rows(conn: AsyncConnection, project_id: str, rows: Mapping[RowKey, Totals]) -> None:
    """Write rows with their whole totals; rows without calls are deleted."""
    written = [{"project_id": project_id, **key._asdict(), **totals.values()} for key, totals in rows.items()]
    kept = [row for row in written if row["calls"]]
    statement = sql.insert(conn, traffic)
    replaced = {name: statement.excluded[name] for name in Totals().values()}
    keys = [column.name for column in traffic.primary_key]
    if kept:
        await conn.execute(statement.on_conflict_do_update(index_elements=keys, set_=replaced), kept)
    gone = [tuple(row[name] for name in keys) for row in written if not row["calls"]]
    for at in range(0, len(gone), _ROWS):
        await conn.execute(delete(traffic).where(tuple_(*traffic.primary_key).in_(gone[at : at + _ROWS])))


async def take_out_calls(conn: AsyncConnection, project_id: str, called: Sequence[CallFacts]) -> None:
    """Take counted calls out of their rows, in the transaction that deletes them.

    That transaction must have incremented the project's deletions, so that no follower writes what it read before.
    """
    taken = sum_calls(called, await sql.current_time(conn), -1)
    existing = await load_rows(conn, project_id, taken)
    merged = merge_rows(existing, taken)
    await save_rows(conn, project_id, {key: totals for key, totals in merged.items() if key in existing})


async def delete_old_rows(conn: AsyncConnection, project_id: str, now: float, retention_s: float | None) -> None:
    """Delete the rows whose time is over. Tags may name people: their rows are kept no longer than the calls."""
    of_project = delete(traffic).where(traffic.c.project_id == project_id)
    for step_s, kept_s in KEPT_S.items():
        for dimension in Dimension:
            limit_s = min(kept_s, retention_s) if dimension is Dimension.TAG and retention_s is not None else kept_s
            old = (traffic.c.step_s == step_s, traffic.c.dimension == dimension, traffic.c.at < int(now - limit_s))
            await conn.execute(of_project.where(*old))

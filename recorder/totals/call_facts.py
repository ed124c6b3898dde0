"""What one ended call adds to totals: its figures, the dimensions that traffic is split by, and its facets.

Owns: reading these facts, which kind of error a call is, and which facets lists filter by. Refuses: adding them up
(`recorder.totals.time_rows`, `recorder.totals.trajectory_rows`).

Facts are read from the store, so their texts are already redacted. A value that is not what it should be (a provider's
usage, for example) counts as absent.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import String, cast, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.messages.calls import CLIENT
from recorder.states import CallState, ErrorKind, Origin
from recorder.store import sql
from recorder.store.schema import aliases, calls, choices, nodes, tool_requests, trajectories, versions
from recorder.store.statement import json_as_text

COST: Final = "cost_usd"  # in `response_meta`: what another provider's answer cost
MOST_CHARS: Final = 128  # of a value
MOST_TAGS: Final = 16  # of a trajectory
MOST_TOOLS: Final = 32  # of a call
_MOST_TOKENS: Final = 1 << 40  # more is no count of tokens


class Dimension(StrEnum):
    """What traffic is split by."""

    ALL = ""
    ALIAS = "alias"
    VERSION = "version"
    CLIENT = "client"
    KEY = "key"
    TAG = "tag"
    ERROR = "error"


class Facet(StrEnum):
    """What trajectories are found by, if one of their calls has it."""

    CLIENT = "client"
    TOOL = "tool"
    FINISH_REASON = "finish_reason"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class CallFacts:
    """The facts of one call. Times are unix seconds, durations seconds; `key`: the id of a key's family."""

    call_id: str
    trajectory_id: str
    origin: Origin
    started_at: float
    error: ErrorKind | None
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    duration_s: float | None  # of a complete answer
    first_token_s: float | None  # of a complete answer
    alias: str
    version: str
    client: str
    key: str
    tags: tuple[str, ...]  # name=value
    finish_reasons: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()

    def dimensions(self) -> Iterator[tuple[Dimension, str]]:
        """Yield the values by which it is counted; "": it has none."""
        yield Dimension.ALL, ""
        yield Dimension.ALIAS, self.alias
        yield Dimension.VERSION, self.version
        yield Dimension.CLIENT, self.client
        yield Dimension.KEY, self.key
        for tag in self.tags:
            yield Dimension.TAG, tag
        if self.error is not None:
            yield Dimension.ERROR, self.error

    def facets(self) -> Iterator[tuple[Facet, str]]:
        """Yield the values by which its trajectory is found."""
        if self.client:
            yield Facet.CLIENT, self.client
        for tool in self.tools:
            yield Facet.TOOL, tool
        for reason in self.finish_reasons:
            yield Facet.FINISH_REASON, reason
        if self.error is not None:
            yield Facet.ERROR, self.error


_BY_STATUS: Final[Mapping[int, ErrorKind]] = {
    408: ErrorKind.TIMEOUT,
    429: ErrorKind.RATE_LIMITED,
    503: ErrorKind.UNAVAILABLE,
    504: ErrorKind.TIMEOUT,
}


def error_kind(state: str, http_status: int | None) -> ErrorKind | None:
    """Return the kind of a call's error; None: it is complete."""
    if state == CallState.COMPLETE:
        return None
    if state == CallState.ABORTED:
        return ErrorKind.ABORTED
    if http_status is None:
        return ErrorKind.LOST
    return _BY_STATUS.get(http_status, ErrorKind.REFUSED if 400 <= http_status < 500 else ErrorKind.FAILED)


async def load_call_facts(conn: AsyncConnection, call_ids: Collection[str]) -> list[CallFacts]:
    """Return the facts of the ended ones of some calls. The caller bounds their number."""
    owner = aliases.alias("owner")
    query = (
        select(
            calls.c.id,
            calls.c.trajectory_id,
            calls.c.state,
            calls.c.http_status,
            json_as_text(calls.c.usage).label("usage"),
            sql.json_member(calls.c.response_meta, CLIENT).label("client"),
            sql.json_member(calls.c.response_meta, COST).label("cost"),
            calls.c.started_at,
            calls.c.first_token_at,
            calls.c.finished_at,
            trajectories.c.origin,
            trajectories.c.made_by,
            json_as_text(trajectories.c.tags).label("tags"),
            aliases.c.name.label("alias"),
            (owner.c.name + "@" + cast(versions.c.number, String)).label("version"),
        )
        .join(trajectories, trajectories.c.id == calls.c.trajectory_id)
        .outerjoin(aliases, aliases.c.id == calls.c.alias_id)
        .outerjoin(versions, versions.c.id == calls.c.version_id)
        .outerjoin(owner, owner.c.id == versions.c.alias_id)
        .where(calls.c.id.in_(call_ids), calls.c.state != CallState.OPEN)
        .order_by(calls.c.id)
    )
    rows = (await conn.execute(query)).all()
    reasons = await _finish_reasons(conn, [row.id for row in rows])
    tools = await _tools(conn, [row.id for row in rows])
    return [_facts(row, reasons.get(row.id, ()), tools.get(row.id, ())) for row in rows]


async def _finish_reasons(conn: AsyncConnection, call_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    query = select(choices.c.call_id, choices.c.finish_reason).where(
        choices.c.call_id.in_(call_ids), choices.c.finish_reason.is_not(None)
    )
    found: dict[str, dict[str, None]] = {}
    for call_id, reason in await conn.execute(query.order_by(choices.c.call_id, choices.c.index)):
        found.setdefault(call_id, {})[_value(reason)] = None
    return {call_id: tuple(reasons) for call_id, reasons in found.items()}


async def _tools(conn: AsyncConnection, call_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return the names of the tools that answers request, by call. Only answers with requests are read."""
    requesting = select(tool_requests.c.call_id).where(tool_requests.c.call_id.in_(call_ids))
    query = (
        select(choices.c.call_id, json_as_text(nodes.c.message))
        .join(nodes, nodes.c.id == choices.c.node_id)
        .where(choices.c.call_id.in_(requesting))
        .order_by(choices.c.call_id, choices.c.index)
    )
    found: dict[str, dict[str, None]] = {}
    for call_id, message in await conn.execute(query):
        named = found.setdefault(call_id, {})
        named.update(dict.fromkeys(_requested_tools(_parsed(message))))
    return {call_id: tuple(named)[:MOST_TOOLS] for call_id, named in found.items()}


def _requested_tools(message: Mapping[str, Any]) -> Iterator[str]:
    requested = message.get("tool_calls")
    for one in requested if isinstance(requested, list) else ():
        function = (one.get("function") or one.get("custom")) if isinstance(one, dict) else None
        name = function.get("name") if isinstance(function, dict) else None
        if isinstance(name, str) and name:
            yield _value(name)


def _facts(row: Any, finish_reasons: tuple[str, ...], tools: tuple[str, ...]) -> CallFacts:
    error = error_kind(row.state, row.http_status)
    usage = _parsed(row.usage)
    return CallFacts(
        call_id=row.id,
        trajectory_id=row.trajectory_id,
        origin=Origin(row.origin),
        started_at=row.started_at,
        error=error,
        tokens_in=_tokens(usage.get("prompt_tokens")),
        tokens_out=_tokens(usage.get("completion_tokens")),
        cost_usd=_dollars(row.cost),
        duration_s=_between(row.started_at, row.finished_at) if error is None else None,
        first_token_s=_between(row.started_at, row.first_token_at) if error is None else None,
        alias=_value(row.alias or ""),
        version=_value(row.version or ""),
        client=_value(row.client or ""),
        key=row.made_by,
        tags=_tags(_parsed(row.tags)),
        finish_reasons=finish_reasons,
        tools=tools,
    )


def _parsed(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _tokens(value: object) -> int:
    return value if isinstance(value, int) and 0 <= value <= _MOST_TOKENS else 0


def _dollars(value: object) -> float | None:
    """Return a cost, which one database returns as text."""
    if not isinstance(value, int | float | str):
        return None
    try:
        cost = float(value)
    except ValueError:
        return None
    return cost if math.isfinite(cost) and cost >= 0 else None


def _between(start: float, end: float | None) -> float | None:
    return None if end is None else max(0.0, end - start)


def _tags(tags: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(_value(f"{name}={tags[name]}") for name in sorted(tags)[:MOST_TAGS])


def _value(text: object) -> str:
    return sql.storable_text(str(text))[:MOST_CHARS]

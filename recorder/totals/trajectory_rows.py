"""Totals and facets of a trajectory, written as its calls are counted.

Owns: adding calls to them, and deleting them with their trajectory. Refuses: filters of lists (`recorder.views.lists`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from sqlalchemy import delete, func
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store import sql
from recorder.store.schema import trajectory_facets, trajectory_totals
from recorder.totals.call_facts import CallFacts

_SUMS: Final = (
    "calls",
    "errors",
    "tokens_in",
    "tokens_out",
    "duration_s",
    "first_token_s",
    "first_tokens",
)


def sum_by_trajectory(called: Iterable[CallFacts]) -> list[dict[str, Any]]:
    """Return what calls add to the rows of `trajectory_totals`, by trajectory. Pure."""
    found: dict[str, dict[str, Any]] = {}
    for call in called:
        row = found.setdefault(
            call.trajectory_id, {"trajectory_id": call.trajectory_id, "cost_usd": None, **dict.fromkeys(_SUMS, 0)}
        )
        row["calls"] += 1
        row["errors"] += call.error is not None
        row["tokens_in"] += call.tokens_in
        row["tokens_out"] += call.tokens_out
        if call.cost_usd is not None:
            row["cost_usd"] = (row["cost_usd"] or 0.0) + call.cost_usd
        row["duration_s"] += call.duration_s or 0.0
        if call.first_token_s is not None:
            row["first_token_s"] += call.first_token_s
            row["first_tokens"] += 1
    return list(found.values())


async def add_to_trajectories(conn: AsyncConnection, project_id: str, called: Sequence[CallFacts]) -> None:
    """Add calls to the totals and facets of their trajectories, which exist."""
    rows = sum_by_trajectory(called)
    if not rows:
        return
    statement = sql.insert(conn, trajectory_totals)
    t, new = trajectory_totals.c, statement.excluded
    sums = {name: t[name] + new[name] for name in _SUMS}
    cost = func.coalesce(t.cost_usd + new.cost_usd, t.cost_usd, new.cost_usd)
    await conn.execute(
        statement.on_conflict_do_update(index_elements=["trajectory_id"], set_={**sums, "cost_usd": cost}), rows
    )
    facets = {(facet, value, call.trajectory_id): None for call in called for facet, value in call.facets()}
    if facets:
        names = ("facet", "value", "trajectory_id")
        found = [{"project_id": project_id, **dict(zip(names, one, strict=True))} for one in facets]
        await conn.execute(sql.insert_ignore(conn, trajectory_facets), found)


async def forget_trajectory(conn: AsyncConnection, trajectory_id: str) -> None:
    """Delete a trajectory's totals and facets."""
    for table in (trajectory_totals, trajectory_facets):
        await conn.execute(delete(table).where(table.c.trajectory_id == trajectory_id))

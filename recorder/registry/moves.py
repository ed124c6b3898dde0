"""Moves of versions, as they were written down: what was decided, who did, why, and by which figures.

Owns: reading them from the ledger, where the transaction that decides writes them (`recorder.registry.aliases`,
`recorder.registry.versions`). Refuses: deciding and writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select

from recorder.store.database import Store
from recorder.store.schema import aliases, ledger, versions


@dataclass(frozen=True, slots=True)
class Move:
    """One decision about a version; `at` is unix seconds.

    `move`: gated, canary, canary_ended, gate (made live by it), promote, rollback, rejected, abandoned. `who`:
    controller, hand …; `why` in words or a code; `figures` as whoever decided saw them.
    """

    at: float
    alias: str
    version: str
    version_id: str
    move: str
    who: str | None
    why: str | None
    figures: Mapping[str, Any]


async def list_moves(store: Store, project_id: str, *, alias: str | None = None, limit: int = 100) -> list[Move]:
    """The newest decisions first, about one alias's versions or all."""
    query = (
        select(ledger, aliases.c.name, versions.c.number)
        .join(versions, versions.c.id == ledger.c.object_id)
        .join(aliases, aliases.c.id == versions.c.alias_id)
        .where(ledger.c.project_id == project_id, ledger.c.object_kind == "version")
        .order_by(ledger.c.id.desc())
        .limit(limit)
    )
    if alias is not None:
        query = query.where(aliases.c.name == alias)
    async with store.read() as conn:
        return [_move(row) for row in await conn.execute(query)]


def _move(row: Any) -> Move:
    said = row.detail or {}
    return Move(
        at=row.at,
        alias=row.name,
        version=f"{row.name}@{row.number}",
        version_id=row.object_id,
        move=row.code,
        who=said.get("who"),
        why=said.get("reason"),
        figures=said.get("figures") or {},
    )

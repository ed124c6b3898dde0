"""Recorded moves of versions: what was decided, by whom, why, and by which figures.

Owns: their rows in the ledger, written by the transaction that decides (`recorder.registry.alias_moves`,
`recorder.registry.versions`). Refuses: deciding.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store import ledger as rows
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.ledger import LedgerRow
from recorder.store.schema import aliases, ledger, versions


@dataclass(frozen=True, slots=True)
class VersionMove:
    """One decision about a version; `at` is unix seconds.

    `move`: gated, canary (also a new share), canary_ended, gate (the gate made it live), promote, watch_ended (it stays
    live), rollback, rejected, abandoned, reward_fall, kl_base_max and health_rule (a learner found it), kept (it stays
    live in spite of that).
    `who`: controller, learner, hand, a key's id …; `why`: a text or a code; `figures`: at the time of the decision;
    `limits`: the bounds that a gate applied then, by the setting's name. Decisions of older programs have none.
    """

    at: float
    alias: str
    version: str
    version_id: str
    move: str
    who: str | None
    why: str | None
    figures: Mapping[str, Any]
    share: float | None = None  # a canary's share of new groups
    limits: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MoveReason:
    """The details of a move's ledger row: by whom, why, by which figures."""

    who: str
    reason: str | None = None
    figures: Mapping[str, Any] | None = None

    @property
    def detail(self) -> dict[str, Any]:
        """Return the details in the ledger's form."""
        told = {"reason": self.reason, "figures": dict(self.figures) if self.figures else None}
        return {"who": self.who} | {name: value for name, value in told.items() if value is not None}


async def write_move(
    conn: AsyncConnection,
    project_id: str,
    alias: str,
    version_id: str,
    code: str,
    moved: Mapping[str, Any],
    said: MoveReason,
) -> None:
    """Write the ledger row with the reason why a version came into service, stays or left it."""
    detail = {"alias": alias, **moved, **said.detail}
    await rows.write_rows(conn, [LedgerRow(project_id, "version", version_id, code, detail)])


async def list_moves(
    project: Project,
    *,
    alias: str | None = None,
    version_ids: Collection[str] | None = None,
    limit: int = 100,
) -> list[VersionMove]:
    """Return decisions about one alias's versions, some versions or all, newest first."""
    query = (
        select(ledger, aliases.c.name, versions.c.number)
        .join(versions, versions.c.id == ledger.c.object_id)
        .join(aliases, aliases.c.id == versions.c.alias_id)
        .where(sql.without_index(ledger.c.project_id) == project.id, ledger.c.object_kind == "version")
        .order_by(ledger.c.id.desc())
        .limit(limit)
    )
    if alias is not None:
        query = query.where(aliases.c.name == alias)
    if version_ids is not None:  # by the ids, so that SQLite does not scan all newest rows
        query = query.where(ledger.c.object_id.in_(version_ids))
        query = query.order_by(None).order_by(sql.without_index(ledger.c.id).desc())
    async with project.store.read() as conn:
        return [_move(row) for row in await conn.execute(query)]


async def count_moves(project: Project) -> dict[tuple[str, str], int]:
    """Return how often each move was made, by (alias, move)."""
    query = (
        select(aliases.c.name, ledger.c.code, func.count())
        .select_from(ledger)
        .join(versions, versions.c.id == ledger.c.object_id)
        .join(aliases, aliases.c.id == versions.c.alias_id)
        .where(ledger.c.project_id == project.id, ledger.c.object_kind == "version")
        .group_by(aliases.c.name, ledger.c.code)
    )
    async with project.store.read() as conn:
        return {(str(name), str(code)): int(count) for name, code, count in await conn.execute(query)}


def _move(row: Any) -> VersionMove:
    said = row.detail or {}
    return VersionMove(
        at=row.at,
        alias=row.name,
        version=f"{row.name}@{row.number}",
        version_id=row.object_id,
        move=row.code,
        who=said.get("who"),
        why=said.get("reason"),
        figures=said.get("figures") or {},
        share=said.get("share"),
        limits=said.get("limits") or {},
    )

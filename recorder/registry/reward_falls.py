"""A live version whose trajectories earn clearly less than those before it: found by a learner, decided by a person.

Owns: the rows of both in the ledger, and which finding waits for its decision. Refuses: looking for a fall
(`recorder.views.versions.live_rewards`, `recorder.stats.falls`), and moving an alias (`recorder.registry.alias_moves`).

Each version is found at most once. Any later move of the alias to the version, and keeping it, decide the finding; a
rollback does, because another version is live then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.registry import moves
from recorder.registry.aliases import AliasView
from recorder.registry.moves import MoveReason
from recorder.store.database import Store
from recorder.store.schema import ledger

FALL: Final = "reward_fall"  # the ledger's code of a finding
KEPT: Final = "kept"  # the version stays live, by a person's decision
LEARNER: Final = "learner"
_CODES: Final = (FALL, KEPT, "promote", "gate", "rollback")


async def write_fall(store: Store, alias: AliasView, version_id: str, why: str, figures: Mapping[str, Any]) -> None:
    """Write that the reward of a version fell, unless that is written already."""
    async with store.write() as conn:
        if FALL not in await _codes(conn, version_id):
            said = MoveReason(LEARNER, why, figures)
            await moves.write_move(conn, alias.project_id, alias.name, version_id, FALL, {}, said)


async def find_undecided_fall(conn: AsyncConnection, version_id: str) -> str | None:
    """What was found about a live version that nobody has decided about since, in words; else None."""
    query = select(ledger.c.code, ledger.c.detail).where(*_about(version_id)).order_by(ledger.c.id.desc()).limit(1)
    row = (await conn.execute(query)).first()
    return str((row.detail or {}).get("reason", "")) if row is not None and row.code == FALL else None


async def has_fallen(store: Store, version_id: str) -> bool:
    """Whether a fall of this version was ever found."""
    async with store.read() as conn:
        return FALL in await _codes(conn, version_id)


async def list_kept(conn: AsyncConnection, version_ids: Collection[str]) -> set[str]:
    """Those of the versions that a person kept although their reward fell."""
    query = select(ledger.c.object_id).where(
        ledger.c.object_kind == "version", ledger.c.object_id.in_(version_ids), ledger.c.code == KEPT
    )
    return set((await conn.execute(query)).scalars())


async def _codes(conn: AsyncConnection, version_id: str) -> set[str]:
    return set((await conn.execute(select(ledger.c.code).where(*_about(version_id)))).scalars())


def _about(version_id: str) -> tuple[Any, ...]:
    return ledger.c.object_kind == "version", ledger.c.object_id == version_id, ledger.c.code.in_(_CODES)

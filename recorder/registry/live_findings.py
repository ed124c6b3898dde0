"""What a learner found about a live version, for which learning waits: a person decides.

Owns: the kinds of findings, their rows and those of the decisions in the ledger, and which finding waits for its
decision. Refuses: looking for a fall of the reward (`recorder.views.versions.live_rewards`, `recorder.stats.falls`),
measuring drift (`trainer.step.drift`), health rules (`trainer.runtime.health_watch`), and moving an alias
(`recorder.registry.alias_moves`).

Each kind is found at most once of a version. Any later move of the alias to the version, and keeping it, decide all its
findings; a rollback does, because another version is live then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.registry import moves
from recorder.registry.aliases import AliasView
from recorder.registry.moves import MoveReason
from recorder.store.database import Store
from recorder.store.schema import ledger, versions

FindingCode = Literal["reward_fall", "kl_base_max", "health_rule"]

FALL: Final[FindingCode] = "reward_fall"  # its trajectories earn clearly less than those of the versions before
DRIFT: Final[FindingCode] = "kl_base_max"  # it is further from the base than `trainer.kl_base_max`
HEALTH: Final[FindingCode] = "health_rule"  # a health rule whose consequence is a pause fired
_FINDINGS: Final[tuple[FindingCode, ...]] = (FALL, DRIFT, HEALTH)
KEPT: Final = "kept"  # the version stays live, by a person's decision
LEARNER: Final = "learner"
_DECISIONS: Final = (KEPT, "promote", "rollback")  # by hand, while learning waits
_CODES: Final = (*_FINDINGS, *_DECISIONS, "gate")


@dataclass(frozen=True, slots=True)
class LiveFinding:
    """What was found. `how`: in words."""

    code: FindingCode
    how: str


async def write_finding(
    store: Store, alias: AliasView, version_id: str, finding: LiveFinding, figures: Mapping[str, Any]
) -> None:
    """Write a finding about a version, unless one of its kind is written already."""
    async with store.write() as conn:
        if finding.code not in await _codes(conn, version_id):
            said = MoveReason(LEARNER, finding.how, figures)
            await moves.write_move(conn, alias.project_id, alias.name, version_id, finding.code, {}, said)


async def find_undecided(conn: AsyncConnection, version_id: str) -> LiveFinding | None:
    """The newest finding about a live version that nobody has decided about since, if any."""
    query = select(ledger.c.code, ledger.c.detail).where(*_about(version_id)).order_by(ledger.c.id.desc()).limit(1)
    row = (await conn.execute(query)).first()
    code = next((one for one in _FINDINGS if row is not None and row.code == one), None)
    return None if row is None or code is None else LiveFinding(code, str((row.detail or {}).get("reason", "")))


async def has_finding(store: Store, version_id: str, code: FindingCode) -> bool:
    """Whether a version ever had a finding of this kind."""
    async with store.read() as conn:
        return code in await _codes(conn, version_id)


async def decided_at(store: Store, alias_id: str, code: FindingCode) -> float:
    """When a person decided about the alias's newest decided finding of a kind (unix seconds); 0: none is."""
    of_alias = select(versions.c.id).where(versions.c.alias_id == alias_id)
    about = (ledger.c.object_kind == "version", ledger.c.object_id.in_(of_alias))
    found = select(ledger.c.id).where(*about, ledger.c.code == code).order_by(ledger.c.id.desc()).limit(2)
    async with store.read() as conn:
        for id_ in (await conn.execute(found)).scalars():  # the newest one may wait for its decision
            after = select(func.min(ledger.c.at)).where(*about, ledger.c.code.in_(_DECISIONS), ledger.c.id > id_)
            if (at := (await conn.execute(after)).scalar_one()) is not None:
                return float(at)
    return 0.0


async def list_kept(conn: AsyncConnection, version_ids: Collection[str]) -> set[str]:
    """Those of the versions that a person kept although their reward fell."""
    codes = select(ledger.c.object_id, ledger.c.code).where(
        ledger.c.object_kind == "version", ledger.c.object_id.in_(version_ids), ledger.c.code.in_((FALL, KEPT))
    )
    found = {(row.object_id, row.code) for row in await conn.execute(codes)}
    return {id_ for id_, code in found if code == KEPT and (id_, FALL) in found}


async def _codes(conn: AsyncConnection, version_id: str) -> set[str]:
    return set((await conn.execute(select(ledger.c.code).where(*_about(version_id)))).scalars())


def _about(version_id: str) -> tuple[Any, ...]:
    return ledger.c.object_kind == "version", ledger.c.object_id == version_id, ledger.c.code.in_(_CODES)

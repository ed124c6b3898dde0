"""Which health rules signal about live learning of an alias: the newest row says it, and each change adds one.

Owns: these rows of the ledger. Refuses: the rules (`trainer.campaign.health`), looking at them
(`trainer.runtime.health_watch`), and the decision that a pause waits for (`recorder.registry.live_findings`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.registry.aliases import AliasView
from recorder.store.database import Store
from recorder.store.ledger import LedgerRow, write_rows
from recorder.store.schema import aliases, ledger

HEALTH_RULES: Final = "health_rules"  # the ledger's code of a change


@dataclass(frozen=True, slots=True)
class RuleSignal:
    """The signal of one rule. `then`: note, or pause (learning waits for a person)."""

    rule: str
    then: str
    detail: str
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LearningHealth:
    """What the rules say about an alias since its step `step`."""

    alias: str
    step: int
    signals: Sequence[RuleSignal] = ()
    at: float = 0.0  # unix seconds

    def sentences(self) -> list[str]:
        """What needs the operator's attention, as sentences."""
        return [f"{one.rule} in learning of {self.alias}, at step {self.step}: {one.detail}" for one in self.signals]


async def write_health(store: Store, alias: AliasView, health: LearningHealth) -> None:
    """Write what the rules say now."""
    detail = {"step": health.step, "signals": [asdict(one) for one in health.signals]}
    async with store.write() as conn:
        await write_rows(conn, [LedgerRow(alias.project_id, "alias", alias.id, HEALTH_RULES, detail)])


async def load_health(conn: AsyncConnection, project_id: str, alias_id: str | None = None) -> list[LearningHealth]:
    """What the rules say of each alias of a project that has rows, or of one, by alias; it may be nothing."""
    said = (ledger.c.project_id == project_id, ledger.c.object_kind == "alias", ledger.c.code == HEALTH_RULES)
    of_alias = select(func.max(ledger.c.id)).where(*said).group_by(ledger.c.object_id)
    if alias_id is not None:
        of_alias = of_alias.where(ledger.c.object_id == alias_id)
    query = (
        select(aliases.c.name, ledger.c.detail, ledger.c.at)
        .join(aliases, aliases.c.id == ledger.c.object_id)
        .where(ledger.c.id.in_(of_alias))
        .order_by(aliases.c.name)
    )
    return [_health(row) for row in await conn.execute(query)]


def _health(row: Any) -> LearningHealth:
    detail = row.detail or {}  # a deletion removes details
    signals = tuple(RuleSignal(**one) for one in detail.get("signals", ()))
    return LearningHealth(row.name, int(detail.get("step", 0)), signals, row.at)

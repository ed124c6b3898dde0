"""Tokens that were sampled for a campaign: by its attempts, and by the gates of its versions.

Owns: both sums, and what each gate took. Refuses: how much a gate may take (`proxy.gate.token_share`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select

from recorder.queue.campaigns import get_campaign, list_group_ids
from recorder.store.database import Store
from recorder.store.schema import aliases, calls, ledger, steps, trajectories, versions

# Figures of a gate's decision, as the version's ledger row has them.
GATE_TOKENS: Final = "gate_tokens"  # sampled by its answers
GATE_QUESTIONS: Final = "gate_questions"  # first turns that both versions answered
_DECIDED: Final = ("gated", "rejected")
_PAGE: Final = 200  # groups per SELECT: a long read would prevent SQLite from reusing its WAL


@dataclass(frozen=True, slots=True)
class GateCost:
    """What the gate of a version took, and how it decided: the code and the details in words."""

    version: str
    tokens: int
    questions: int
    why: str


@dataclass(frozen=True, slots=True)
class CampaignTokens:
    """Sampled tokens of a campaign: of all its attempts, and of each gate."""

    attempts: int
    gates: Sequence[GateCost] = ()

    @property
    def of_gates(self) -> int:
        """Tokens of all gates."""
        return sum(one.tokens for one in self.gates)

    @property
    def gate_share(self) -> float | None:
        """The share of the gates in all sampled tokens; None: nothing was sampled."""
        total = self.attempts + self.of_gates
        return self.of_gates / total if total else None


async def load_campaign_tokens(store: Store, campaign_id: str) -> CampaignTokens:
    """Return the tokens that were sampled for a campaign so far, by the engine's count."""
    return CampaignTokens(await _of_attempts(store, campaign_id), await _of_gates(store, campaign_id))


async def _of_attempts(store: Store, campaign_id: str) -> int:
    campaign = await get_campaign(store, campaign_id)
    async with store.read() as conn:
        ids = [str(id_) for (id_,) in await conn.execute(list_group_ids(campaign))]
    sampled = func.coalesce(func.sum(calls.c.usage["completion_tokens"].as_integer()), 0)
    query = select(sampled).join(trajectories, trajectories.c.id == calls.c.trajectory_id)
    total = 0
    for page in (ids[at : at + _PAGE] for at in range(0, len(ids), _PAGE)):
        async with store.read() as conn:
            total += int((await conn.execute(query.where(trajectories.c.group_id.in_(page)))).scalar_one())
    return total


async def _of_gates(store: Store, campaign_id: str) -> list[GateCost]:
    query = (
        select(aliases.c.name, versions.c.number, ledger.c.detail)
        .select_from(steps)
        .join(versions, versions.c.id == steps.c.version_id)
        .join(aliases, aliases.c.id == versions.c.alias_id)
        .join(ledger, ledger.c.object_id == versions.c.id)
        .where(steps.c.campaign_id == campaign_id, ledger.c.object_kind == "version", ledger.c.code.in_(_DECIDED))
        .order_by(ledger.c.id)
    )
    async with store.read() as conn:
        rows = (await conn.execute(query)).all()
    return [
        GateCost(f"{row.name}@{row.number}", int(figures[GATE_TOKENS]), int(figures[GATE_QUESTIONS]), _why(row.detail))
        for row in rows
        if GATE_TOKENS in (figures := _figures(row.detail))
    ]


def _figures(detail: Any) -> Mapping[str, float]:
    found = detail.get("figures") if isinstance(detail, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _why(detail: Mapping[str, Any]) -> str:
    return str(detail.get("reason") or "")

"""Holding back: a promoted version is watched beside the one before it, on which a share of new runs stays meanwhile.

Owns: which promotions are followed by that. The alias's row says the share, and until when; the version before is its
`previous_version_id`. Refuses: drawing runs (`proxy.versions.pins`), comparing them (`proxy.gate`), rolling back
(`recorder.registry.aliases`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.registry import descent
from recorder.states import StepState
from recorder.store.schema import steps

if TYPE_CHECKING:
    from recorder.registry.aliases import AliasView


@dataclass(frozen=True, slots=True)
class Holdback:
    """The share (0..1, 0: none) of new runs that stays on the version before, and for how long."""

    share: float
    watch_s: float

    @property
    def columns(self) -> dict[str, float]:
        """As an alias's row has it."""
        return {"holdback_share": self.share, "rollback_watch_s": self.watch_s}


async def is_held(conn: AsyncConnection, alias: AliasView, version_id: str) -> bool:
    """Whether runs are held back from a version that takes the place of the alias's live one.

    None are where it goes back to an earlier version: what is left then is what somebody wants nobody to meet. And none
    from one of a campaign, which was validated on scenarios of its own.
    """
    if alias.holdback_share <= 0 or alias.live_version_id is None:
        return False
    ancestors = {row.id for row in await conn.execute(descent.lineage(version_id))}
    return alias.live_version_id in ancestors and not await _is_of_campaign(conn, version_id)


async def _is_of_campaign(conn: AsyncConnection, version_id: str) -> bool:
    made = (steps.c.version_id == version_id, steps.c.state == StepState.DONE, steps.c.campaign_id.is_not(None))
    return (await conn.execute(select(steps.c.id).where(*made))).first() is not None

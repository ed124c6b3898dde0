"""Shares of new trajectories that follow the settings: of a running canary, and of a watched promotion's holdback.

Owns: when a changed `aliases.NAME.canary_share` or `.holdback_share` moves a share that is in use. Refuses: drawing
versions (`proxy.versions.pins`), and a share that a person gave a canary: it stays.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from proxy.settings.sections import AliasSettings
from proxy.versions.routing import ServiceRouter
from recorder.registry.alias_moves import set_canary
from recorder.registry.aliases import AliasView, Holdback, ensure_alias
from recorder.registry.moves import list_moves
from recorder.setting_changes.follower import SettingsFollower
from recorder.store.database import Project

log = logging.getLogger(__name__)

WHO = "controller"  # in the ledger
_MOVES = 20  # of a version, among which its newest share is


@dataclass
class AliasShares:
    """Called by the controller in each round."""

    project: Project
    versions: ServiceRouter
    follower: SettingsFollower
    _given: set[tuple[str, float]] = field(default_factory=set)  # canaries and the shares that people gave them

    async def apply(self) -> None:
        """Give each alias its present shares. Raises Conflict, StoreError."""
        for name, settings in self.follower.aliases().items():
            alias = self.versions.snapshot.aliases.get(name)
            if alias is not None:
                await self._hold_back(alias, settings)
                await self._share(alias, settings.canary_share)

    async def _hold_back(self, alias: AliasView, settings: AliasSettings) -> None:
        if alias.holdback_share != settings.holdback_share:
            held = Holdback(settings.holdback_share, settings.rollback_watch_s)
            await ensure_alias(self.project, alias.name, alias.base_model, None, held=held)
            await self.versions.refresh()

    async def _share(self, alias: AliasView, share: float) -> None:
        canary = alias.canary_version_id
        if canary is None or alias.canary_share == share or (canary, alias.canary_share) in self._given:
            return
        moves = await list_moves(self.project, version_ids=[canary], limit=_MOVES)
        if next((move.who for move in moves if move.move == "canary"), None) != WHO:
            self._given.add((canary, alias.canary_share))
            return
        why = f"aliases.{alias.name}.canary_share is {share:g} now"
        await set_canary(self.project.store, alias.id, canary, share, who=WHO, reason=why)
        log.info("the canary of %s gets %.0f %% of new trajectories", alias.name, 100 * share)
        await self.versions.refresh()

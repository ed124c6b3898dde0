"""Versions that users meet on trial: canaries, and those that were promoted a while ago. What their runs show decides.

Owns: when it is looked, letting a canary pass or end, taking a promoted version back, ending its watch. Refuses: what
runs show (`proxy.gate.canary`), and drawing runs (`proxy.versions.pins`). As many looks as one likes do not make it
likelier that a version goes which is as good as the other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from proxy.gate import canary, examine
from proxy.gate.canary import Outcome
from proxy.gate.comparison import Comparison, Figure
from proxy.versions.deciding import WHO, Deciding
from recorder.registry.alias_moves import end_watch, rollback, set_canary, set_live
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView

log = logging.getLogger(__name__)

EVERY_S = 5.0  # between two looks …
SHARE_OF_TIME = 0.05  # … and what they may take of all time: over many runs they are further apart …
MOST_S = 60.0  # … but no further than this
PASSED: Final = {
    "not_worse": "its reward is shown to be no worse than the live version's",
    "enough_tasks": "nothing shows it worse than the live version",
}


@dataclass
class OnTrial:
    """Called by the controller, round by round."""

    deciding: Deciding
    _due: float = 0.0

    async def look(self) -> None:
        """Decide on what can be decided by now; while anything is on trial, have another round come in time."""
        on_trial = [
            alias
            for alias in self.deciding.versions.snapshot.aliases.values()
            if alias.canary_version_id is not None or alias.watched_until is not None
        ]
        if on_trial and time.monotonic() >= self._due:
            await self._look(on_trial)
        if on_trial:  # also where this round came too early: no other need come
            self.deciding.again(max(0.0, self._due - time.monotonic()))

    async def _look(self, on_trial: Sequence[AliasView]) -> None:
        began, snapshot = time.monotonic(), self.deciding.versions.snapshot
        for alias in on_trial:
            tried, live, before = (
                snapshot.versions.get(id_ or "")
                for id_ in (alias.canary_version_id, alias.live_version_id, alias.previous_version_id)
            )
            if live is not None and tried is not None:
                await self._look_at_canary(alias, tried, live)
            if live is not None and before is not None and alias.watched_until is not None:
                await self._look_at_promoted(alias, live, before, alias.watched_until)
        took = time.monotonic() - began
        self._due = time.monotonic() + max(EVERY_S, min(took / SHARE_OF_TIME, MOST_S))

    async def _look_at_canary(self, alias: AliasView, version: VersionView, live: VersionView) -> None:
        settings = self.deciding.settings_of(alias)
        found = await canary.beside(self.deciding.store, version, live.id)
        waited_s = self.deciding.versions.clock() - version.state_at
        outcome = canary.outcome(found, waited_s, tasks=settings.canary_max_tasks, max_age_s=settings.canary_max_age_s)
        if outcome != "open":
            await self._decide(alias, version, outcome, found)
            await self.deciding.versions.refresh()

    async def _decide(self, alias: AliasView, version: VersionView, outcome: Outcome, found: Comparison) -> None:
        store, figures = self.deciding.store, canary.figures(found)
        if outcome == "late":
            tasks = found.doubts[Figure.REWARD].samples
            why = (
                f"its reward was compared on {tasks} tasks, which decides nothing (canary_max_tasks, canary_max_age_s)"
            )
            await self.deciding.reject(version, examine.NOT_PROMOTED, why, figures=figures)
        elif outcome == "worse":
            why = f"its runs are worse by {', '.join(found.worse_by)}"
            log.error("%s is taken away: %s", version.name, why)
            await set_canary(store, alias.id, None, 0.0, who=WHO, reason=why, figures=figures)
        else:
            why = f"{outcome}: {PASSED[outcome]}"
            await set_live(store, alias.id, version.id, why="gate", who=WHO, reason=why, figures=figures)
            log.info("%s is live (%s)", version.name, why)

    async def _look_at_promoted(self, alias: AliasView, live: VersionView, before: VersionView, until: float) -> None:
        store, found = self.deciding.store, await canary.beside(self.deciding.store, live, before.id)
        left_s = until - self.deciding.versions.clock()
        figures = canary.figures(found)
        if found.worse_by:
            why = f"the runs of {live.name} are worse by {', '.join(found.worse_by)}"
            log.error("%s is live again: %s", before.name, why)
            await rollback(store, alias.id, left=live.id, who=WHO, reason=why, figures=figures)
        elif left_s <= 0:
            await end_watch(store, alias.id, live.id, who=WHO, figures=figures)
            log.info("%s stays: nothing shows it worse than %s", live.name, before.name)
        else:
            return
        await self.deciding.versions.refresh()

"""Promotion of loaded versions: gate, then live, canary, waiting for a person, or rejected; and versions on trial.

Owns: running the gate without delaying a round, applying its verdict, rejecting; comparing canaries and recently
promoted versions, and rolling them back. Refuses: engines and what they keep loaded (`proxy.versions.controller`), the
checks themselves (`proxy.gate`), and drawing versions (`proxy.versions.pins`).

The comparison is a sequential test: further looks do not raise the chance that an equally good version is rejected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from proxy.errors import EngineError, EngineUnreachable
from proxy.gate import canary, examination
from proxy.gate.behaviour import BehaviourArms
from proxy.gate.canary import CanaryComparison, ComparedFigure, Outcome
from proxy.gate.examination import GateVerdict
from proxy.settings.sections import AliasSettings
from proxy.versions.fleet import Fleet
from proxy.versions.guests import GuestVersions
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.registry.alias_moves import end_watch, rollback, set_canary, set_live
from recorder.registry.aliases import AliasView
from recorder.registry.ancestry import Lessons
from recorder.registry.versions import VersionView, pass_gate, reject_version
from recorder.setting_changes.follower import SettingsFollower
from recorder.states import VersionState
from recorder.store.database import Store

log = logging.getLogger(__name__)

WHO = "controller"  # in the ledger
RETRY_S = 0.5  # after an engine went away
DEATHS = 2  # an engine that goes away this often while a version is loaded: the version is at fault


@dataclass
class PromotionDecider:
    """Called by the controller in each round. `wake` starts a round, `again` requests one within a number of
    seconds.
    """

    store: Store
    versions: ServiceRouter
    recorder: Recorder
    fleet: Fleet
    follower: SettingsFollower  # policies and shares by alias, and the budgets of a gate's judging
    wake: Callable[[], None]
    again: Callable[[float], None]
    guests: GuestVersions  # earlier versions that engines hold for a gate's comparison
    _examined: dict[str, asyncio.Task[GateVerdict]] = field(default_factory=dict)  # by version id
    _deaths: dict[str, int] = field(default_factory=dict)

    async def stop(self) -> None:
        """Cancel the running gates."""
        for examined in self._examined.values():
            examined.cancel()
        await asyncio.gather(*self._examined.values(), return_exceptions=True)

    def alias_of(self, version: VersionView) -> AliasView:
        """Return the present state of a version's alias."""
        return self.versions.snapshot.aliases[version.alias_name]

    def settings_of(self, alias: AliasView) -> AliasSettings:
        """Return the settings of an alias as they are now."""
        return self.follower.aliases().get(alias.name, AliasSettings())

    async def count_death(self, version: VersionView, error: EngineUnreachable) -> None:
        """Count that an engine went away while it held a version; after `DEATHS` times the version is rejected."""
        deaths = self._deaths.get(version.id, 0) + 1
        self._deaths[version.id] = deaths
        log.warning("the engine went away while %s was loaded: %s", version.name, error)
        if deaths >= DEATHS:
            await self.reject(
                version, "engine_died", f"the engine went away {deaths} times while it was loaded: {error}"
            )
        self.again(RETRY_S)
        for member in self.fleet.members:
            await member.look()

    async def examine_loaded(self) -> None:
        """loaded → gated, or rejected. A gate runs in the background, and its end starts a round."""
        snapshot = self.versions.snapshot
        for version in [v for v in snapshot.versions.values() if v.state is VersionState.LOADED and snapshot.has(v)]:
            examined = self._examined.get(version.id)
            if examined is None:
                self._examined[version.id] = examined = asyncio.create_task(self._examine(version))
                examined.add_done_callback(lambda _: self.wake())
            elif examined.done():
                del self._examined[version.id]
                await self._decide(version, examined)
                await self.versions.refresh()

    async def _examine(self, version: VersionView) -> GateVerdict:
        alias = self.alias_of(version)
        live = self.versions.snapshot.versions[alias.live_version_id or ""]
        settings = self.settings_of(alias)
        policy = await examination.service_policy(self.store, version, settings)
        engines = sorted(self.fleet.up(), key=lambda member: not member.holds(version))  # one that has it, if any
        arms = BehaviourArms(self.store, self.recorder, engines[0].replica, alias, version, live, self.follower)
        began = time.monotonic()
        verdict = await examination.examine_version(arms, policy, settings.gate, self.guests.hold)
        figures = {**verdict.figures, "gate_s": time.monotonic() - began}
        return replace(verdict, figures=figures, limits=examination.gate_limits(settings.gate))

    async def _decide(self, version: VersionView, examined: asyncio.Task[GateVerdict]) -> None:
        try:
            verdict = examined.result()
        except EngineUnreachable as e:
            await self.count_death(version, e)
            return
        if verdict.passed:
            measured = {"figures": verdict.figures, "limits": verdict.limits}
            await pass_gate(self.store, version.id, verdict.summary, who=WHO, **measured)
            log.info("%s passed its gate (%s)", version.name, verdict.summary)
        else:
            measured = {"figures": verdict.figures, "limits": verdict.limits}
            await self.reject(version, verdict.code, verdict.why, lessons="left_out", **measured)

    async def reject(
        self,
        version: VersionView,
        code: str,
        why: str,
        *,
        lessons: Lessons = "again",  # a failed load or a missed deadline is not the fault of the training data
        figures: Mapping[str, Any] | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> None:
        """Unload and reject a version; `lessons` decides what happens to the trajectories that it was trained on."""
        log.error("%s is rejected (%s): %s", version.name, code, why)
        for member in self.fleet.members:
            if member.holds(version):
                with contextlib.suppress(EngineError):  # the drain retries
                    await member.unload(version.engine_name)
        measured = {"figures": figures, "limits": limits}
        await reject_version(self.store, version.id, f"{code}: {why}", lessons=lessons, who=WHO, **measured)

    async def promote_gated(self) -> None:
        """Apply each alias's policy to versions that passed, and reject those that were trained from a version that is
        no longer live.
        """
        snapshot = self.versions.snapshot
        await self._reject_strays()
        for version in [v for v in snapshot.versions.values() if v.state is VersionState.GATED and snapshot.has(v)]:
            alias = self.alias_of(version)
            if version.parent_id == alias.live_version_id:
                await self._bring_on(version, alias, self.settings_of(alias))
                await self.versions.refresh()

    async def _bring_on(self, version: VersionView, alias: AliasView, settings: AliasSettings) -> None:
        """gated → live or canary, or left waiting for a person."""
        waited_s = time.time() - version.state_at
        policy = await examination.service_policy(self.store, version, settings)
        match examination.state_after_gate(policy, waited_s, settings):
            case "live":
                await set_live(self.store, alias.id, version.id, why="gate", who=WHO)
                log.info("%s is live", version.name)
            case "canary":
                await set_canary(self.store, alias.id, version.id, settings.canary_share, who=WHO)
                log.info("%s is the canary (%.0f %%)", version.name, 100 * settings.canary_share)
            case "wait":
                self.again(settings.canary_max_age_s - waited_s)
            case "reject":
                await self.reject(version, examination.NOT_PROMOTED, f"it was not promoted within {waited_s:.0f} s")

    async def _reject_strays(self) -> None:
        """Reject versions that were trained from a version that is no longer live."""
        snapshot = self.versions.snapshot
        passed = (VersionState.GATED, VersionState.CANARY)
        for version in [v for v in snapshot.versions.values() if v.state in passed]:
            if version.parent_id != self.alias_of(version).live_version_id:
                await self.reject(version, "parent_left", "its parent went out of service in the meantime")
                await self.versions.refresh()


EVERY_S = 5.0  # between two comparisons …
SHARE_OF_TIME = 0.05  # … the share of time that they may take: with many trajectories they are further apart …
MOST_S = 60.0  # … but not further than this
PASSED: Final = {
    "not_worse": "its reward is shown to be no worse than the live version's",
    "enough_tasks": "no figure shows it to be worse than the live version",
}


@dataclass
class TrialMonitor:
    """Compares canaries and recently promoted versions. Called by the controller in each round."""

    deciding: PromotionDecider
    _due: float = 0.0

    async def look(self) -> None:
        """Decide what can be decided now; while a version is on trial, ask for another round in time."""
        on_trial = [
            alias
            for alias in self.deciding.versions.snapshot.aliases.values()
            if alias.canary_version_id is not None or alias.watched_until is not None
        ]
        if on_trial and time.monotonic() >= self._due:
            await self._look(on_trial)
        if on_trial:  # also if this round came too early: no other may follow
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
        comparison = await canary.compare_versions(self.deciding.store, version, live.id)
        waited_s = self.deciding.versions.clock() - version.state_at
        outcome = canary.canary_outcome(
            comparison, waited_s, tasks=settings.canary_max_tasks, max_age_s=settings.canary_max_age_s
        )
        if outcome != "open":
            await self._decide(alias, version, outcome, comparison)
            await self.deciding.versions.refresh()

    async def _decide(
        self, alias: AliasView, version: VersionView, outcome: Outcome, comparison: CanaryComparison
    ) -> None:
        store, figures = self.deciding.store, canary.ledger_figures(comparison)
        if outcome == "late":
            tasks = comparison.doubts[ComparedFigure.REWARD].samples
            why = (
                f"its reward was compared on {tasks} tasks, too few for a decision (canary_max_tasks, canary_max_age_s)"
            )
            await self.deciding.reject(version, examination.NOT_PROMOTED, why, figures=figures)
        elif outcome == "worse":
            why = f"its trajectories are worse by {', '.join(comparison.worse_by)}"
            log.error("the canary %s is removed: %s", version.name, why)
            await set_canary(store, alias.id, None, 0.0, who=WHO, reason=why, figures=figures)
        else:
            why = f"{outcome}: {PASSED[outcome]}"
            await set_live(store, alias.id, version.id, why="gate", who=WHO, reason=why, figures=figures)
            log.info("%s is live (%s)", version.name, why)

    async def _look_at_promoted(self, alias: AliasView, live: VersionView, before: VersionView, until: float) -> None:
        store, comparison = self.deciding.store, await canary.compare_versions(self.deciding.store, live, before.id)
        left_s = until - self.deciding.versions.clock()
        figures = canary.ledger_figures(comparison)
        if comparison.worse_by:
            why = f"the trajectories of {live.name} are worse by {', '.join(comparison.worse_by)}"
            log.error("%s is live again: %s", before.name, why)
            await rollback(store, alias.id, left=live.id, who=WHO, reason=why, figures=figures)
        elif left_s <= 0:
            await end_watch(store, alias.id, live.id, who=WHO, figures=figures)
            log.info("%s stays live: no figure shows it to be worse than %s", live.name, before.name)
        else:
            return
        await self.deciding.versions.refresh()

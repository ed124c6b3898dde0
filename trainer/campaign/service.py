"""Which version a campaign leaves in service: the best validated one, through the registry's own alias action.

Owns: the choice, moving the alias and waiting until all proxies serve it. Refuses: measuring, and the effect of the
move on later versions (`recorder.registry.ancestry`), which is that of a rollback.

Versions after the best one are no longer parents: the next step, of this campaign or of live learning, starts from the
version in service.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from recorder.errors import Conflict
from recorder.registry import alias_moves, aliases, replicas, versions
from recorder.registry.alias_moves import ROLLED_BACK
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.states import VersionState
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.views.campaigns.events import CampaignMeasure, Validation
from recorder.views.campaigns.measures import rank_versions
from trainer.errors import CampaignError
from trainer.progress import Notice, Progress

# A proxy that has not seen the new version by then serves the old one a little longer: its samples are of age 1.
_SEEN_TIMEOUT_S: Final = 5.0
_PROXY_GONE_S: Final = 15.0  # a proxy reports every ten seconds


class AliasService:
    """The version in service of an alias, as a campaign reads and moves it."""

    def __init__(
        self, store: Store, alias: AliasView, campaign: str, loaded_within_s: float, progress: Progress
    ) -> None:
        self._store = store
        self._alias = alias
        self._campaign = campaign
        self._loaded_within_s = loaded_within_s
        self._progress = progress

    async def live(self) -> VersionView:
        """The version in service."""
        alias = await aliases.get_alias(Project(self._store, self._alias.project_id), self._alias.name)
        assert alias.live_version_id is not None  # an alias is made with version 0 live
        return await versions.get_version(self._store, alias.live_version_id)

    async def serve_best(self, validations: Sequence[Validation], measure: CampaignMeasure, why: str) -> VersionView:
        """Put the best validated version that can serve into service; return it. Idempotent."""
        for name, value in rank_versions(validations, measure):
            live = await self.live()
            if live.name == name:
                break
            version = await versions.get_version_by_name(Project(self._store, self._alias.project_id), name)
            if version.state is not VersionState.RETIRED or version.reason == ROLLED_BACK:
                continue  # it was rolled back, or never served
            if await self._move(version, live, value, why):
                break
        return await self.live()

    async def _move(self, version: VersionView, live: VersionView, value: float, why: str) -> bool:
        try:
            await alias_moves.set_live(
                self._store,
                self._alias.id,
                version.id,
                why="rollback",
                who=f"campaign {self._campaign}",
                reason=why,
                figures={"measure": value},
            )
        except Conflict as e:
            self._progress.tell(Notice(f"{version.name} did best ({value:.3f}), but {e}", warning=True))
            return False
        self._progress.tell(Notice(f"{version.name} did best ({value:.3f}) and replaces {live.name}"))
        await self._loaded(version)
        await self.seen()
        return True

    async def _loaded(self, version: VersionView) -> None:
        """Wait until an engine has loaded the version again; until then the previous version answers."""
        deadline = time.monotonic() + self._loaded_within_s
        with self._store.watch.on(Topic.ENGINES) as news:
            while version.number > 0:  # version 0, the base, is always loaded
                found = await replicas.list_replicas(Project(self._store, self._alias.project_id), _PROXY_GONE_S)
                if any(version.engine_name in replica.loaded for replica in found):
                    return
                if time.monotonic() >= deadline:
                    raise CampaignError(
                        f"{version.name} is selected to serve, but no engine loaded it within "
                        f"{self._loaded_within_s:g} s. Check `hone status`, then resume with the same command."
                    )
                await news.wait(deadline - time.monotonic())

    async def seen(self) -> None:
        """Wait a moment until every proxy serves the live version: the next groups are then sampled from it."""
        deadline = time.monotonic() + _SEEN_TIMEOUT_S
        alias = await aliases.get_alias(Project(self._store, self._alias.project_id), self._alias.name)
        with self._store.watch.on(Topic.PROXIES) as news:
            while time.monotonic() < deadline:
                await news.wait(deadline - time.monotonic())
                proxies = await replicas.list_live_proxies(Project(self._store, self._alias.project_id), _PROXY_GONE_S)
                if all(proxy.generations.get(alias.id, 0) >= alias.generation for proxy in proxies):
                    return

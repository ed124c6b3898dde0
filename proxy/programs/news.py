"""What happens in the store, told as it happens, for as long as `hone up` runs.

Owns: waiting for changes and telling them. Refuses: what happened (`recorder.telling.happenings`) and how a line looks
(`proxy.programs.telling`). While nothing changes the store is not asked: the watch knows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence

from proxy.programs.telling import Telling
from recorder.errors import StoreError
from recorder.store.changes import Topic
from recorder.store.project import Project
from recorder.telling.happenings import Happenings
from recorder.telling.stage_facts import read_stages
from recorder.telling.stages import LoopSettings, StageStatus
from recorder.telling.waiting import Waiting, waiting

BREATH_S = 0.5  # between two looks, however much happens: what comes meanwhile is one batch


class News:
    """One project's news. `await remember()`, then `await run()` until cancelled.

    `starting`: URLs of engines that are being started now.
    """

    def __init__(
        self,
        project: Project,
        settings: LoopSettings,
        telling: Telling,
        *,
        starting: Collection[str] = (),
    ) -> None:
        self._project = project
        self._settings = settings
        self._telling = telling
        self._happenings = Happenings(project, starting=starting)
        self._waiting: Waiting | None = None
        self._stages: Sequence[StageStatus] = ()
        self._ahead_s = 0.0  # of the database's clock before ours
        self._away = False

    async def remember(self) -> None:
        """Look for the first time: what changes after this is news, however late `run` gets to it."""
        await self._look()

    async def run(self) -> None:
        """Tell everything from now on."""
        with self._project.store.watch.on(
            Topic.GROUPS, Topic.SERVICE, Topic.ENGINES, Topic.RUNS, Topic.CAMPAIGNS
        ) as news:
            while True:
                if await news.wait(self._within_s()) or self._is_outdated():
                    await self._look()
                if self._waiting is not None:
                    self._telling.waits(self._waiting, self._now(), self._stages)
                await asyncio.sleep(BREATH_S)

    def _now(self) -> float:
        return time.time() + self._ahead_s

    def _changes_at(self) -> float | None:
        """The next moment that time alone may change a stage."""
        looked_at = self._waiting.at if self._waiting is not None else 0.0
        moments = (one.until for one in self._stages if one.until is not None and one.until > looked_at)
        return min(moments, default=None)

    def _is_outdated(self) -> bool:
        changes_at = self._changes_at()
        return changes_at is not None and changes_at <= self._now()

    def _within_s(self) -> float | None:
        """How long to wait for a change of the store."""
        changes_at, refresh_s = self._changes_at(), self._telling.refresh_s
        waits = [refresh_s, None if changes_at is None else max(0.0, changes_at - self._now())]
        return min((wait_s for wait_s in waits if wait_s is not None), default=None)

    async def _look(self) -> None:
        try:
            told = await self._happenings.look()
            self._waiting = await waiting(self._project, self._settings.recorder)
            self._stages = await read_stages(self._project, self._settings, self._waiting)
        except StoreError as e:
            if not self._away:
                self._telling.tell("fault", f"the store cannot be read: {e}")
            self._away = True
            return
        self._away = False
        self._ahead_s = self._waiting.at - time.time()
        for one in told:
            self._telling.tell(one.kind, one.text, one.facts)

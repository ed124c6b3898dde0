"""What happens in the store, told as it happens, for as long as `hone up` runs.

Owns: waiting for changes and telling them. Refuses: what happened (`recorder.telling.happenings`) and how a line looks
(`proxy.programs.telling`). While nothing changes the store is not asked: the watch knows.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection

from proxy.programs.telling import Telling
from recorder.errors import StoreError
from recorder.settings import RecorderSettings
from recorder.store.changes import Topic
from recorder.store.project import Project
from recorder.telling.happenings import Happenings
from recorder.telling.waiting import Waiting, waiting

BREATH_S = 0.5  # between two looks, however much happens: what comes meanwhile is one batch


class News:
    """One project's news. `await remember()`, then `await run()` until cancelled.

    `starting`: URLs of engines that are being started now.
    """

    def __init__(
        self,
        project: Project,
        settings: RecorderSettings,
        telling: Telling,
        *,
        starting: Collection[str] = (),
    ) -> None:
        self._project = project
        self._settings = settings
        self._telling = telling
        self._happenings = Happenings(project, starting=starting)
        self._waiting: Waiting | None = None
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
                if await news.wait(self._telling.refresh_s):
                    await self._look()
                if self._waiting is not None:
                    self._telling.waits(self._waiting, time.time() + self._ahead_s)
                await asyncio.sleep(BREATH_S)

    async def _look(self) -> None:
        try:
            told = await self._happenings.look()
            self._waiting = await waiting(self._project, self._settings)
        except StoreError as e:
            if not self._away:
                self._telling.tell("fault", f"the store cannot be read: {e}")
            self._away = True
            return
        self._away = False
        self._ahead_s = self._waiting.at - time.time()
        for one in told:
            self._telling.tell(one.kind, one.text, one.facts)

"""Whether the judge may go on with what comes from live traffic: `[learn]`'s budgets and hours.

Owns: saying once what holds it back. Refuses: what that is (`recorder.work.spending`), the rule
(`recorder.work.budgets`).
"""

from __future__ import annotations

import logging

from recorder.settings import LearnSettings
from recorder.store.project import Project
from recorder.work import spending
from recorder.work.budgets import Held

log = logging.getLogger(__name__)


class Budget:
    """What one judge may still do."""

    def __init__(self, project: Project, learn: LearnSettings) -> None:
        self._project = project
        self._learn = learn
        self._why: str | None = None

    async def held(self) -> Held | None:
        """What keeps the judge from live groups now, told when it begins and when it ends. None: nothing does."""
        held = await spending.judging_held(self._project, self._learn)
        why = held.why if held else None
        if why != self._why:
            log.info(held.sentence("Judging")) if held else log.info("Judging continues.")
            self._why = why
        return held

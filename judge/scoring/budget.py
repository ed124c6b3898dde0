"""Whether the judge may go on with what comes from live traffic: `[learn]`'s budgets and hours.

Owns: asking the store what judging has cost, and saying once what holds it back. Refuses: the rule
(`recorder.work.budgets`).
"""

from __future__ import annotations

import logging
from datetime import datetime

from recorder.settings import LearnSettings
from recorder.store import sql
from recorder.store.database import Store
from recorder.work import budgets, spending
from recorder.work.budgets import DAY_S, Held

log = logging.getLogger(__name__)


class Budget:
    """What one judge may still do."""

    def __init__(self, store: Store, project_id: str, learn: LearnSettings) -> None:
        self._store = store
        self._project_id = project_id
        self._learn = learn
        self._counted = learn.judge_tokens_per_day is not None or learn.judge_usd_per_day is not None
        self._why: str | None = None

    async def held(self) -> Held | None:
        """What keeps the judge from live groups now, told when it begins and when it ends. None: nothing does."""
        if not self._counted and self._learn.hours is None:
            return None
        async with self._store.read() as conn:
            at = await sql.clock(conn)
        spent = await spending.judged_since(self._store, self._project_id, at - DAY_S) if self._counted else []
        held = budgets.judging(self._learn, spent, at, datetime.now())
        why = held.why if held else None
        if why != self._why:
            log.info("judging waits: %s", held) if held else log.info("judging goes on")
            self._why = why
        return held

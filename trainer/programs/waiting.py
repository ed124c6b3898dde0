"""What a learner waits for, as the store has it: whether a step may begin, when to look again, and what to say.

Owns: bringing together what waits, what `[learn]` allows and when groups close. Refuses: the rules
(`trainer.programs.due`, `recorder.work.budgets`), claiming and training (`trainer.programs.learner`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from recorder.groups import lookup
from recorder.holding import leases, presence
from recorder.registry.aliases import AliasView
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import GroupState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.upkeep.outlook import next_close_in
from recorder.work import baselines, budgets, claims, scores, spending
from recorder.work.budgets import HOUR_S, Held
from recorder.work.claims import Waiting
from trainer.programs import due
from trainer.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class Outlook:
    """What is waited for. `text` is the same until something changes; `told` has the times that were true then."""

    text: str
    told: str


class Patience:
    """Says of one alias when enough is there."""

    def __init__(
        self,
        store: Store,
        alias: AliasView,
        settings: TrainerSettings,
        learn: LearnSettings,
        recorder: RecorderSettings,
    ) -> None:
        self._store = store
        self._alias = alias
        self._settings = settings
        self._learn = learn
        self._recorder = recorder

    async def in_s(self) -> float | None:
        """In how many seconds a step may begin with what waits now; 0: now. None: not before more is scored."""
        if (max_age_s := self._learn.max_age_s) is not None:
            stale = (GroupState.SCORED,)
            await scores.leave_out_old(Project(self._store, self._alias.project_id), stale, max_age_s, self._alias.id)
        waiting = await self._waiting(await baselines.lacking(self._store, self._alias.id))
        due_s = due.due_in_s(waiting, self._settings)
        held = await self._held() if due_s is not None else None
        return max(due_s, held.for_s) if due_s is not None and held is not None else due_s

    def least(self) -> int:
        """The fewest groups that a step may be made of."""
        return min(due.FEWEST, self._settings.min_groups, self._settings.max_groups)

    async def outlook(self) -> Outlook:
        """What is waited for, in words."""
        counts = await lookup.counts(self._store, self._alias.id)
        text = due.waits_for(counts, self._settings)
        if not counts.get(GroupState.SCORED) and any(counts.get(s) for s in (GroupState.READY, GroupState.UNSCORED)):
            text += await self._without_judge()
        held = await self._held() if counts.get(GroupState.SCORED) else None
        closes_s = None
        if counts.get(GroupState.OPEN):
            closes_s = await next_close_in(Project(self._store, self._alias.project_id), self._alias.id, self._recorder)
        lacking = await baselines.lacking(self._store, self._alias.id)
        text += due.without_baseline(lacking)
        waiting = await self._waiting(lacking)
        told = due.with_times(text, due.due_in_s(waiting, self._settings), closes_s)
        return Outlook(f"{text}; {held.why}", f"{told}; {held}") if held else Outlook(text, told)

    async def _waiting(self, lacking: Collection[str]) -> Waiting:
        return await claims.waiting_for_training(self._store, self._alias.id, lacking)

    async def _held(self) -> Held | None:
        if self._learn.steps_per_hour is None and self._learn.hours is None:
            return None
        async with self._store.read() as conn:
            at = await sql.clock(conn)
        steps_at = await spending.stepped_since(self._store, self._alias.id, at - HOUR_S)
        return budgets.training(self._learn, steps_at, at, datetime.now())

    async def _without_judge(self) -> str:
        judges = await leases.holders(Project(self._store, self._alias.project_id), presence.JUDGE)
        return "" if judges else "; no judge runs: start one with `hone judge`"

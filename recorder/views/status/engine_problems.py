"""Find engines whose token ids contradict what they say about them.

Owns: this check over a project's newest calls. Refuses: what makes a call untrainable
(`recorder.messages.trainability`).
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import func, select

from recorder.messages.calls import ENGINE
from recorder.messages.trainability import Exclusion
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import calls, choices
from recorder.views.status.client_problems import is_newest_call


@dataclass(frozen=True, slots=True)
class DisagreeingEngine:
    """An engine, and how many of its newest calls have ids that contradict its usage. `url` None: not recorded."""

    url: str | None
    calls: int

    def sentence(self) -> str:
        """Return what is wrong and what to do, as text."""
        name = f"engine {self.url}" if self.url else "an engine"
        noun = "call" if self.calls == 1 else "calls"
        return (
            f"{name} returned token ids that contradict its own usage in {self.calls} {noun}, which are not trained on "
            f"({Exclusion.IDS_DISAGREE.value}): update the engine, or remove what changes its answers on the way"
        )


async def find_disagreeing_engines(project: Project) -> list[DisagreeingEngine]:
    """Return the engines with such calls among the newest, by URL."""
    url = sql.json_member(calls.c.response_meta, ENGINE)
    query = (
        select(url, func.count(calls.c.id.distinct()))
        .join(choices, choices.c.call_id == calls.c.id)
        .where(*is_newest_call(project.id), choices.c.untrainable_reason == Exclusion.IDS_DISAGREE)
        .group_by(url)
        .order_by(url)
    )
    async with project.store.read() as conn:
        return [DisagreeingEngine(*row) for row in (await conn.execute(query)).all()]

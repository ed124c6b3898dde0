"""What learning has cost lately, as the store has it: judgings with their tokens and money, and steps.

Owns: these questions. Refuses: what may still be spent (`recorder.work.budgets`). Campaigns count in neither.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Integer, cast, func, select

from recorder.ids import first_id_at
from recorder.states import StepState
from recorder.store.database import Store
from recorder.store.schema import groups, scores, steps
from recorder.work.budgets import Spent

MINUTE_S: Final = 60.0  # a day of judgings is told by the minute


async def judged_since(store: Store, project_id: str, since: float) -> list[Spent]:
    """What scores cost since a time (unix seconds), by the minute."""
    minute = cast(scores.c.created_at / MINUTE_S, Integer)
    tokens = func.sum(scores.c.tokens_in + scores.c.tokens_out)
    query = (
        select(func.max(scores.c.created_at), tokens, func.coalesce(func.sum(scores.c.cost_usd), 0.0))
        .join(groups, groups.c.id == scores.c.group_id)
        .where(
            scores.c.id >= first_id_at("score", since - MINUTE_S),  # ids begin with the time: no index is needed
            scores.c.project_id == project_id,
            scores.c.created_at > since,
            groups.c.campaign_id.is_(None),
        )
        .group_by(minute)
    )
    async with store.read() as conn:
        return [Spent(float(at), int(n), float(usd)) for at, n, usd in await conn.execute(query)]


async def stepped_since(store: Store, alias_id: str, since: float) -> list[float]:
    """When the steps of an alias began since a time (unix seconds), those that run included."""
    query = select(steps.c.started_at).where(
        steps.c.alias_id == alias_id,
        steps.c.campaign_id.is_(None),
        steps.c.state != StepState.ABANDONED,
        steps.c.started_at > since,
    )
    async with store.read() as conn:
        return [float(at) for at in (await conn.execute(query)).scalars()]

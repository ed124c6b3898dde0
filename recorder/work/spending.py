"""What learning has cost, as the store has it: judgings with their tokens and money, and steps; lately, or a campaign.

Owns: these questions. Refuses: what may still be spent (`recorder.work.budgets`). Campaigns count in neither of the
first two; what versions' gates have judged counts as any other judging.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import Integer, Select, case, cast, func, select

from recorder.ids import first_id_at
from recorder.judged import seconds
from recorder.settings import LearnSettings
from recorder.states import StepState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.store.schema import groups, judge_replies, ledger, scores, second_scores, steps, trajectories, verdicts
from recorder.work import budgets
from recorder.work.budgets import DAY_S, Held, Spent
from recorder.work.campaigns import CampaignView, groups_of

MINUTE_S: Final = 60.0  # a day of judgings is told by the minute
# Unscored, after a judge may have answered.
PAID_IN_VAIN: Final = (
    "judge_unreadable",
    "judge_declined",
    "judge_filtered",
    "judge_down",
    "judge_busy",
    "judge_quorum",
    "parts_missing",
)


@dataclass(frozen=True, slots=True)
class Judged:
    """What judging a campaign's groups cost, second judges with it.

    `judgings`: scores; what functions alone or nobody had to judge is among them. `unpriced`: those whose price nobody
    knew, which `usd` leaves out.
    """

    judgings: int
    requests: int  # to judges that replied: one a group, or one a run that is not like another; repairs not counted
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    usd: float
    unpriced: int
    in_vain: int  # requests that came to no score; their tokens and price are counted


async def judged_since(project: Project, since: float) -> list[Spent]:
    """What judging cost since a time (unix seconds): scores and second scores by the minute, what came to nothing."""
    minute = cast(scores.c.created_at / MINUTE_S, Integer)
    tokens = func.sum(scores.c.tokens_in + scores.c.tokens_out)
    scored = (
        select(func.max(scores.c.created_at), tokens, func.sum(scores.c.cost_usd))
        .join(groups, groups.c.id == scores.c.group_id)
        .where(
            scores.c.id >= first_id_at("score", since - MINUTE_S),  # ids begin with the time: no index is needed
            scores.c.project_id == project.id,
            scores.c.created_at > since,
            groups.c.campaign_id.is_(None),
        )
        .group_by(minute)
    )
    said = ledger.c.detail["detail"]  # as `scores.mark_unscored` writes it
    sent, received = (func.coalesce(said[name].as_integer(), 0) for name in ("tokens_in", "tokens_out"))
    failed = (
        select(ledger.c.at, sent + received, said["cost_usd"].as_float())
        .join(groups, groups.c.id == ledger.c.object_id)
        .where(
            ledger.c.project_id == project.id,
            ledger.c.code.in_(PAID_IN_VAIN),
            ledger.c.object_kind == "group",
            ledger.c.at > since,
            groups.c.campaign_id.is_(None),
        )
    )
    s = second_scores.c
    beside = (
        seconds.costs(cast(s.created_at / MINUTE_S, Integer))
        .join(groups, groups.c.id == s.group_id)
        .where(
            s.id >= first_id_at("second", since - MINUTE_S),
            s.project_id == project.id,
            s.created_at > since,
            groups.c.campaign_id.is_(None),
        )
    )
    async with project.store.read() as conn:
        rows = [*await conn.execute(scored), *await conn.execute(failed)]
        others = [seconds.cost(row) for row in await conn.execute(beside)]
    rows += [(one.at, one.tokens_in + one.tokens_out, one.usd) for one in others]
    return [Spent(float(at), int(count), float(usd or 0.0)) for at, count, usd in rows]


async def judging_held(project: Project, learn: LearnSettings) -> Held | None:
    """What keeps judges from what comes from live traffic now; None: nothing does."""
    counted = learn.judge_tokens_per_day is not None or learn.judge_usd_per_day is not None
    if not counted and learn.hours is None:
        return None
    async with project.store.read() as conn:
        at = await sql.clock(conn)
    spent = await judged_since(project, at - DAY_S) if counted else []
    return budgets.judging(learn, spent, at, datetime.now())


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


async def judged_for(store: Store, campaign: CampaignView) -> Judged:
    """What a campaign's judging has cost until now: scores, those made again among them, and what came to nothing."""
    mine = groups_of(campaign)
    counted = (func.count(), func.sum(scores.c.tokens_in), func.sum(scores.c.tokens_cached))
    priced = (func.sum(scores.c.tokens_out), func.sum(scores.c.cost_usd))
    asked = scores.c.tokens_in + scores.c.tokens_out > 0
    unknown = func.sum(case((asked & scores.c.cost_usd.is_(None), 1), else_=0))
    scored = select(*counted, *priced, unknown).where(scores.c.group_id.in_(mine))
    said = ledger.c.detail["detail"]  # as `scores.mark_unscored` writes it
    failed = select(said["tokens_in"].as_integer(), said["tokens_out"].as_integer(), said["cost_usd"].as_float()).where(
        ledger.c.object_kind == "group", ledger.c.object_id.in_(mine), ledger.c.code.in_(PAID_IN_VAIN)
    )
    async with store.read() as conn:
        count, sent, cached, received, usd, unpriced = (await conn.execute(scored)).one()
        vain = [tuple(row) for row in await conn.execute(failed)]
        other = seconds.cost((await conn.execute(seconds.costs().where(second_scores.c.group_id.in_(mine)))).one())
        requests = [int((await conn.execute(query)).scalar_one()) for query in _requests(mine)]
    return Judged(
        judgings=int(count) + other.count,
        requests=sum(requests) + other.count,
        tokens_in=int(sent or 0) + sum(int(row[0] or 0) for row in vain) + other.tokens_in,
        tokens_cached=int(cached or 0) + other.tokens_cached,
        tokens_out=int(received or 0) + sum(int(row[1] or 0) for row in vain) + other.tokens_out,
        usd=float(usd or 0.0) + sum(float(row[2] or 0.0) for row in vain) + (other.usd or 0.0),
        unpriced=int(unpriced or 0) + other.unpriced,
        in_vain=len(vain) + other.in_vain,
    )


def _requests(mine: Select[tuple[str]]) -> Iterator[Select[int]]:
    """Counts of what judges replied to about these groups: about a group, each of several, and about single runs.

    A reply that was read again for another score of its group is one request.
    """
    alone = select(func.count(scores.c.prompt_hash.distinct()))
    yield alone.where(scores.c.group_id.in_(mine), scores.c.reply.is_not(None))
    several = (
        select(scores.c.prompt_hash, judge_replies.c.number)
        .join(scores, scores.c.id == judge_replies.c.score_id)
        .where(scores.c.group_id.in_(mine), judge_replies.c.reply.is_not(None))
        .distinct()
    )
    yield select(func.count()).select_from(several.subquery())
    runs = select(trajectories.c.id).where(trajectories.c.group_id.in_(mine))
    yield select(func.count()).select_from(verdicts).where(verdicts.c.trajectory_id.in_(runs))

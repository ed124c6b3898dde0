"""Budgets and hours of `[learn]`: whether judging and training may continue now, and what judging and steps cost.

Owns: these rules as pure functions, the sentence that every interface shows while a stage is paused, and the queries of
what judging and steps cost, recently or in a campaign. Refuses: pausing (the judge and the learner do).

Campaigns do not count toward the budgets. Judging for a version's gate does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from sqlalchemy import Integer, Select, case, cast, func, select

from recorder.base.hours import parse_hours
from recorder.base.terminal import clock_time
from recorder.ids import first_id_at
from recorder.queue.campaigns import CampaignView, list_group_ids
from recorder.queue.groups.readiness import GroupCode
from recorder.queue.judging import cross_checks
from recorder.settings import LearnSettings
from recorder.states import StepState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import groups, judge_replies, ledger, scores, second_scores, steps, trajectories, verdicts

HOUR_S: Final = 3600.0
DAY_S: Final = 86400.0

Amounts = Iterable[tuple[float, float]]  # when (unix seconds), how much


class Limit(StrEnum):
    """A setting of `[learn]` that pauses a stage."""

    HOURS = "hours"
    JUDGE_TOKENS = "judge_tokens_per_day"
    JUDGE_USD = "judge_usd_per_day"
    STEPS = "steps_per_hour"


@dataclass(frozen=True, slots=True)
class JudgeUsage:
    """What judging cost at about a time (unix seconds)."""

    at: float
    tokens: int
    usd: float


@dataclass(frozen=True, slots=True)
class BudgetHold:
    """`[learn]` pauses a stage for `for_s` seconds, until `until` (unix seconds).

    `limits`: the settings that pause it, the longest first, each with a clause that names the limit. `opens`: the time
    of day at which allowed hours begin and end the pause; None: the window of a budget ends it.
    """

    for_s: float
    until: float
    limits: Sequence[tuple[Limit, str]]
    opens: str | None

    @property
    def code(self) -> Limit:
        """The setting that pauses the stage the longest."""
        return self.limits[0][0]

    @property
    def why(self) -> str:
        """The limits that were reached, as a clause without times that change."""
        return ", and ".join(reached for _, reached in self.limits)

    def sentence(self, stage: str) -> str:
        """The sentence while a stage (`Learning`, `Judging`) is paused: why, until when, and how to end it now."""
        at = self.opens if self.opens is not None else f"about {clock_time(self.until, self.until - self.for_s)}"
        return f"{stage} is paused: {self.why}. It resumes at {at}.{self._remedy()}"

    def _remedy(self) -> str:
        """Which settings to raise; empty if that alone would not end the pause."""
        if any(limit is Limit.HOURS for limit, _ in self.limits):
            return ""
        return f" Raise {' and '.join(f'learn.{limit}' for limit, _ in self.limits)} to continue now."


def seconds_until_free(spent: Amounts, limit: float, window_s: float, at: float) -> float:
    """Return the seconds from `at` until less than `limit` was spent within the last `window_s`; 0: it is so now."""
    counted = sorted((when, amount) for when, amount in spent if when > at - window_s)
    total = sum(amount for _, amount in counted)
    free_s = 0.0
    for when, amount in counted:
        if total < limit:
            break
        total -= amount
        free_s = when + window_s - at
    return free_s


def judging_holds(learn: LearnSettings, spent: Sequence[JudgeUsage], at: float, local: datetime) -> BudgetHold | None:
    """Return what pauses the judge, or None."""
    reached = []
    if (limit := learn.judge_tokens_per_day) is not None:
        amounts = [(one.at, float(one.tokens)) for one in spent]
        clause = f"the judge used its {limit:,} token{'' if limit == 1 else 's'} of the last 24 hours"
        reached.append((seconds_until_free(amounts, limit, DAY_S, at), Limit.JUDGE_TOKENS, clause))
    if (usd := learn.judge_usd_per_day) is not None:
        amounts = [(one.at, one.usd) for one in spent]
        clause = f"the judge spent its ${usd:,.2f} of the last 24 hours"
        reached.append((seconds_until_free(amounts, usd, DAY_S, at), Limit.JUDGE_USD, clause))
    return _hold(learn, reached, at, local)


def training_holds(learn: LearnSettings, steps_at: Sequence[float], at: float, local: datetime) -> BudgetHold | None:
    """Return what pauses the training of an alias, or None."""
    reached = []
    if (limit := learn.steps_per_hour) is not None:
        clause = f"the alias took its {limit} step{'' if limit == 1 else 's'} of the last hour"
        reached.append((seconds_until_free([(when, 1.0) for when in steps_at], limit, HOUR_S, at), Limit.STEPS, clause))
    return _hold(learn, reached, at, local)


def _hold(
    learn: LearnSettings, budgets: Sequence[tuple[float, Limit, str]], at: float, local: datetime
) -> BudgetHold | None:
    """The pause by these budgets (each with the seconds until it is free) and by the hours; the longest counts."""
    spent = [one for one in budgets if one[0] > 0]
    free_s = max((wait_s for wait_s, *_ in spent), default=0.0)
    closed_s, clause, opens = 0.0, "", None
    if learn.hours is not None:
        hours = parse_hours(learn.hours)
        begin, end = learn.hours.split("-")
        closed_s, after_s = hours.opens_in_s(local), hours.opens_in_s(local + timedelta(seconds=free_s))
        clause, opens = f"[learn] hours allow it from {begin} to {end}", begin if after_s > 0 else None
        free_s += after_s
    closed = [(closed_s, Limit.HOURS, clause)] if closed_s > 0 else []
    limits = [(limit, said) for _, limit, said in sorted([*spent, *closed], key=lambda one: one[0], reverse=True)]
    return BudgetHold(free_s, at + free_s, limits, opens) if limits else None


MINUTE_S: Final = 60.0  # the judgings of a day are summed by minute
# Reasons why a group is unscored although a judge may have answered.
PAID_IN_VAIN: Final = (
    "judge_unreadable",
    "judge_declined",
    "judge_filtered",
    "judge_down",
    "judge_busy",
    "judge_quorum",
    "parts_missing",
    GroupCode.CHECK_UNDECIDED,
    GroupCode.NO_FOLLOW_UP,
)


@dataclass(frozen=True, slots=True)
class CampaignJudgingCost:
    """The cost of judging a campaign's groups, cross-checks included.

    `judgings`: scores, including those by functions alone or without a request. `unpriced`: those without a known
    price, which `usd` omits.
    """

    judgings: int
    requests: int  # replies of judges: one per group or per distinct trajectory; repairs are not counted
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    usd: float
    unpriced: int
    in_vain: int  # requests without a score; their tokens and price are counted


async def judging_cost_since(project: Project, since: float) -> list[JudgeUsage]:
    """The cost of judging since a time (unix seconds): scores and cross-checks by the minute, and failed requests."""
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
        cross_checks.cost_query(cast(s.created_at / MINUTE_S, Integer))
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
        others = [cross_checks.read_cost(row) for row in await conn.execute(beside)]
    rows += [(one.at, one.tokens_in + one.tokens_out, one.usd) for one in others]
    return [JudgeUsage(float(at), int(count), float(usd or 0.0)) for at, count, usd in rows]


async def judging_hold(project: Project, learn: LearnSettings) -> BudgetHold | None:
    """Return what pauses the judging of live traffic now, or None."""
    counted = learn.judge_tokens_per_day is not None or learn.judge_usd_per_day is not None
    if not counted and learn.hours is None:
        return None
    async with project.store.read() as conn:
        at = await sql.current_time(conn)
    spent = await judging_cost_since(project, at - DAY_S) if counted else []
    return judging_holds(learn, spent, at, datetime.now())


async def list_step_times(store: Store, alias_id: str, since: float) -> list[float]:
    """Return when the steps of an alias began, since a time (unix seconds), with the running one."""
    query = select(steps.c.started_at).where(
        steps.c.alias_id == alias_id,
        steps.c.campaign_id.is_(None),
        steps.c.state != StepState.ABANDONED,
        steps.c.started_at > since,
    )
    async with store.read() as conn:
        return [float(at) for at in (await conn.execute(query)).scalars()]


async def campaign_judging_cost(store: Store, campaign: CampaignView) -> CampaignJudgingCost:
    """The cost of a campaign's judging until now: scores, rescores among them, and failed requests."""
    mine = list_group_ids(campaign)
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
        other = cross_checks.read_cost(
            (await conn.execute(cross_checks.cost_query().where(second_scores.c.group_id.in_(mine)))).one()
        )
        requests = [int((await conn.execute(query)).scalar_one()) for query in _requests(mine)]
    return CampaignJudgingCost(
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
    """Queries that count judges' replies about these groups: one per group, each of several, one per trajectory.

    A stored reply that was parsed again for another score of its group counts as one request.
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

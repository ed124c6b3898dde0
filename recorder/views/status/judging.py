"""Overview of judging: groups by outcome; latency, tokens and cost by day and model; agreement; failures.

Owns: these queries, over the newest scores only, and why one group could not be judged: the error, the number of tries
and the time of the next. Refuses: one group's scores (`recorder.views.trajectories.transcripts`), and judging.
"""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.base.terminal import format_duration
from recorder.ids import first_id_at
from recorder.queue.groups.disputes import CODE as DISPUTED
from recorder.queue.groups.disputes import waiting_for_person
from recorder.queue.judging.scores import REWARD
from recorder.states import GroupState
from recorder.stats.agreement import PairAgreement, compare_rewards
from recorder.stats.means import Latency, latency_quantiles
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import aliases, groups, ledger, score_parts, scores
from recorder.views.status.events import detail_text
from recorder.views.status.figures import (
    JudgeSpending,
    JudgingTrouble,
    MissingPart,
    count_excluded_groups,
    judge_spending,
    list_missing_parts,
    list_troubles,
    start_of_day,
    total_spending,
)
from recorder.views.status.judge_agreement import JudgeAgreement, list_judge_agreement

DAYS: Final = 14
MOST_SCORES: Final = 5000  # the newest scores, which are counted; bounds the cost of a page
MOST_COMPARED: Final = 100  # groups with more than one score
LAST: Final = 20  # the newest judged groups in the result
NO_MODEL: Final = "no model"  # scored by functions and rules only


@dataclass(frozen=True, slots=True)
class ModelDay:
    """One judge model's scores on one day (local time). `cost_usd` is None if no price is known."""

    day: str
    model: str
    scores: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    cost_usd: float | None
    latency: Latency


@dataclass(frozen=True, slots=True)
class ScoreAgreement:
    """How far a group's two newest scores agree, over pairs of trajectories. `tau`: Kendall's tau-b."""

    groups: int
    pairs: int
    same_order: int
    reversed: int
    tied: int  # by one of the two, or by both
    tau: float | None


@dataclass(frozen=True, slots=True)
class ReplyAgreement:
    """How far the replies of several requests about one group agree: the mean tau-b over `scores` scores."""

    scores: int
    tau: float


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """A group with one of its scores; `at` in unix seconds."""

    group_id: str
    external_id: str | None
    alias: str | None
    state: str
    model: str
    at: float
    latency_s: float | None
    tokens: int
    cost_usd: float | None
    reward_min: float | None
    reward_mean: float | None
    reward_max: float | None


@dataclass(frozen=True, slots=True)
class JudgingView:
    """The overview at a time (unix seconds). `scores`: the number of scores read, of at most `DAYS` days."""

    at: float
    groups: Mapping[str, int]  # by state
    unscored: Sequence[JudgingTrouble]
    excluded_groups: Mapping[str, int]  # groups, by the ledger's code
    missing_parts: Sequence[MissingPart]
    spent_today: JudgeSpending
    spent_by_purpose: Mapping[str, JudgeSpending]  # today: learning, shadow, gate, evaluation
    scores: int
    is_complete: bool  # whether these are all scores of these days
    latency: Latency
    days: Sequence[ModelDay]
    agreement: ScoreAgreement | None  # None: no group has two scores
    of_replies: ReplyAgreement | None  # None: no score was made of several replies
    disputed: int  # groups that wait for a person, because judges disagree about them
    judges: Sequence[JudgeAgreement]  # for judge recipes with a strong judge
    last: Sequence[JudgedGroup]


async def load_judging(project: Project) -> JudgingView:
    """Return the overview of judging over the newest scores."""
    async with project.store.read() as conn:
        at = await sql.current_time(conn)
        rows = await _newest(conn, project.id, at)
        spent = await judge_spending(conn, project.id, start_of_day(at))
        return JudgingView(
            at=at,
            groups=await _by_state(conn, project.id),
            unscored=await list_troubles(conn, project.id),
            excluded_groups=await count_excluded_groups(conn, project.id),
            missing_parts=await list_missing_parts(conn, project.id),
            spent_today=total_spending(spent.values()),
            spent_by_purpose=spent,
            scores=len(rows),
            is_complete=len(rows) < MOST_SCORES,
            latency=_latency(rows),
            days=_days(rows),
            agreement=await _agreement(conn, rows),
            of_replies=_of_replies(rows),
            disputed=await waiting_for_person(conn, project.id),
            judges=await list_judge_agreement(conn, project.id),
            last=await _last(conn, rows[:LAST]),
        )


async def _newest(conn: AsyncConnection, project_id: str, at: float) -> list[Any]:
    """Return the newest scores first, without their replies, which are long."""
    s = scores.c
    used = (s.tokens_in, s.tokens_cached, s.tokens_out, s.cost_usd, s.latency_s)
    columns = (s.id, s.group_id, s.judge_model, s.agreement, *used)
    recent = s.id >= first_id_at("score", start_of_day(at) - (DAYS - 1) * 86400.0)
    query = select(*columns, s.created_at).where(recent, sql.without_index(s.project_id) == project_id)
    return list(await conn.execute(query.order_by(s.id.desc()).limit(MOST_SCORES)))


async def _by_state(conn: AsyncConnection, project_id: str) -> dict[str, int]:
    query = select(groups.c.state, func.count()).where(groups.c.project_id == project_id).group_by(groups.c.state)
    return {str(state): int(number) for state, number in await conn.execute(query)}


def _latency(rows: Iterable[Any]) -> Latency:
    return latency_quantiles([row.latency_s for row in rows if row.latency_s is not None])


def _days(rows: Iterable[Any]) -> list[ModelDay]:
    by_day: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in rows:
        day = time.strftime("%Y-%m-%d", time.localtime(row.created_at))
        by_day[day, row.judge_model or NO_MODEL].append(row)
    newest = sorted(by_day.items(), key=lambda one: one[0][1])
    return [_day(*key, of) for key, of in sorted(newest, key=lambda one: one[0][0], reverse=True)]


def _day(day: str, model: str, of: Sequence[Any]) -> ModelDay:
    return ModelDay(
        day=day,
        model=model,
        scores=len(of),
        tokens_in=sum(row.tokens_in for row in of),
        tokens_cached=sum(row.tokens_cached for row in of),
        tokens_out=sum(row.tokens_out for row in of),
        cost_usd=_cost(of),
        latency=_latency(of),
    )


def _cost(of: Iterable[Any]) -> float | None:
    costs = [row.cost_usd for row in of if row.cost_usd is not None]
    return sum(costs) if costs else None


async def _agreement(conn: AsyncConnection, rows: Sequence[Any]) -> ScoreAgreement | None:
    by_group: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        by_group[row.group_id].append(row.id)
    several = [ids[:2] for ids in by_group.values() if len(ids) > 1][:MOST_COMPARED]
    if not several:
        return None
    given = await _rewards(conn, [id_ for ids in several for id_ in ids])
    pairs = sum((compare_rewards(given[before], given[now]) for now, before in several), PairAgreement())
    tied = pairs.tied + pairs.tied_before + pairs.tied_now
    return ScoreAgreement(len(several), pairs.count, pairs.kept, pairs.turned, tied, pairs.tau)


def _of_replies(rows: Iterable[Any]) -> ReplyAgreement | None:
    taus = [row.agreement for row in rows if row.agreement is not None]
    return ReplyAgreement(len(taus), statistics.fmean(taus)) if taus else None


async def _rewards(conn: AsyncConnection, score_ids: Sequence[str]) -> Mapping[str, dict[str, float | None]]:
    """Return the rewards of trajectories, by score."""
    p = score_parts.c
    query = select(p.score_id, p.trajectory_id, p.value).where(p.score_id.in_(score_ids), p.part == REWARD)
    given: dict[str, dict[str, float | None]] = defaultdict(dict)
    for score_id, run, value in await conn.execute(query):
        given[score_id][run] = value
    return given


async def _last(conn: AsyncConnection, rows: Sequence[Any]) -> list[JudgedGroup]:
    query = (
        select(groups.c.id, groups.c.external_id, groups.c.state, aliases.c.name)
        .outerjoin(aliases, aliases.c.id == groups.c.alias_id)
        .where(groups.c.id.in_([row.group_id for row in rows]))
    )
    there = {row.id: row for row in await conn.execute(query)}
    given = await _rewards(conn, [row.id for row in rows])
    return [_judged(row, there[row.group_id], given[row.id].values()) for row in rows if row.group_id in there]


def _judged(score: Any, group: Any, given: Iterable[float | None]) -> JudgedGroup:
    rewards = [value for value in given if value is not None]
    return JudgedGroup(
        group_id=group.id,
        external_id=group.external_id,
        alias=group.name,
        state=group.state,
        model=score.judge_model or NO_MODEL,
        at=score.created_at,
        latency_s=score.latency_s,
        tokens=score.tokens_in + score.tokens_out,
        cost_usd=score.cost_usd,
        reward_min=min(rewards, default=None),
        reward_mean=sum(rewards) / len(rewards) if rewards else None,
        reward_max=max(rewards, default=None),
    )


@dataclass(frozen=True, slots=True)
class JudgingFailure:
    """Why a group could not be judged. `next_in_s` is None if only a person or `hone score` can score it."""

    code: str
    detail: str
    tries: int
    next_in_s: float | None

    def sentence(self) -> str:
        """Return the failure as one line of text."""
        by_hand = "a person's choice scores it" if self.code == DISPUTED else "not tried again: use `hone score`"
        again = by_hand if self.next_in_s is None else f"next in {format_duration(self.next_in_s)}"
        times = "once" if self.tries == 1 else f"{self.tries} times"
        return f"could not be judged ({self.code}), tried {times}, {again}: {self.detail}"


async def find_judging_failure(store: Store, group_id: str) -> JudgingFailure | None:
    """Return why an unscored group could not be judged, or None if the group is not unscored."""
    columns = (groups.c.reason, groups.c.tries, groups.c.try_after)
    unscored = (groups.c.id == group_id, groups.c.state == GroupState.UNSCORED)
    of_group = (ledger.c.object_kind == "group", ledger.c.object_id == group_id)
    async with store.read() as conn:
        row = (await conn.execute(select(*columns).where(*unscored))).first()
        if row is None:
            return None
        at = await sql.current_time(conn)
        newest = select(ledger.c.detail).where(*of_group, ledger.c.code == row.reason).order_by(ledger.c.id.desc())
        detail = (await conn.execute(newest.limit(1))).scalar_one_or_none()
    next_in_s = None if row.try_after is None else max(0.0, row.try_after - at)
    return JudgingFailure(str(row.reason), detail_text(detail or {}), int(row.tries), next_in_s)

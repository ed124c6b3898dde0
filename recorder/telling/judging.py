"""What the judge does: groups by what became of them, time, tokens and money by day and model, agreement, what fails.

Owns: these questions, over the newest scores alone. Refuses: one group's scores (`recorder.reading.transcripts`), and
judging.
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

from recorder.agreement import Pairs, compare
from recorder.ids import first_id_at
from recorder.judged import seconds
from recorder.judged.disputed import waiting_for_person
from recorder.store import sql
from recorder.store.project import Project
from recorder.store.schema import aliases, groups, score_parts, scores
from recorder.telling.figures import (
    MissingPart,
    Spent,
    Trouble,
    groups_left_out,
    midnight,
    missing_parts,
    spent,
    troubles,
    with_seconds,
)
from recorder.telling.judges import JudgesStand, judges_stand
from recorder.telling.quantiles import Latency, latency
from recorder.work.scores import REWARD

DAYS: Final = 14
MOST_SCORES: Final = 5000  # the newest: what is counted, and bounds what a page costs
MOST_COMPARED: Final = 100  # groups with more than one score
LAST: Final = 20  # groups
NO_MODEL: Final = "no model"  # functions and rules alone


@dataclass(frozen=True, slots=True)
class DayOfModel:
    """What one judge model did on one day of this machine. `cost_usd` None: no price is known."""

    day: str
    model: str
    scores: int
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    cost_usd: float | None
    latency: Latency


@dataclass(frozen=True, slots=True)
class Agreement:
    """How the two newest scores of groups that have several agree, over pairs of runs. `tau`: Kendall's tau-b."""

    groups: int
    pairs: int
    kept: int
    turned: int
    tied: int  # by one of the two, or by both
    tau: float | None


@dataclass(frozen=True, slots=True)
class OfReplies:
    """How far the replies about one group agree that several requests asked for, over `scores`: the mean tau-b."""

    scores: int
    tau: float


@dataclass(frozen=True, slots=True)
class JudgedGroup:
    """A group by one of its scores; `at` in unix seconds."""

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
class Judging:
    """All of it, at a time (unix seconds). `scores`: how many were looked at, of at most `DAYS` days."""

    at: float
    groups: Mapping[str, int]  # by state
    unscored: Sequence[Trouble]
    left_out: Mapping[str, int]  # groups, by the ledger's code
    missing_parts: Sequence[MissingPart]
    spent_today: Spent
    scores: int
    whole: bool  # whether these are all scores of these days
    latency: Latency
    days: Sequence[DayOfModel]
    agreement: Agreement | None  # None: no group has two scores
    of_replies: OfReplies | None  # None: no score was made of several replies
    disputed: int  # groups that wait for a person, because judges disagree about them
    judges: Sequence[JudgesStand]  # where a strong one judges too
    last: Sequence[JudgedGroup]


async def judging(project: Project) -> Judging:
    """What the judge did lately."""
    async with project.store.read() as conn:
        at = await sql.clock(conn)
        rows = await _newest(conn, project.id, at)
        return Judging(
            at=at,
            groups=await _by_state(conn, project.id),
            unscored=await troubles(conn, project.id),
            left_out=await groups_left_out(conn, project.id),
            missing_parts=await missing_parts(conn, project.id),
            spent_today=await _today(conn, project.id, midnight(at), rows),
            scores=len(rows),
            whole=len(rows) < MOST_SCORES,
            latency=_latency(rows),
            days=_days(rows),
            agreement=await _agreement(conn, rows),
            of_replies=_of_replies(rows),
            disputed=await waiting_for_person(conn, project.id),
            judges=await judges_stand(conn, project.id),
            last=await _last(conn, rows[:LAST]),
        )


async def _newest(conn: AsyncConnection, project_id: str, at: float) -> list[Any]:
    """The newest scores first. Their replies are left where they are: they are long."""
    s = scores.c
    used = (s.tokens_in, s.tokens_cached, s.tokens_out, s.cost_usd, s.latency_s)
    columns = (s.id, s.group_id, s.judge_model, s.agreement, *used)
    recent = s.id >= first_id_at("score", midnight(at) - (DAYS - 1) * 86400.0)
    query = select(*columns, s.created_at).where(recent, sql.passed_by(s.project_id) == project_id)
    return list(await conn.execute(query.order_by(s.id.desc()).limit(MOST_SCORES)))


async def _today(conn: AsyncConnection, project_id: str, since: float, rows: Sequence[Any]) -> Spent:
    """What was used since a time: told by the scores that were read, where these reach so far back."""
    first = first_id_at("score", since)
    if len(rows) == MOST_SCORES and rows[-1].id >= first:
        return await spent(conn, project_id, since)
    of = [row for row in rows if row.id >= first]
    judged = Spent(len(of), sum(row.tokens_in + row.tokens_out for row in of), _cost(of))
    return with_seconds(judged, await seconds.spent(conn, project_id, since))


async def _by_state(conn: AsyncConnection, project_id: str) -> dict[str, int]:
    query = select(groups.c.state, func.count()).where(groups.c.project_id == project_id).group_by(groups.c.state)
    return {str(state): int(number) for state, number in await conn.execute(query)}


def _latency(rows: Iterable[Any]) -> Latency:
    return latency([row.latency_s for row in rows if row.latency_s is not None])


def _days(rows: Iterable[Any]) -> list[DayOfModel]:
    by_day: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for row in rows:
        day = time.strftime("%Y-%m-%d", time.localtime(row.created_at))
        by_day[day, row.judge_model or NO_MODEL].append(row)
    newest = sorted(by_day.items(), key=lambda one: one[0][1])
    return [_day(*key, of) for key, of in sorted(newest, key=lambda one: one[0][0], reverse=True)]


def _day(day: str, model: str, of: Sequence[Any]) -> DayOfModel:
    return DayOfModel(
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


async def _agreement(conn: AsyncConnection, rows: Sequence[Any]) -> Agreement | None:
    by_group: dict[str, list[str]] = defaultdict(list)
    for row in rows:
        by_group[row.group_id].append(row.id)
    several = [ids[:2] for ids in by_group.values() if len(ids) > 1][:MOST_COMPARED]
    if not several:
        return None
    given = await _rewards(conn, [id_ for ids in several for id_ in ids])
    pairs = sum((compare(given[before], given[now]) for now, before in several), Pairs())
    tied = pairs.tied + pairs.tied_before + pairs.tied_now
    return Agreement(len(several), pairs.count, pairs.kept, pairs.turned, tied, pairs.tau)


def _of_replies(rows: Iterable[Any]) -> OfReplies | None:
    taus = [row.agreement for row in rows if row.agreement is not None]
    return OfReplies(len(taus), statistics.fmean(taus)) if taus else None


async def _rewards(conn: AsyncConnection, score_ids: Sequence[str]) -> Mapping[str, dict[str, float | None]]:
    """The rewards of runs, by the score that gave them."""
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

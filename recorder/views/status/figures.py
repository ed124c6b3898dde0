"""Figures of a project: calls, groups, trained and excluded trajectories, cost, rewards by version, steps, gates.

Owns: the queries. Each is bounded by an index or a number of rows, so that a page may repeat it. They include the cost
of shadow answers by alias; the proxy keeps their budget. Refuses: printing (`hone status`, `/metrics`), and which
processes are running (leases and replicas).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby, islice
from typing import Any, Final

from sqlalchemy import ColumnElement, Subquery, case, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import first_id_at
from recorder.queue import gate_requests
from recorder.queue.groups.readiness import GroupCode
from recorder.queue.groups.uses import GroupUse, group_use
from recorder.queue.judging import cross_checks
from recorder.queue.judging.scores import REWARD
from recorder.registry.learning_health import LearningHealth, load_health
from recorder.registry.versions import parse_name
from recorder.settings import LearnSettings, RecorderSettings
from recorder.states import GroupState, Origin, Purpose, StepState, VersionState
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.ledger import TRAINED, UNTRAINED, count_codes
from recorder.store.schema import aliases, calls, groups, ledger, score_parts, scores, steps, trajectories, versions
from recorder.store.statement import equals_literal
from recorder.views.status.events import detail_text
from recorder.views.status.judge_agreement import JudgeAgreement, list_judge_agreement
from recorder.views.status.stage_facts import GroupForecast, forecast_groups
from recorder.views.versions.rewards import NEWEST, VersionReward, load_rewards

RATE_S: Final = 60.0
NEWEST_GROUPS: Final = 2000  # missing parts are counted over the newest groups only
# Status and metrics show the rewards of an alias's newest versions, until so many versions or trajectories are read.
# The views of versions have them all.
REWARDED_VERSIONS: Final = 50
REWARDED_TRAJECTORIES: Final = 8000
# Ledger codes of trajectories that are no exclusions. `measured`: only in databases of earlier releases.
_NO_EXCLUSION: Final = (TRAINED, UNTRAINED, GroupCode.MEASURED)
_UNDECIDED: Final = (VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED, VersionState.CANARY)


@dataclass(frozen=True, slots=True)
class JudgeSpending:
    """What the judge has used since a time. `cost_usd` is None if no price is known."""

    groups: int
    tokens: int
    cost_usd: float | None


@dataclass(frozen=True, slots=True)
class StepFigures:
    """The newest step of an alias, and in `counts` its steps by state. `version` is None until the step has made it."""

    alias: str
    number: int
    state: str
    reason: str | None
    version: str | None
    began_at: float
    ended_at: float | None
    counts: Mapping[str, int]
    metrics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PendingVersion:
    """A version between its step and a decision. `since`: when it entered this state (unix seconds)."""

    version: str
    state: str
    since: float
    attempts: str | None = None  # progress of its held-out scenarios, if they are attempted now


@dataclass(frozen=True, slots=True)
class JudgingTrouble:
    """Groups that could not be judged, by reason code. `detail`: the newest error text."""

    code: str
    groups: int
    next_at: float | None
    detail: str


@dataclass(frozen=True, slots=True)
class MissingPart:
    """A part of the reward that some of the newest trajectories lack. `detail`: why, for one of them."""

    part: str
    trajectories: int
    of: int
    detail: str


@dataclass(frozen=True, slots=True)
class ProjectFigures:
    """The figures of a project at a time (unix seconds)."""

    at: float
    calls_per_s: float
    waiting: GroupForecast
    trained: int  # trajectories
    excluded: Mapping[str, int]  # trajectories, by the ledger's code
    excluded_groups: Mapping[str, int]
    spent_today: JudgeSpending
    spent_by_purpose: Mapping[str, JudgeSpending]  # today: learning, shadow, gate, evaluation
    rewards: Sequence[VersionReward]
    steps: Sequence[StepFigures]
    versions: Mapping[tuple[str, str], int]  # (alias, state) → how many
    undecided: Sequence[PendingVersion]
    troubles: Sequence[JudgingTrouble]
    missing_parts: Sequence[MissingPart]
    judges: Sequence[JudgeAgreement]
    health: Sequence[LearningHealth]  # what health rules say about live learning, by alias


async def load_figures(
    project: Project, settings: RecorderSettings, learn: LearnSettings | None = None
) -> ProjectFigures:
    """Read all figures of a project, in short transactions. `learn`: as in `forecast_groups`."""
    forecast = await forecast_groups(project, settings, learn)
    codes = await count_codes(project, "trajectory")
    async with project.store.read() as conn:
        found = await _versions(conn, project.id)
        spent = await judge_spending(conn, project.id, start_of_day(forecast.at))
        return ProjectFigures(
            at=forecast.at,
            calls_per_s=await _calls(conn, project.id, forecast.at) / RATE_S,
            waiting=forecast,
            trained=codes.get(TRAINED, 0),  # without those that are untrained by now: `count_codes` omits them
            excluded={code: n for code, n in codes.items() if code not in _NO_EXCLUSION},
            excluded_groups=await count_excluded_groups(conn, project.id),
            spent_today=total_spending(spent.values()),
            spent_by_purpose=spent,
            rewards=await _rewards(conn, project.id),
            steps=await _steps(conn, project.id),
            versions=found,
            undecided=await _undecided(conn, project.id),
            troubles=await list_troubles(conn, project.id),
            missing_parts=await list_missing_parts(conn, project.id),
            judges=await list_judge_agreement(conn, project.id),
            health=[one for one in await load_health(conn, project.id) if one.signals],
        )


def start_of_day(at: float) -> float:
    """Return when the day of `at` began in this machine's time zone (unix seconds)."""
    return datetime.fromtimestamp(at).astimezone().replace(hour=0, minute=0, second=0, microsecond=0).timestamp()


async def _calls(conn: AsyncConnection, project_id: str, at: float) -> int:
    recent = (calls.c.id >= first_id_at("call", at - RATE_S), sql.without_index(calls.c.project_id) == project_id)
    return int((await conn.execute(select(func.count()).where(*recent))).scalar_one())


async def count_excluded_groups(conn: AsyncConnection, project_id: str) -> dict[str, int]:
    """Count the excluded groups, by the ledger's code."""
    reason = sql.without_index(groups.c.reason)  # the index on the state is faster than the one on the reason
    out = (groups.c.project_id == project_id, groups.c.state == GroupState.LEFT_OUT)
    query = select(reason, func.count()).where(*out).group_by(reason).order_by(reason)
    return {str(code): int(count) for code, count in await conn.execute(query)}


async def judge_spending(conn: AsyncConnection, project_id: str, since: float) -> dict[str, JudgeSpending]:
    """Return what the judge and the second judges have used since a time (unix seconds), by `GroupUse`.

    Second judges judged the same groups, so they add no groups. Uses without any are omitted.
    """
    use = group_use().label("use")
    of_score = scores.join(groups, groups.c.id == scores.c.group_id)
    tokens = func.sum(scores.c.tokens_in + scores.c.tokens_out)
    recent = (scores.c.id >= first_id_at("score", since), sql.without_index(scores.c.project_id) == project_id)
    query = select(use, func.count(), tokens, func.sum(scores.c.cost_usd)).select_from(of_score).where(*recent)
    rows = await conn.execute(query.group_by(use))
    found = {str(of): JudgeSpending(int(number), int(used or 0), usd) for of, number, used, usd in rows}
    for of, other in (await cross_checks.cross_check_costs(conn, project_id, since)).items():
        beside = JudgeSpending(0, other.tokens_in + other.tokens_out, other.usd)
        found[of] = total_spending([found[of], beside] if of in found else [beside])
    return {of.value: found[of] for of in GroupUse if of in found}


def total_spending(spent: Iterable[JudgeSpending]) -> JudgeSpending:
    """Return the sum; its cost is None if no price is known."""
    of = list(spent)
    costs = [float(one.cost_usd) for one in of if one.cost_usd is not None]
    return JudgeSpending(sum(one.groups for one in of), sum(one.tokens for one in of), sum(costs) if costs else None)


def _newest_groups(project_id: str) -> Subquery:
    scored = (groups.c.project_id == project_id, groups.c.current_score_id.is_not(None))
    newest = select(groups.c.id, groups.c.current_score_id).where(*scored)
    return newest.order_by(groups.c.id.desc()).limit(NEWEST_GROUPS).subquery()


async def list_missing_parts(conn: AsyncConnection, project_id: str) -> list[MissingPart]:
    """Return the reward parts that some trajectories of the newest groups lack."""
    newest = _newest_groups(project_id)
    present = func.count(score_parts.c.value)
    query = (
        select(
            score_parts.c.part,
            func.count() - present,
            func.count(),
            func.max(case((score_parts.c.value.is_(None), score_parts.c.explanation))),
        )
        .join(newest, score_parts.c.score_id == newest.c.current_score_id)
        .where(score_parts.c.part != REWARD)
        .group_by(score_parts.c.part)
        .having(func.count() > present)
        .order_by(score_parts.c.part)
    )
    return [MissingPart(part, int(runs), int(of), why or "") for part, runs, of, why in await conn.execute(query)]


async def _rewards(conn: AsyncConnection, project_id: str) -> list[VersionReward]:
    """Return the rewards of each alias's live version and its newest ones, by alias and number, in bounded reads."""
    is_live = case((versions.c.state == VersionState.LIVE, 0), else_=1)
    query = select(versions.c.id, versions.c.alias_id).where(versions.c.project_id == project_id)
    rows = (await conn.execute(query.order_by(versions.c.alias_id, is_live, versions.c.number.desc()))).all()
    found: dict[str, VersionReward] = {}
    for _, of_alias in groupby(rows, key=lambda row: row.alias_id):
        ids = [str(row.id) for row in islice(of_alias, REWARDED_VERSIONS)]
        left = REWARDED_TRAJECTORIES
        while ids and left > 0:
            at_once = max(1, left // NEWEST)  # all of these together stay below the bound
            read = await load_rewards(conn, ids[:at_once])
            found |= read
            left -= sum(one.trajectories for one in read.values())
            ids = ids[at_once:]
    return sorted(found.values(), key=lambda one: (one.alias, parse_name(one.version)[1] or 0))


async def _steps(conn: AsyncConnection, project_id: str) -> list[StepFigures]:
    by_state: dict[str, dict[str, int]] = {}
    counted = select(steps.c.alias_id, steps.c.state, func.count()).where(steps.c.project_id == project_id)
    for alias_id, state, number in await conn.execute(counted.group_by(steps.c.alias_id, steps.c.state)):
        by_state.setdefault(alias_id, {})[str(state)] = int(number)
    newest = select(steps.c.alias_id, func.max(steps.c.number).label("number")).where(steps.c.project_id == project_id)
    last = newest.group_by(steps.c.alias_id).subquery()
    query = (
        select(steps, aliases.c.name, versions.c.number.label("version"))
        .join(last, (last.c.alias_id == steps.c.alias_id) & (last.c.number == steps.c.number))
        .join(aliases, aliases.c.id == steps.c.alias_id)
        .outerjoin(versions, versions.c.id == steps.c.version_id)
        .order_by(aliases.c.name)
    )
    return [_step(row, by_state[row.alias_id]) for row in await conn.execute(query)]


def _step(row: Any, by_state: Mapping[str, int]) -> StepFigures:
    version = f"{row.name}@{row.version}" if row.state == StepState.DONE else None
    return StepFigures(
        row.name, row.number, row.state, row.reason, version, row.started_at, row.ended_at, by_state, row.metrics
    )


async def _versions(conn: AsyncConnection, project_id: str) -> dict[tuple[str, str], int]:
    query = (
        select(aliases.c.name, versions.c.state, func.count())
        .join(aliases, aliases.c.id == versions.c.alias_id)
        .where(versions.c.project_id == project_id)
        .group_by(aliases.c.name, versions.c.state)
    )
    return {(str(name), str(state)): int(number) for name, state, number in await conn.execute(query)}


async def _undecided(conn: AsyncConnection, project_id: str) -> list[PendingVersion]:
    gates_now = await gate_requests.list_in_progress(conn, project_id)
    query = (
        select(versions.c.id, aliases.c.name, versions.c.number, versions.c.state, versions.c.state_at)
        .join(aliases, aliases.c.id == versions.c.alias_id)
        .where(versions.c.project_id == project_id, versions.c.state.in_(_UNDECIDED))
        .order_by(versions.c.state_at)
    )
    return [
        PendingVersion(f"{name}@{number}", state, at, str(gates_now[id_]) if id_ in gates_now else None)
        for id_, name, number, state, at in await conn.execute(query)
    ]


async def list_troubles(conn: AsyncConnection, project_id: str) -> list[JudgingTrouble]:
    """Return the groups that could not be judged, by reason."""
    unscored = (groups.c.project_id == project_id, groups.c.state == GroupState.UNSCORED)
    reason = sql.without_index(groups.c.reason)  # as in `count_excluded_groups`
    query = select(reason, func.count(), func.min(groups.c.try_after), func.max(groups.c.id)).where(*unscored)
    rows = list(await conn.execute(query.group_by(reason).order_by(reason)))
    return [
        JudgingTrouble(str(code), int(n), again, await _judge_error(conn, example)) for code, n, again, example in rows
    ]


async def _judge_error(conn: AsyncConnection, group_id: str) -> str:
    """Return the text of the newest ledger row of a group, which has the judge's error."""
    of_group = (ledger.c.object_kind == "group", ledger.c.object_id == group_id)
    query = select(ledger.c.detail).where(*of_group).order_by(ledger.c.id.desc()).limit(1)
    detail = (await conn.execute(query)).scalar_one_or_none() or {}
    return detail_text(detail)


LASTS_S: Final = 3600.0  # the trajectory of a shadow answer ends within this time


@dataclass(frozen=True, slots=True)
class ShadowCost:
    """The shadow answers of an alias, and their tokens."""

    alias: str
    answers: int
    prompt_tokens: int
    sampled_tokens: int

    @property
    def tokens(self) -> int:
        """Prompt tokens and sampled tokens together."""
        return self.prompt_tokens + self.sampled_tokens


async def list_shadow_costs(project: Project, since: float) -> list[ShadowCost]:
    """Return the shadow answers since a time (unix seconds) by alias; aliases without any are omitted."""

    def tokens(kind: str) -> ColumnElement[int]:
        return func.coalesce(func.sum(calls.c.usage[kind].as_integer()), 0)

    t = trajectories.c
    answered_again = select(t.id).where(
        t.project_id == project.id,
        equals_literal(t.origin, Origin.SHADOW),  # a literal, as in the partial index's condition
        t.purpose == Purpose.TRAIN,
        t.id >= first_id_at("traj", since - LASTS_S),
    )
    query = (
        select(aliases.c.name, func.count(), tokens("prompt_tokens"), tokens("completion_tokens"))
        .join(aliases, aliases.c.id == calls.c.alias_id)
        .where(
            calls.c.trajectory_id.in_(answered_again),
            sql.without_index(calls.c.id) >= first_id_at("call", since),  # few calls by trajectory, not all by time
        )
    )
    async with project.store.read() as conn:
        rows = await conn.execute(query.group_by(aliases.c.name).order_by(aliases.c.name))
        return [ShadowCost(*row) for row in rows]

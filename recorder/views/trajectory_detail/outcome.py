"""The outcome of a trajectory: reward and explanations, steps that trained on it, ledger lines, related trajectories.

Owns: these queries and their types. Refuses: the conversation (`recorder.views.trajectory_detail.conversation`), and
changing anything.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import String, and_, cast, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.judging.scores import NewPart, get_score, split_reward
from recorder.reasons import explain_reason
from recorder.states import StepState, VersionState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import (
    aliases,
    choices,
    groups,
    ledger,
    step_baselines,
    step_groups,
    step_trajectories,
    steps,
    trajectories,
    versions,
)
from recorder.views.comparison.attempts import GroupRank
from recorder.views.comparison.loader import load_rank
from recorder.views.trajectories.shapes import TrajectoryView
from recorder.views.trajectory_detail.objective_uses import ObjectiveUseView, load_objective_uses

_PAGE: Final = 200
_MOST_LINES: Final = 200  # ledger rows; a trajectory that is judged repeatedly has many
_ID_BYTES: Final = 4  # the size of a packed token id


@dataclass(frozen=True, slots=True)
class TrainingUse:
    """A step that trained on the trajectory.

    `compared_with`: the running baseline that the step used, None if it used the group's mean.
    """

    step_id: str
    number: int
    state: StepState
    version: str | None
    version_state: VersionState | None
    score_id: str | None
    reward: float | None
    compared_with: float | None
    earlier_rewards: int | None
    ended_at: float | None


@dataclass(frozen=True, slots=True)
class LedgerLine:
    """A line of the ledger, with the meaning of its code."""

    at: float
    kind: str
    object_id: str
    code: str
    meaning: str | None
    detail: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class RelatedTrajectory:
    """Another trajectory, for a link."""

    id: str
    external_id: str | None


@dataclass(frozen=True, slots=True)
class JudgeExplanation:
    """One of several replies about the trajectory. `judge`: the judge's version, else its model."""

    judge: str
    score: float
    explanation: str


@dataclass(frozen=True, slots=True)
class JudgeScore:
    """The current score of the trajectory's group, with the parts of this trajectory only, the reward first.

    The rewards of the group's other trajectories are not included, because the reader's key may cover only this one.
    `explanation_by_judge`: the explanation of each of several replies; `agreement`: how far those replies agree.
    """

    id: str
    recipe: str
    model: str | None
    version: str | None
    reply: str | None
    tokens_in: int
    tokens_out: int
    cost_usd: float | None
    latency_s: float | None
    at: float
    agreement: float | None
    reward: float | None
    parts: tuple[NewPart, ...]
    explanation_by_judge: tuple[JudgeExplanation, ...]


@dataclass(frozen=True, slots=True)
class TrajectoryOutcome:
    """What the store has about a trajectory besides its calls."""

    alias: str | None
    version: str | None  # the name of the pinned version
    group_external_id: str | None
    group_state: str | None
    group_reason: str | None
    group_size: int
    score: JudgeScore | None
    rank: GroupRank | None  # among its group's attempts, once these are judged
    training_uses: tuple[TrainingUse, ...]
    objective_uses: tuple[ObjectiveUseView, ...]
    ledger: tuple[LedgerLine, ...]
    before: RelatedTrajectory | None  # in the same session
    after: RelatedTrajectory | None
    continues: RelatedTrajectory | None
    continued_by: RelatedTrajectory | None


async def load_outcome(store: Store, view: TrajectoryView, names: dict[str, str]) -> TrajectoryOutcome:
    """Load the outcome of a trajectory. `names`: version id → name, with all versions that the trajectory used."""
    async with store.read() as conn:
        group = await _group(conn, view.group_id)
        alias = await _alias(conn, view.alias_id)
        training_uses = await _training_uses(conn, view)
        objective_uses = await load_objective_uses(conn, view.id)
        lines = await _ledger(conn, view)
        related = await _related_trajectories(conn, view)
    score_id = group.current_score_id if group else None
    return TrajectoryOutcome(
        alias=alias,
        version=names.get(view.version_id or ""),
        group_external_id=group.external_id if group else None,
        group_state=group.state if group else None,
        group_reason=group.reason if group else None,
        group_size=group.members if group else 0,
        score=await _judged(store, view.id, score_id),
        rank=await load_rank(store, view.group_id, view.id) if view.group_id and score_id else None,
        training_uses=training_uses,
        objective_uses=objective_uses,
        ledger=lines,
        **related,
    )


async def version_names(store: Store, ids: Collection[str]) -> dict[str, str]:
    """Return the names (helpdesk@3) of versions, by id."""
    name = aliases.c.name + "@" + cast(versions.c.number, String)
    query = select(versions.c.id, name).join(aliases, aliases.c.id == versions.c.alias_id)
    async with store.read() as conn:
        rows = await conn.execute(query.where(versions.c.id.in_(sorted(ids))))
        return {row[0]: row[1] for row in rows}


async def token_counts(store: Store, call_ids: Sequence[str]) -> dict[tuple[str, int], int]:
    """Return the number of sampled tokens by (call id, choice)."""
    c = choices.c
    found: dict[tuple[str, int], int] = {}
    for page in _pages(call_ids):
        query = select(c.call_id, c.index, func.length(c.token_ids)).where(c.call_id.in_(page))
        async with store.read() as conn:
            rows = await conn.execute(query.where(c.token_ids.is_not(None)))
            found |= {(call_id, index): length // _ID_BYTES for call_id, index, length in rows}
    return found


def _pages(ids: Sequence[str]) -> list[Sequence[str]]:
    return [ids[at : at + _PAGE] for at in range(0, len(ids), _PAGE)]


async def _group(conn: AsyncConnection, group_id: str | None) -> Any:
    members = select(func.count()).where(trajectories.c.group_id == groups.c.id).scalar_subquery()
    columns = (groups.c.external_id, groups.c.state, groups.c.reason, groups.c.current_score_id)
    query = select(*columns, members.label("members")).where(groups.c.id == group_id)
    return (await conn.execute(query)).first() if group_id is not None else None


async def _alias(conn: AsyncConnection, alias_id: str | None) -> str | None:
    if alias_id is None:
        return None
    return (await conn.execute(select(aliases.c.name).where(aliases.c.id == alias_id))).scalar_one_or_none()


async def _judged(store: Store, trajectory_id: str, score_id: str | None) -> JudgeScore | None:
    if score_id is None:
        return None
    score = await get_score(store, score_id)
    parts = tuple(score.parts_of(trajectory_id))
    reward, _ = split_reward(parts)
    return JudgeScore(
        id=score.id,
        recipe=score.recipe_hash,
        model=score.judge_model,
        version=score.judge_version,
        reply=score.reply,
        tokens_in=score.tokens_in,
        tokens_out=score.tokens_out,
        cost_usd=score.cost_usd,
        latency_s=score.latency_s,
        at=score.created_at,
        agreement=score.agreement,
        reward=reward.value if reward is not None else None,
        parts=parts,
        explanation_by_judge=tuple(
            JudgeExplanation(one.judge_version or one.judge_model, words.score, words.explanation)
            for one in score.replies
            for words in one.verdicts
            if words.trajectory_id == trajectory_id
        ),
    )


async def _training_uses(conn: AsyncConnection, view: TrajectoryView) -> tuple[TrainingUse, ...]:
    """Return the steps that trained on the trajectory, found by the group's index."""
    base, run = step_baselines.c, step_trajectories.c
    own_trajectory = and_(run.step_id == steps.c.id, run.trajectory_id == view.id)
    name = aliases.c.name + "@" + cast(versions.c.number, String)
    query = (
        select(
            steps.c.id.label("step_id"), steps.c.number, steps.c.state, steps.c.ended_at, name.label("version"),
            versions.c.state.label("version_state"), step_groups.c.score_id, base.reward,
            base.mean.label("compared_with"), base.rewards.label("earlier_rewards"),
        )
        .select_from(step_groups)
        .join(steps, steps.c.id == step_groups.c.step_id)
        .join(step_trajectories, own_trajectory)
        .outerjoin(versions, versions.c.id == steps.c.version_id)
        .outerjoin(aliases, aliases.c.id == versions.c.alias_id)
        .outerjoin(step_baselines, and_(base.step_id == steps.c.id, base.trajectory_id == view.id))
        .where(step_groups.c.group_id == view.group_id)
        .order_by(steps.c.number)
    )  # fmt: skip
    rows: Sequence[Any] = (await conn.execute(query)).all() if view.group_id is not None else ()
    return tuple(
        sql.as_view(
            TrainingUse,
            row,
            state=StepState(row.state),
            version_state=VersionState(row.version_state) if row.version_state else None,
        )
        for row in rows
    )


async def _ledger(conn: AsyncConnection, view: TrajectoryView) -> tuple[LedgerLine, ...]:
    """Return the ledger lines about the trajectory, its group and its calls, oldest first."""
    objects = {"trajectory": [view.id], "group": [view.group_id] if view.group_id else []}
    found = [row for kind, ids in objects.items() for row in await _lines(conn, kind, ids)]
    for page in _pages([call.id for call in view.calls]):
        found += await _lines(conn, "call", page)
    found.sort(key=lambda row: row.id)
    return tuple(
        LedgerLine(row.at, row.object_kind, row.object_id, row.code, explain_reason(row.code), row.detail)
        for row in found[-_MOST_LINES:]
    )


async def _lines(conn: AsyncConnection, kind: str, ids: Sequence[str]) -> list[Any]:
    query = select(ledger).where(ledger.c.object_kind == kind, ledger.c.object_id.in_(ids))
    return list(await conn.execute(query.order_by(ledger.c.id.desc()).limit(_MOST_LINES))) if ids else []


async def _related_trajectories(conn: AsyncConnection, view: TrajectoryView) -> dict[str, RelatedTrajectory | None]:
    t = trajectories.c
    some = select(t.id, t.external_id).limit(1)
    of_session = some.where(t.project_id == view.project_id, t.session == view.session)
    own = (await conn.execute(select(t.address_group, t.external_id, t.sequence).where(t.id == view.id))).first()
    found: dict[str, RelatedTrajectory | None] = dict.fromkeys(("before", "after", "continues", "continued_by"))
    if view.session is not None:
        found["before"] = await _one(conn, of_session.where(t.id < view.id).order_by(t.id.desc()))
        found["after"] = await _one(conn, of_session.where(t.id > view.id).order_by(t.id))
    if view.continues is not None:
        found["continues"] = await _one(conn, some.where(t.id == view.continues))
    if own is not None and own.external_id is not None:
        here = (t.project_id == view.project_id, t.address_group == own.address_group, t.external_id == own.external_id)
        found["continued_by"] = await _one(conn, some.where(*here, t.sequence == own.sequence + 1))
    return found


async def _one(conn: AsyncConnection, query: Any) -> RelatedTrajectory | None:
    row = (await conn.execute(query)).first()
    return RelatedTrajectory(row.id, row.external_id) if row is not None else None

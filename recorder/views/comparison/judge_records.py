"""What judges said of a group: its scores, newest first, by attempt.

Owns: these views and how many are looked at. Refuses: scoring.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.judging import cross_checks
from recorder.queue.judging.cross_checks import CrossCheck
from recorder.queue.judging.records import JudgePrompt, load_prompts, scores_with_prompts
from recorder.queue.judging.scores import NewPart, ScoreRow, load_scores, split_reward
from recorder.store.database import Store
from recorder.store.schema import groups, scores, trajectories
from recorder.views.comparison.attempts import Part, parts_shown

NEWEST: Final = 10  # scores of a group that are shown


@dataclass(frozen=True, slots=True)
class JudgedTrajectory:
    """What one score says of one run: its reward, why, and the parts that it is made of."""

    trajectory_id: str
    external_id: str | None
    reward: float | None
    explanation: str | None
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class PromptMessage:
    """A message of a judge's prompt."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class TrajectoryPrompt:
    """What a judge was asked about one run alone."""

    trajectory_id: str
    messages: tuple[PromptMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord(ScoreRow):
    """One score. `current`: it is the group's. `reply`: what the judge model said, None where none was asked.

    `beside`: of the current score, what another judge said of the group, which moved nothing.

    `asked`: what it was asked about the group (of several requests, by the one that was named), and `run_prompts` about
    single runs, told of the one score whose prompt was wanted; `prompt_kept`: whether there is any. `prompt_hash`: of
    that about the group, but for order and ids; `order_seed`: of the order in which it saw the runs.
    """

    id: str
    current: bool
    prompt_kept: bool
    prompt: tuple[PromptMessage, ...] | None
    trajectory_prompts: tuple[TrajectoryPrompt, ...]
    created_at: float
    trajectories: tuple[JudgedTrajectory, ...]
    cross_checks: tuple[CrossCheck, ...]


async def load_judgings(store: Store, group_id: str, prompt: str | None = None, reply: int = 0) -> list[ScoreRecord]:
    """The newest `NEWEST` scores of a group (internal id), each with its runs, the best first.

    `prompt`: the score whose prompt is read too; `reply`: of several, the number of the reply that answers it.
    """
    newest = select(scores).where(scores.c.group_id == group_id)
    newest = newest.order_by(scores.c.created_at.desc(), scores.c.id.desc()).limit(NEWEST)
    current = select(groups.c.current_score_id).where(groups.c.id == group_id)
    async with store.read() as conn:
        found = await load_scores(conn, newest)
        its = (await conn.execute(current)).scalar_one_or_none()
        names = await _external_ids(conn, {part.trajectory_id for score in found for part in score.parts})
    ids = [score.id for score in found]
    asked = await load_prompts(store, prompt, reply) if prompt in ids else []
    kept = await scores_with_prompts(store, ids)
    beside = tuple(await cross_checks.list_cross_checks(store, group_id))
    return [
        ScoreRecord(
            **score.row_fields(),
            id=score.id,
            current=score.id == its,
            prompt_kept=score.id in kept or score.prompt_hash is not None,
            **_asked(asked if score.id == prompt else []),
            created_at=score.created_at,
            trajectories=_runs(score.parts, names),
            cross_checks=beside if score.id == its else (),
        )
        for score in found
    ]


async def _external_ids(conn: AsyncConnection, ids: Collection[str]) -> dict[str, str | None]:
    """What callers named these trajectories; those that are deleted are left out."""
    query = select(trajectories.c.id, trajectories.c.external_id).where(trajectories.c.id.in_(sorted(ids)))
    return {row.id: row.external_id for row in await conn.execute(query)} if ids else {}


def _asked(asked: Sequence[JudgePrompt]) -> dict[str, Any]:
    of_group = next((_messages(one) for one in asked if one.trajectory_id is None), None)
    of_runs = tuple(
        TrajectoryPrompt(one.trajectory_id, _messages(one)) for one in asked if one.trajectory_id is not None
    )
    return {"prompt": of_group, "trajectory_prompts": of_runs}


def _messages(asked: JudgePrompt) -> tuple[PromptMessage, ...]:
    return tuple(PromptMessage(message["role"], message["content"]) for message in asked.messages)


def _runs(parts: Sequence[NewPart], names: Mapping[str, str | None]) -> tuple[JudgedTrajectory, ...]:
    of_run: dict[str, list[NewPart]] = {}
    for part in parts:
        of_run.setdefault(part.trajectory_id, []).append(part)
    found = [_judged(id_, names[id_], own) for id_, own in of_run.items() if id_ in names]
    return tuple(sorted(found, key=lambda one: (one.reward is None, -(one.reward or 0.0), one.trajectory_id)))


def _judged(trajectory_id: str, external_id: str | None, parts: Sequence[NewPart]) -> JudgedTrajectory:
    reward, others = split_reward(parts)
    value, explanation = (reward.value, reward.explanation) if reward is not None else (None, None)
    return JudgedTrajectory(trajectory_id, external_id, value, explanation, parts_shown(others))

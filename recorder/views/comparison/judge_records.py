"""The scores of a group, newest first, with their prompts, replies and values by attempt.

Owns: these views, and how many scores are read. Refuses: scoring (`judge.scoring`).
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
    """One score's values for one trajectory: the reward, its explanation, and its parts."""

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
    """The prompt of a judge about a single trajectory."""

    trajectory_id: str
    messages: tuple[PromptMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreRecord(ScoreRow):
    """One score. `current`: whether it is the group's current score. `reply`: the judge model's, None without a model.

    `cross_checks`: for the current score, the verdicts of the second judge, which change no state.

    `prompt`: the judge's prompt about the group (of several replies, the chosen one's); `trajectory_prompts`: its
    prompts about single trajectories. Both are loaded for one score only. `prompt_kept`: whether a prompt is stored.
    `prompt_hash`: the hash of the group's prompt without order and ids; `order_seed`: the seed of the order in it.
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
    """Return the newest `NEWEST` scores of a group (internal id), each with its trajectories, best first.

    `prompt`: the id of a score to load the prompts of; `reply`: the number of the reply, if the score has several.
    """
    newest = select(scores).where(scores.c.group_id == group_id)
    newest = newest.order_by(scores.c.created_at.desc(), scores.c.id.desc()).limit(NEWEST)
    current = select(groups.c.current_score_id).where(groups.c.id == group_id)
    async with store.read() as conn:
        found = await load_scores(conn, newest)
        current_id = (await conn.execute(current)).scalar_one_or_none()
        names = await _external_ids(conn, {part.trajectory_id for score in found for part in score.parts})
    ids = [score.id for score in found]
    prompts = await load_prompts(store, prompt, reply) if prompt in ids else []
    stored = await scores_with_prompts(store, ids)
    checks = tuple(await cross_checks.list_cross_checks(store, group_id))
    return [
        ScoreRecord(
            **score.row_fields(),
            id=score.id,
            current=score.id == current_id,
            prompt_kept=score.id in stored or score.prompt_hash is not None,
            **_prompt_fields(prompts if score.id == prompt else []),
            created_at=score.created_at,
            trajectories=_judged_trajectories(score.parts, names),
            cross_checks=checks if score.id == current_id else (),
        )
        for score in found
    ]


async def _external_ids(conn: AsyncConnection, ids: Collection[str]) -> dict[str, str | None]:
    """Return the callers' ids of these trajectories; deleted ones are omitted."""
    query = select(trajectories.c.id, trajectories.c.external_id).where(trajectories.c.id.in_(sorted(ids)))
    return {row.id: row.external_id for row in await conn.execute(query)} if ids else {}


def _prompt_fields(prompts: Sequence[JudgePrompt]) -> dict[str, Any]:
    of_group = next((_messages(one) for one in prompts if one.trajectory_id is None), None)
    trajectory_prompts = tuple(
        TrajectoryPrompt(one.trajectory_id, _messages(one)) for one in prompts if one.trajectory_id is not None
    )
    return {"prompt": of_group, "trajectory_prompts": trajectory_prompts}


def _messages(prompt: JudgePrompt) -> tuple[PromptMessage, ...]:
    return tuple(PromptMessage(message["role"], message["content"]) for message in prompt.messages)


def _judged_trajectories(parts: Sequence[NewPart], names: Mapping[str, str | None]) -> tuple[JudgedTrajectory, ...]:
    parts_of_trajectory: dict[str, list[NewPart]] = {}
    for part in parts:
        parts_of_trajectory.setdefault(part.trajectory_id, []).append(part)
    found = [_judged(id_, names[id_], own) for id_, own in parts_of_trajectory.items() if id_ in names]
    return tuple(sorted(found, key=lambda one: (one.reward is None, -(one.reward or 0.0), one.trajectory_id)))


def _judged(trajectory_id: str, external_id: str | None, parts: Sequence[NewPart]) -> JudgedTrajectory:
    reward, others = split_reward(parts)
    value, explanation = (reward.value, reward.explanation) if reward is not None else (None, None)
    return JudgedTrajectory(trajectory_id, external_id, value, explanation, parts_shown(others))

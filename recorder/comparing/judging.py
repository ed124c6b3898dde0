"""What judges said of a group: its scores, newest first, by attempt.

Owns: these views and how many are looked at. Refuses: scoring.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, select

from recorder.comparing.comparison import Part
from recorder.judged import replies, seconds
from recorder.judged.prompts import Asked, prompts_of, with_prompts
from recorder.judged.replies import NewReply
from recorder.judged.seconds import Second
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import groups, score_parts, scores, trajectories
from recorder.work.scores import REWARD

NEWEST: Final = 10  # scores of a group that are shown


@dataclass(frozen=True, slots=True)
class Judged:
    """What one score says of one run: its reward, why, and the parts that it is made of."""

    trajectory_id: str
    external_id: str | None
    reward: float | None
    explanation: str | None
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Message:
    """A message of a judge's prompt."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class RunPrompt:
    """What a judge was asked about one run alone."""

    trajectory_id: str
    messages: tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class Judging:
    """One score. `current`: it is the group's. `reply`: what the judge model said, None where none was asked.

    Where several replies made it, they are in `replies`, `reply` is None, and `agreement` is the mean of Kendall's
    tau-b over each two of them.

    `beside`: of the current score, what another judge said of the group, which moved nothing.

    `asked`: what it was asked about the group (of several requests, by the one that was named), and `run_prompts` about
    single runs, told of the one score whose prompt was wanted; `prompt_kept`: whether there is any. `prompt_hash`: of
    that about the group, but for order and ids; `order_seed`: of the order in which it saw the runs.
    """

    id: str
    current: bool
    recipe_hash: str
    judge_model: str | None
    judge_version: str | None
    prompt_hash: str | None
    order_seed: int | None
    prompt_kept: bool
    asked: tuple[Message, ...] | None
    run_prompts: tuple[RunPrompt, ...]
    reply: str | None
    tokens_in: int
    tokens_cached: int
    tokens_out: int
    cost_usd: float | None
    latency_s: float | None
    created_at: float
    agreement: float | None
    runs: tuple[Judged, ...]
    replies: tuple[NewReply, ...]
    beside: tuple[Second, ...]


async def load_judgings(store: Store, group_id: str, prompt: str | None = None, reply: int = 0) -> list[Judging]:
    """The newest `NEWEST` scores of a group (internal id), each with its runs, the best first.

    `prompt`: the score whose prompt is read too; `reply`: of several, the number of the reply that answers it.
    """
    newest = select(scores).where(scores.c.group_id == group_id)
    newest = newest.order_by(scores.c.created_at.desc(), scores.c.id.desc()).limit(NEWEST)
    current = select(groups.c.current_score_id).where(groups.c.id == group_id)
    parts = select(score_parts, trajectories.c.external_id).join(
        trajectories, trajectories.c.id == score_parts.c.trajectory_id
    )
    async with store.read() as conn:
        rows = list(await conn.execute(newest))
        its = (await conn.execute(current)).scalar_one_or_none()
        wanted = parts.where(score_parts.c.score_id.in_([row.id for row in rows]))
        of_score: dict[str, dict[tuple[str, str | None], list[Row[Any]]]] = {row.id: {} for row in rows}
        for part in await conn.execute(wanted.order_by(score_parts.c.trajectory_id, score_parts.c.part)):
            of_score[part.score_id].setdefault((part.trajectory_id, part.external_id), []).append(part)
        said = await replies.of_scores(conn, of_score)
    asked = await prompts_of(store, prompt, reply) if prompt in of_score else []
    kept = await with_prompts(store, of_score.keys())
    beside = tuple(await seconds.of_group(store, group_id))
    return [
        sql.view(
            Judging,
            row,
            current=row.id == its,
            prompt_kept=row.id in kept or row.prompt_hash is not None,
            **_asked(asked if row.id == prompt else []),
            runs=_runs(of_score[row.id]),
            replies=said.get(row.id, ()),
            beside=beside if row.id == its else (),
        )
        for row in rows
    ]


def _asked(asked: Sequence[Asked]) -> dict[str, Any]:
    of_group = next((_messages(one) for one in asked if one.trajectory_id is None), None)
    of_runs = tuple(RunPrompt(one.trajectory_id, _messages(one)) for one in asked if one.trajectory_id is not None)
    return {"asked": of_group, "run_prompts": of_runs}


def _messages(asked: Asked) -> tuple[Message, ...]:
    return tuple(Message(message["role"], message["content"]) for message in asked.messages)


def _runs(parts: dict[tuple[str, str | None], list[Row[Any]]]) -> tuple[Judged, ...]:
    found = [_judged(id_, external_id, of_run) for (id_, external_id), of_run in parts.items()]
    return tuple(sorted(found, key=lambda one: (one.reward is None, -(one.reward or 0.0), one.trajectory_id)))


def _judged(trajectory_id: str, external_id: str | None, parts: list[Row[Any]]) -> Judged:
    whole = next((part for part in parts if part.part == REWARD), None)
    others = tuple(Part(part.part, part.value, part.weight, part.explanation) for part in parts if part is not whole)
    reward, explanation = (whole.value, whole.explanation) if whole is not None else (None, None)
    return Judged(trajectory_id, external_id, reward, explanation, others)

"""Recent costs of an alias's trajectories and of judging them, to estimate the cost of more.

Owns: means over the newest trajectories and scores. Refuses: predicting how many more there will be
(`trainer.campaign.estimate`), and budgets (`recorder.queue.training.budgets`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import exists, func, select

from recorder.queue.judging.scores import REWARD
from recorder.queue.judging.switches import STRONG
from recorder.states import CallState, Origin, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import calls, score_parts, scores, second_scores, trajectories

NEWEST_RUNS: Final = 200
NEWEST_SCORES: Final = 100


@dataclass(frozen=True, slots=True)
class TrajectoryCost:
    """Means over `runs` trajectories, in tokens and dollars. `usd`: None if no price is known."""

    runs: int
    tokens_in: float
    tokens_out: float
    usd: float | None = None


async def trajectory_costs(store: Store, alias_id: str) -> TrajectoryCost | None:
    """Return the mean token counts of an alias's newest completed trajectories, or None without any."""
    t = trajectories.c
    newest = (
        select(t.id)
        .where(t.alias_id == alias_id, t.state == TrajectoryState.COMPLETED, t.origin != Origin.SHADOW)
        .order_by(t.id.desc())
        .limit(NEWEST_RUNS)
    )
    async with store.read() as conn:
        ids = list((await conn.execute(newest)).scalars())
        query = select(calls.c.trajectory_id, calls.c.usage)
        rows = list(
            await conn.execute(query.where(calls.c.trajectory_id.in_(ids), calls.c.state == CallState.COMPLETE))
        )
    told = [row for row in rows if row.usage]
    runs = len({row.trajectory_id for row in told})
    if not runs:
        return None
    sent, answered = (sum(_count(row.usage, name) for row in told) for name in ("prompt_tokens", "completion_tokens"))
    return TrajectoryCost(runs, sent / runs, answered / runs)


def _count(usage: dict[str, Any], name: str) -> int:
    count = usage.get(name)
    return count if isinstance(count, int) else 0


async def judging_costs(store: Store, alias_id: str, judge_model: str, parts: Collection[str]) -> TrajectoryCost | None:
    """Return the cost per trajectory of an alias's newest scores in which a model gave all of these parts, or None.

    Scores without a request (from a stored reply, or for identical trajectories) are not counted.
    """
    newest = (
        select(scores.c.id, scores.c.tokens_in, scores.c.tokens_out, scores.c.cost_usd)
        .where(scores.c.alias_id == alias_id, scores.c.judge_model == judge_model, scores.c.tokens_in > 0)
        .where(*(_has(part) for part in sorted(parts)))
        .order_by(scores.c.id.desc())
        .limit(NEWEST_SCORES)
    )
    async with store.read() as conn:
        found = list(await conn.execute(newest))
        judged = select(func.count()).where(
            score_parts.c.score_id.in_([row.id for row in found]), score_parts.c.part == REWARD
        )
        runs = int((await conn.execute(judged)).scalar_one())
    return _a_run(found, runs)


async def strong_judge_costs(project: Project, alias: str, recipe: str, judge_model: str) -> TrajectoryCost | None:
    """Return the cost per trajectory of the strong judge's newest cross-checks of an alias (by name), or None."""
    s = second_scores.c
    mine = (s.project_id == project.id, s.alias == alias, s.recipe == recipe)
    its = (s.judge == STRONG, s.judge_model == judge_model, s.failed.is_(None), s.parts.is_not(None), s.tokens_in > 0)
    query = select(s.parts, s.tokens_in, s.tokens_out, s.cost_usd).where(*mine, *its)
    async with project.store.read() as conn:
        found = list(await conn.execute(query.order_by(s.id.desc()).limit(NEWEST_SCORES)))
    runs = sum(len({one["trajectory_id"] for one in json.loads(row.parts)}) for row in found)
    return _a_run(found, runs)


def _a_run(found: Sequence[Any], runs: int) -> TrajectoryCost | None:
    """The cost of scores per trajectory."""
    if not runs:
        return None
    costs = [row.cost_usd for row in found]
    usd = None if None in costs else sum(costs) / runs
    return TrajectoryCost(
        runs, sum(row.tokens_in for row in found) / runs, sum(row.tokens_out for row in found) / runs, usd
    )


def _has(part: str) -> Any:
    return exists().where(score_parts.c.score_id == scores.c.id, score_parts.c.part == part)

"""Running baselines: what a trajectory's reward is compared with if no group attempts its task.

Owns: which earlier rewards of an alias count, loading them, and which ones a step used. Refuses: the comparison
(`trainer.objectives.running_baseline`).

A reward counts if all of this holds: it has a meaning outside its group (a ranking has none), the same judge recipe
made it, it is part of its group's current score, and its trajectory completed and has the purpose `train`. Rewards of
shadow answers do not count, because they are about a single call and not about a whole trajectory.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from sqlalchemy import Select, and_, func, insert, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.judging.scores import REWARD
from recorder.states import GroupState, Origin, Purpose, TrajectoryState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import aliases, calls, groups, score_parts, scores, step_baselines, trajectories

FEWEST: Final = 64  # with fewer, the mean's standard error exceeds an eighth of the deviation
MOST: Final = 256  # older rewards are of a model that has been trained further since
PAGE: Final = 256  # rewards per SELECT
_LOOKED_AT: Final = 8 * MOST  # newest first: how far back trajectories with the same tools are searched


@dataclass(frozen=True, slots=True)
class EarlierReward:
    """One earlier reward for comparison. `tools` names the tools that its trajectory's last answer could call."""

    trajectory_id: str
    reward: float
    tools: bytes | None
    at: float  # unix seconds, when it was judged


@dataclass(frozen=True, slots=True)
class Baseline:
    """What a reward is compared with: mean and standard deviation of `rewards` earlier rewards."""

    mean: float
    std: float
    rewards: int
    same_tools: bool  # whether all are of trajectories with the same tools


@dataclass(frozen=True, slots=True)
class ComparedReward:
    """A reward of a step, and the baseline that it was compared with."""

    trajectory_id: str
    reward: float
    mean: float
    std: float
    rewards: int
    same_tools: bool


async def list_earlier_rewards(store: Store, alias_id: str, recipe_hash: str) -> list[EarlierReward]:
    """Return the rewards that count, newest first, back to a bound. Each page is one transaction."""
    found: list[EarlierReward] = []
    page = query = _rewards(alias_id, recipe_hash).limit(PAGE)
    while len(found) < _LOOKED_AT:
        async with store.read() as conn:
            rows = (await conn.execute(page)).all()
        found += sql.as_views(EarlierReward, rows)
        if len(rows) < PAGE:
            break
        page = query.where(tuple_(*_newest) < tuple_(*(getattr(rows[-1], name) for name in _KEYS)))
    return found


async def tool_names(store: Store, trajectory_ids: Collection[str]) -> dict[str, bytes | None]:
    """Return by trajectory id what identifies the trajectory's tools, as in `EarlierReward`."""
    leaf = select(trajectories.c.id, calls.c.tools_blob_id).outerjoin(calls, calls.c.id == trajectories.c.leaf_call_id)
    found: dict[str, bytes | None] = {}
    ids = list(trajectory_ids)
    for at in range(0, len(ids), PAGE):
        async with store.read() as conn:
            rows = await conn.execute(leaf.where(trajectories.c.id.in_(ids[at : at + PAGE])))
            found |= {row.id: row.tools_blob_id for row in rows}
    return found


async def list_lacking_recipes(store: Store, alias_id: str) -> dict[str, int]:
    """Return the judge recipes whose scored groups wait for a running baseline, each with its number of rewards.

    A recipe needs `FEWEST` + 1 rewards: then every trajectory has `FEWEST` others. Empty if the alias compares inside
    groups.
    """
    async with store.read() as conn:
        recipes = list((await conn.execute(_recipes_waiting(alias_id))).scalars())
        there = {recipe: await _count(conn, alias_id, recipe) for recipe in recipes}
    return {recipe: count for recipe, count in there.items() if count <= FEWEST}


async def write_baselines(conn: AsyncConnection, step_id: str, compared: Sequence[ComparedReward]) -> None:
    """Write the baselines of a step, in the transaction that makes the step visible."""
    if compared:
        await conn.execute(insert(step_baselines), [{"step_id": step_id, **asdict(one)} for one in compared])


_newest: Final = (scores.c.created_at, scores.c.id, score_parts.c.trajectory_id)
_KEYS: Final = ("at", "score_id", "trajectory_id")  # the labels of the columns that `_newest` sorts by


def _rewards(alias_id: str, recipe_hash: str) -> Select[Any]:
    t = trajectories.c
    columns = (
        score_parts.c.trajectory_id,
        score_parts.c.value.label("reward"),
        calls.c.tools_blob_id.label("tools"),
        scores.c.created_at.label("at"),
        scores.c.id.label("score_id"),
    )
    # joined by the group's id: the current score has no index, and SQLite would build one over the table for each page
    current = scores.join(groups, and_(groups.c.id == scores.c.group_id, groups.c.current_score_id == scores.c.id))
    of_runs = current.join(score_parts, score_parts.c.score_id == scores.c.id)
    of_runs = of_runs.join(trajectories, t.id == score_parts.c.trajectory_id)
    return (
        select(*columns)
        .select_from(of_runs.outerjoin(calls, calls.c.id == t.leaf_call_id))
        .where(scores.c.alias_id == alias_id, scores.c.recipe_hash == recipe_hash, scores.c.absolute)
        .where(score_parts.c.part == REWARD, score_parts.c.value.is_not(None))
        .where(t.state == TrajectoryState.COMPLETED, t.selection.is_(None))
        .where(t.purpose == Purpose.TRAIN, t.origin != Origin.SHADOW)
        .order_by(*(column.desc() for column in _newest))
    )


def _recipes_waiting(alias_id: str) -> Select[Any]:
    running = and_(aliases.c.id == groups.c.alias_id, aliases.c.baseline == "running")
    return (
        select(scores.c.recipe_hash)
        .join(groups, groups.c.current_score_id == scores.c.id)
        .join(aliases, running)
        .where(groups.c.project_id == aliases.c.project_id, groups.c.state == GroupState.SCORED)  # for the index
        .where(groups.c.alias_id == alias_id, groups.c.campaign_id.is_(None), scores.c.absolute)
        .distinct()
    )


async def _count(conn: AsyncConnection, alias_id: str, recipe_hash: str) -> int:
    some = _rewards(alias_id, recipe_hash).limit(FEWEST + 1).subquery()
    return int((await conn.execute(select(func.count()).select_from(some))).scalar_one())

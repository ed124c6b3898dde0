"""The title of a trajectory or a group: its task and its outcome. Pages, commands and reports have it from here.

Owns: what a title says, and the tasks of some trajectories and groups. Refuses: how ids are cut
(`recorder.views.lists.short_ids`), whole lines of a list.
"""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.states import GroupState, state_word
from recorder.store.database import Store
from recorder.store.schema import trajectories
from recorder.views.lists.columns import first_words
from recorder.views.lists.short_ids import cut_id


async def load_tasks(store: Store, *, runs: Collection[str] = (), groups: Collection[str] = ()) -> dict[str, str]:
    """Return the tasks of some trajectories and groups (internal ids), by their id; those without one are absent.

    A trajectory's task is the beginning of its first user message, a group's that of its first trajectory.
    """
    async with store.read() as conn:
        of_runs = await first_words(conn, runs) if runs else {}
        return {**of_runs, **(await group_tasks(conn, groups) if groups else {})}


async def group_tasks(conn: AsyncConnection, group_ids: Collection[str]) -> dict[str, str]:
    """Return the task of each group, by group id; groups without one are absent."""
    query = select(trajectories.c.group_id, func.min(trajectories.c.id)).where(trajectories.c.group_id.in_(group_ids))
    runs = {str(run): str(group) for group, run in await conn.execute(query.group_by(trajectories.c.group_id))}
    return {runs[run]: words for run, words in (await first_words(conn, list(runs))).items()}


def title_of(task: str | None, name: str | None, id_: str) -> str:
    """Return the title of a trajectory or a group: its task, else its caller's name for it, else its id, cut."""
    return task or str(cut_id(name or id_))


def trajectory_outcome(state: str, reward: float | None) -> str:
    """Return how a trajectory ended, in a word or two: `reward 0.5`, `errored`."""
    return state_word(state) if reward is None else f"reward {reward:.3g}"


def group_outcome(state: str, rewards: Collection[float | None]) -> str:
    """Return what became of a group, in a few words: `reward 0.25 to 1`, `excluded`, `measured, reward 0.5`.

    `rewards`: of its trajectories, by its current score.
    """
    known = sorted(reward for reward in rewards if reward is not None)
    if not known:
        return state_word(state)
    low, high = f"{known[0]:.3g}", f"{known[-1]:.3g}"
    span = f"reward {low}" if low == high else f"reward {low} to {high}"
    return span if state == GroupState.SCORED else f"{state_word(state)}, {span}"

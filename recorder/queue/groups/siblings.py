"""Split a first call with n>1 that the agent never continued: each choice becomes a trajectory of the same group.

Owns: the rows of the siblings. Refuses: the rule (`recorder.messages.call_tree.split_choices`), ending trajectories
(`recorder.queue.groups.closure`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import new_id
from recorder.messages import call_tree
from recorder.messages.call_tree import CallNode
from recorder.messages.calls import ParentCall
from recorder.states import CallKind, CallState
from recorder.store import sql
from recorder.store.schema import calls, choices, trajectories, unindexed

_SHARED: Final = (
    "project_id",
    "group_id",
    "alias_id",
    "address_group",
    "state",
    "end_reason",
    "purpose",
    "origin",
    "version_id",
    "mixed",
    "tags",
    "started_at",
    "last_call_at",
    "ended_at",
    "made_by",
)


async def filter_answered(conn: AsyncConnection, trajectory_ids: Collection[str]) -> set[str]:
    """Those of some trajectories that a model answered at least once on their main path."""
    if not trajectory_ids:
        return set()
    query = select(calls.c.trajectory_id).where(
        calls.c.trajectory_id.in_(trajectory_ids),
        calls.c.state == CallState.COMPLETE,
        calls.c.turn_kind == CallKind.MAIN,
        calls.c.superseded_by.is_(None),
    )
    return set((await conn.execute(query.distinct())).scalars())


async def split_siblings(conn: AsyncConnection, trajectory_ids: Collection[str]) -> list[str]:
    """Make siblings of ended trajectories where the rule asks for it; returns their ids.

    The shared call stays where it is: a sibling has no call of its own, but names it as its leaf with its own choice.
    """
    made: list[str] = []
    for trajectory_id in await _began_with_several(conn, trajectory_ids):
        made += await _split(conn, trajectory_id)
    return made


async def _split(conn: AsyncConnection, trajectory_id: str) -> list[str]:
    nodes = await _nodes(conn, trajectory_id)
    others = call_tree.split_choices(nodes)
    if not others:
        return []
    first = call_tree.main_leaf(nodes)
    assert first is not None
    row = (await conn.execute(select(trajectories).where(trajectories.c.id == trajectory_id))).one()
    if row.group_id is None:
        return []
    own = update(trajectories).where(trajectories.c.id == trajectory_id)
    await conn.execute(own.values(leaf_call_id=first.call_id, leaf_choice=0))
    made = [_sibling(row, first.call_id, choice) for choice in others]
    await conn.execute(insert(trajectories), made)
    ids = [sibling["id"] for sibling in made]
    # Each is found by its own choice from now on, and the first run no more by the others'.
    await conn.execute(
        sql.insert_ignore(conn, unindexed),
        [{"project_id": row.project_id, "call_id": key} for key in (first.call_id, *ids)],
    )
    return ids


def _sibling(row: Any, call_id: str, choice: int) -> dict[str, Any]:
    own = {"id": new_id("traj"), "forked_from_call": call_id, "leaf_call_id": call_id, "leaf_choice": choice}
    return {**{name: getattr(row, name) for name in _SHARED}, **own}


async def _began_with_several(conn: AsyncConnection, trajectory_ids: Collection[str]) -> list[str]:
    if not trajectory_ids:
        return []
    query = (
        select(calls.c.trajectory_id, calls.c.parent_call_id)
        .join(choices, choices.c.call_id == calls.c.id)
        .where(calls.c.trajectory_id.in_(trajectory_ids), choices.c.index == 1)
    )
    # Not in the WHERE: SQLite would look parent_call_id IS NULL up, and walk the first call of every run there is.
    return sorted({row.trajectory_id for row in await conn.execute(query) if row.parent_call_id is None})


async def _nodes(conn: AsyncConnection, trajectory_id: str) -> list[CallNode]:
    query = (
        select(calls, func.count(choices.c.index).label("choices"))
        .outerjoin(choices, choices.c.call_id == calls.c.id)
        .where(calls.c.trajectory_id == trajectory_id)
        .group_by(calls.c.id)
    )
    return [
        CallNode(
            row.id,
            None if row.parent_call_id is None else ParentCall(row.parent_call_id, row.parent_choice or 0),
            row.choices,
            CallState(row.state),
            CallKind(row.turn_kind),
            row.superseded_by is not None,
            row.started_at,
        )
        for row in await conn.execute(query)
    ]

"""Groups whose members answer the same request: siblings of a first call with n>1, and shadow groups.

Owns: the rows of both, and whether a trajectory's own group trains the answer of a shadow group. Refuses: which choices
become siblings (`recorder.messages.call_tree.split_choices`), ending trajectories (`recorder.queue.groups.closure`),
choosing trajectories and calls for shadow answers and sampling them (the proxy), judging, training.

If an agent continues no choice of its first call, each choice becomes a trajectory of the same group. A shadow group
has a fork of a live trajectory, which ends at the chosen call and has no call of its own, and one trajectory per shadow
answer. Its members have no names, so no agent's call can join them, and lineage ignores them. Its id is derived from
the call's id, so each call gets shadow answers at most once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, exists, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import new_id
from recorder.messages import call_tree
from recorder.messages.call_tree import CallNode
from recorder.messages.calls import ParentCall, TrajectoryRef
from recorder.states import CallKind, CallState, GroupState, Origin, Purpose, TrajectoryState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import calls, choices, groups, trajectories, unindexed
from recorder.store.sql import now

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
    """Return those of some trajectories with at least one complete answer on their main path."""
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
    """Make siblings of ended trajectories if the rule applies; return the siblings' ids.

    The shared call is not copied: a sibling has no call of its own, and its leaf is the shared call with its own
    choice.
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
    # The search now finds each sibling by its own choice, and the first trajectory only by its own.
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
    # Not in the WHERE: SQLite would look up parent_call_id IS NULL, and read the first call of every trajectory.
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


FORKED: Final = "forked"  # the end reason of the member that is the live trajectory's fork
_UNDECIDED: Final = (GroupState.OPEN, GroupState.READY, GroupState.JUDGING)

_member, _home, _own = trajectories.alias("member"), trajectories.alias("home"), groups.alias("own")


@dataclass(frozen=True, slots=True)
class EndedTrajectory:
    """A live trajectory that has ended, and whose calls may get shadow answers."""

    id: str
    alias_id: str
    ended_at: float


@dataclass(frozen=True, slots=True)
class ShadowGroup:
    """A group that was opened for a call, and the trajectories that wait for shadow answers."""

    id: str
    waiting: Sequence[TrajectoryRef]


def shadow_group_id(call_id: str) -> str:
    """Return the id of the group of a call's shadow answers."""
    return "group_" + blake2b(f"shadow\0{call_id}".encode(), digest_size=16).hexdigest()


async def find_ended_trajectories(
    project: Project, alias_ids: Collection[str], within_s: float, since: float = 0.0
) -> list[EndedTrajectory]:
    """Return the live trajectories of some aliases that completed since a time (unix seconds), by end time.

    Their last call is at most `within_s` old, because an index finds these.
    """
    t = trajectories.c
    query = select(t.id, t.alias_id, t.ended_at).where(
        t.project_id == project.id,
        t.state == TrajectoryState.COMPLETED,
        t.last_call_at >= now() - within_s,
        t.ended_at >= since,
        t.origin == Origin.LIVE,
        t.purpose == Purpose.TRAIN,
        t.selection.is_(None),
        t.forked_from_call.is_(None),
        t.alias_id.in_(alias_ids),
    )
    async with project.store.read() as conn:
        return [EndedTrajectory(*row) for row in await conn.execute(query.order_by(t.ended_at, t.id))]


async def open_shadow(store: Store, call_id: str, further: int) -> ShadowGroup | None:
    """Open a group for a call of an ended trajectory: its fork, and `further` trajectories for shadow answers.

    Returns None if the call has such a group already, was deleted, or belongs to its alias's drift set, which is never
    trained on.
    """
    async with store.write() as conn:
        of_call = select(calls, trajectories.c.made_by).join(trajectories, trajectories.c.id == calls.c.trajectory_id)
        of_call = of_call.where(trajectories.c.drift_set_at.is_(None))
        call = (await conn.execute(of_call.where(calls.c.id == call_id, calls.c.state == CallState.COMPLETE))).first()
        if call is None or not await _opened(conn, call, further + 1):
            return None
        group_id = shadow_group_id(call_id)
        fork = _row(call, group_id, TrajectoryState.COMPLETED) | {
            "end_reason": FORKED,
            "leaf_call_id": call.id,
            "leaf_choice": 0,
            "started_at": call.started_at,
            "ended_at": now(),
        }
        await conn.execute(insert(trajectories).values(**fork))
        waiting = [_row(call, group_id, TrajectoryState.OPEN) for _ in range(further)]
        for row in waiting:
            await conn.execute(insert(trajectories).values(**row))
        refs = [TrajectoryRef(row["id"], group_id, version_id=call.version_id, made_by=call.made_by) for row in waiting]
        return ShadowGroup(group_id, refs)


async def _opened(conn: AsyncConnection, call: Any, size: int) -> bool:
    row = sql.insert_ignore(conn, groups).values(
        id=shadow_group_id(call.id),
        project_id=call.project_id,
        alias_id=call.alias_id,
        declared_size=size,
        state=GroupState.OPEN,
        version_id=call.version_id,
        opened_at=now(),
        joined_at=now(),
        last_call_at=now(),
        made_by=call.made_by,
    )
    return (await conn.execute(row.returning(groups.c.id))).first() is not None


def _row(call: Any, group_id: str, state: TrajectoryState) -> dict[str, Any]:
    return {
        "id": new_id("traj"),
        "project_id": call.project_id,
        "group_id": group_id,
        "alias_id": call.alias_id,
        "state": state,
        "purpose": Purpose.TRAIN,
        "origin": Origin.SHADOW,
        "forked_from_call": call.id,
        "version_id": call.version_id,
        "tags": {},
        "started_at": now(),
        "last_call_at": now(),
        "made_by": call.made_by,
    }


def _of_own() -> Select[Any]:
    """The query for calls of shadow groups for training, joined with their trajectories' own groups."""
    joined = _member.join(calls, calls.c.id == _member.c.forked_from_call)
    joined = joined.join(_home, _home.c.id == calls.c.trajectory_id).join(_own, _own.c.id == _home.c.group_id)
    shadows = (_member.c.origin == Origin.SHADOW, _member.c.purpose == Purpose.TRAIN)
    return select(calls.c.id).select_from(joined).where(*shadows)


def waits_for_members() -> ColumnElement[bool]:
    """A column: whether a group is a shadow group whose trajectory's own group is not trained or excluded yet."""
    # `correlate`: the group is a row of the outer statement
    own = _of_own().where(_member.c.group_id == groups.c.id, _own.c.state.in_(_UNDECIDED))
    return exists(own.correlate(groups))


async def counts_in_own_group(store: Store, group_ids: Collection[str]) -> frozenset[str]:
    """Return the call ids of some shadow groups whose answers the trajectories' own groups train, or may still train.

    Such an answer counts there, as part of a whole trajectory, and not also in the shadow group.
    """
    decided = _own.c.state.not_in((*_UNDECIDED, GroupState.LEFT_OUT))
    query = _of_own().where(_member.c.group_id.in_(group_ids), decided)
    async with store.read() as conn:
        return frozenset((await conn.execute(query.distinct())).scalars())


async def shadow_member_ids(store: Store, trajectory_id: str) -> list[str]:
    """Return the member ids of all shadow groups of a trajectory: they hold its conversation up to a call."""
    async with store.read() as conn:
        own = await conn.execute(select(calls.c.id).where(calls.c.trajectory_id == trajectory_id))
        ids = [shadow_group_id(call_id) for call_id in own.scalars()]
        found: list[str] = []
        for page in (ids[at : at + 200] for at in range(0, len(ids), 200)):
            members = select(trajectories.c.id).where(trajectories.c.group_id.in_(page))
            found += (await conn.execute(members.order_by(trajectories.c.id))).scalars()
    return found

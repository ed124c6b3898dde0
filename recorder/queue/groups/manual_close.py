"""Manual close: end one trajectory, or everything open without a running call, before a timeout.

Owns: which trajectories and groups are closed. Refuses: what closing does (`recorder.queue.groups.closure`), and
trajectories and groups of campaigns, which their runner ends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import ColumnElement, Select, exists, select

from recorder.queue.groups.closure import TrajectoryEnd, close_group, close_trajectories, close_trajectory
from recorder.states import CallState, GroupState, Origin, TrajectoryState
from recorder.store.database import Project, Store
from recorder.store.schema import calls, groups, trajectories

REASON: Final = "closed"
BATCH: Final = 32  # trajectories per transaction: a long transaction would block every proxy


@dataclass(frozen=True, slots=True)
class CloseSummary:
    """The result of closing everything.

    `busy`: the number of trajectories with running calls; they and their groups stay open.
    """

    trajectories: int
    groups_ready: int
    groups_excluded: int
    busy: int


async def end_trajectory(store: Store, trajectory_id: str) -> bool:
    """End a trajectory as its agent would. Returns False if it had ended before."""
    async with store.write() as conn:
        return await close_trajectory(conn, trajectory_id, TrajectoryState.COMPLETED, REASON)


async def close_all(project: Project) -> CloseSummary:
    """End every live trajectory without a running call, and close every group without an open trajectory."""
    runs = 0
    while ids := await _page(project.store, _open_runs(project.id, ~_answering())):
        async with project.store.write() as conn:
            closings = [TrajectoryEnd(id_, TrajectoryState.COMPLETED, REASON) for id_ in ids]
            ended = await close_trajectories(conn, closings)
        runs += len(ended)
        if not ended:  # other processes ended all of them meanwhile
            break
    states = [(await close_group(project, id_)).state for id_ in await _all(project.store, _quiet_groups(project.id))]
    return CloseSummary(
        trajectories=runs,
        groups_ready=states.count(GroupState.READY),
        groups_excluded=states.count(GroupState.LEFT_OUT),
        busy=len(await _all(project.store, _open_runs(project.id, _answering()))),
    )


def _open_runs(project_id: str, *also: ColumnElement[bool]) -> Select[str]:
    t = trajectories.c
    return select(t.id).where(
        t.project_id == project_id, t.state == TrajectoryState.OPEN, t.origin == Origin.LIVE, *also
    )


def _answering() -> ColumnElement[bool]:
    return exists().where(calls.c.trajectory_id == trajectories.c.id, calls.c.state == CallState.OPEN)


def _quiet_groups(project_id: str) -> Select[str]:
    running = exists().where(trajectories.c.group_id == groups.c.id, trajectories.c.state == TrajectoryState.OPEN)
    return select(groups.c.id).where(
        groups.c.project_id == project_id, groups.c.state == GroupState.OPEN, groups.c.campaign_id.is_(None), ~running
    )


async def _page(store: Store, query: Select[str]) -> list[str]:
    return await _all(store, query.limit(BATCH))


async def _all(store: Store, query: Select[str]) -> list[str]:
    async with store.read() as conn:
        return list((await conn.execute(query)).scalars())

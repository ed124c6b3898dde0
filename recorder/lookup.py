"""The recorder's look-ups where its memory does not reach: issued ids, sampled turns, block hashes, trajectories.

Owns: what these rows mean. Runs on an `Executor`. Refuses: deciding (`recorder.lineage`), caching (`recorder.memory`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from recorder import statements as sql
from recorder.lanes import Executor
from recorder.lineage import Match, decide
from recorder.states import Purpose, TrajectoryState
from recorder.tokens import BLOCK, HASH_BYTES
from recorder.turns import Parent, TrajectoryRef


@dataclass(frozen=True, slots=True)
class Known:
    """A trajectory as it stands in the store."""

    ref: TrajectoryRef
    state: TrajectoryState
    project_id: str


def trajectory(ex: Executor, trajectory_id: str) -> Known | None:
    """A trajectory by its id."""
    for row in ex.all(sql.BY_IDS, ids=[trajectory_id]):
        group_pin = row[16] if row[14] is not None or row[15] is not None else None
        ref = TrajectoryRef(row[0], row[11], row[3], row[2] or None, row[10] or group_pin, Purpose(row[6]))
        return Known(ref, TrajectoryState(row[5]), row[1])
    return None


def issued(ex: Executor, project_id: str, ids: Sequence[str]) -> dict[str, tuple[Parent, str]]:
    """For each id that we gave out, once only: the sampled choice that it stands for, and its trajectory."""
    rows = ex.all(sql.ISSUED, project=project_id, ids=list(ids)) if ids else ()
    return {row[0]: (Parent(row[2], row[3]), row[4]) for row in rows if row[1] != sql.AMBIGUOUS_ISSUED}


def sampled(ex: Executor, project_id: str, nodes: Sequence[bytes]) -> dict[bytes, list[Match]]:
    """The sampled choices at each of some nodes."""
    matches: dict[bytes, list[Match]] = {}
    for row in ex.all(sql.SAMPLED_LEAVES, nodes=list(nodes)) if nodes else ():
        if row[7] == project_id:
            match = Match(row[1], row[2], row[3], row[4] == TrajectoryState.OPEN, bool(row[5]), row[6])
            matches.setdefault(bytes(row[0]), []).append(match)
    return matches


def leaf_in(ex: Executor, project_id: str, trajectory_id: str, ends: Sequence[bytes]) -> Parent | None:
    """The sampled choice of a trajectory, or of one that it continues, at the first of `ends` that has one."""
    matches = sampled(ex, project_id, ends)
    home: str | None = trajectory_id if matches else None
    while home is not None:
        for end in ends:
            here = decide(m for m in matches.get(end, ()) if m.trajectory_id == home).match
            if here is not None:
                return Parent(here.call_id, here.choice)
        home = next((row[0] for row in ex.all(sql.CONTINUES, trajectory=home)), None)
    return None


def hashes_of(ex: Executor, parent: Parent) -> bytes:
    """The hashes of all blocks of a sampled choice's prompt and ids; empty where they are not known."""
    calls = ex.all(sql.HASHES_UP, call=parent.call_id)
    if not calls or calls[-1][3]:  # the first call of the chain shares with one that is gone
        return b""
    ended = {(row[0], row[1]): row[2] or b"" for row in ex.all(sql.CHOICE_HASHES, ids=[row[0] for row in calls])}
    hashes, above = b"", b""
    for _, parent_id, parent_choice, shared, own in reversed(calls):
        if own is None:
            return b""
        if shared:
            above = hashes + ended.get((parent_id, parent_choice), b"")
        hashes = above[: (shared or 0) // BLOCK * HASH_BYTES] + own
    return hashes + ended.get((parent.call_id, parent.choice), b"")

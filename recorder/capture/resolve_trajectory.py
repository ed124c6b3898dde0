"""Find or create the trajectory of a call: at its address, as a continuation of a sealed one, or new in its group.

Owns: finding, continuations, pinned versions, ownership, and the rows of trajectories; in batches, inside the caller's
writing transaction. Refuses: attribution, and which group a trajectory joins (`recorder.capture.group_assignment`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from recorder.capture import statements as sql
from recorder.capture.group_assignment import GroupCandidate, assign_groups, group_key
from recorder.capture.lookups.statements import AT_ADDRESSES, BY_IDS
from recorder.capture.trajectories import (
    ExistingTrajectory,
    NewTrajectory,
    PlaceKey,
    RequestedTrajectory,
    group_by_project,
    trajectory_key,
)
from recorder.ids import new_id
from recorder.messages.calls import TrajectoryRef
from recorder.states import Purpose, TrajectoryState
from recorder.store.write_backends import Executor


def resolve_trajectories(
    ex: Executor, at: float, places: Sequence[RequestedTrajectory], group_size: int
) -> list[TrajectoryRef]:
    """Return the open trajectory of each request, in order, found or created. `at`: the database's time.

    `group_size` as in `assign_groups`. A trajectory of another key is returned unchanged: see its `made_by`.
    """
    if not places:
        return []
    found = _newest_at(ex, [p for p in places if p.external_id is not None])
    refs: dict[PlaceKey, TrajectoryRef] = {}
    newcomers: list[NewTrajectory] = []
    pins: list[tuple[ExistingTrajectory, RequestedTrajectory]] = []
    for key, wanted in _first_of_each(places, found).items():
        row = found.get(key)
        if row is not None and not wanted.access.may_name(row.made_by):
            refs[key] = _ref_of(row, wanted, None)
        elif row is None or row.state != TrajectoryState.OPEN:
            newcomers.append(_newcomer(wanted, row))
        else:
            pins.append((row, wanted))
    adopted = _adopt(ex, at, pins, group_size)
    _pin(ex, pins)
    for row, wanted in pins:
        refs[trajectory_key(wanted)] = _ref_of(row, wanted, adopted.get(row.id))
    newcomers.reverse()
    for newcomer, ref in zip(newcomers, _make(ex, at, newcomers, group_size), strict=True):
        refs[trajectory_key(newcomer.place)] = ref
    return [refs[trajectory_key(p)] for p in places]


def _first_of_each(
    places: Sequence[RequestedTrajectory], found: Mapping[PlaceKey, ExistingTrajectory]
) -> dict[PlaceKey, RequestedTrajectory]:
    """Return the request that counts at each address: the first one for it, if that may continue there."""
    first: dict[PlaceKey, RequestedTrajectory] = {}
    for wanted in reversed(places):
        key = trajectory_key(wanted)
        row = found.get(key)
        if key not in first or row is None or wanted.access.may_name(row.made_by):
            first[key] = wanted
    return first


def continue_sealed(
    ex: Executor,
    at: float,
    sealed: Sequence[str],
    asked: Callable[[str], RequestedTrajectory],
    version_of: Callable[[str], Any],
    group_size: int,
) -> dict[str, TrajectoryRef]:
    """Return where calls of sealed trajectories continue: the open continuation at the same address, or a new one.

    `asked` are the requested trajectories. An id without a row (its creation never committed) is created from them,
    without its address if a trajectory of another key has that address now. `version_of`: the version of the call.
    """
    rows = {row.id: row for row in map(ExistingTrajectory._make, ex.all(BY_IDS, ids=list(sealed)))}
    wanted = {id_: _after(rows[id_], asked(id_), version_of(id_)) if id_ in rows else asked(id_) for id_ in sealed}
    addressed = {id_: p for id_, p in wanted.items() if p.external_id is not None or id_ not in rows}
    placed = zip(addressed.items(), resolve_trajectories(ex, at, list(addressed.values()), group_size), strict=True)
    refs = {id_: ref for (id_, p), ref in placed if p.access.may_name(ref.made_by)}
    rest = {
        id_: replace(p, external_id=None) if id_ in addressed else p for id_, p in wanted.items() if id_ not in refs
    }
    made = _make(ex, at, [_newcomer(p, rows.get(id_)) for id_, p in rest.items()], group_size)
    return refs | dict(zip(rest, made, strict=True))


def _newest_at(ex: Executor, places: Sequence[RequestedTrajectory]) -> dict[PlaceKey, ExistingTrajectory]:
    """Return the newest trajectory at each address, by sequence."""
    newest: dict[PlaceKey, ExistingTrajectory] = {}
    for project_id, of_project in group_by_project(places):
        group_parts, ids = {p.address_group for p in of_project}, {p.external_id for p in of_project}
        rows = ex.all(AT_ADDRESSES, project=project_id, groups=sorted(group_parts), ids=sorted(map(str, ids)))
        for row in sorted(map(ExistingTrajectory._make, rows), key=lambda r: r.sequence):
            newest[row.project_id, row.address_group, row.external_id] = row
    return newest


def _newcomer(wanted: RequestedTrajectory, sealed: ExistingTrajectory | None) -> NewTrajectory:
    if sealed is None:
        return NewTrajectory(wanted, 0, None)
    # a continuation, and the group that it joins, keep the owner of the continued trajectory
    groups_of = (wanted.groups_of and sealed.made_by) or wanted.groups_of
    more = replace(
        wanted, continues=sealed.id, made_by=sealed.made_by, groups_of=groups_of, engine_url=sealed.engine_url
    )
    return NewTrajectory(more, sealed.sequence + 1, sealed)


def _after(row: ExistingTrajectory, asked: RequestedTrajectory, version_id: str | None) -> RequestedTrajectory:
    return RequestedTrajectory(
        trajectory_id=new_id("traj"),
        project_id=row.project_id,
        alias_id=row.alias_id,
        address_group=row.address_group,
        external_id=row.external_id,
        implicit_key=row.group_implicit_key,
        group_size=None,
        purpose=row.purpose if asked.purpose == Purpose.TRAIN else asked.purpose,  # `train` is also what nobody stated
        origin=row.origin,
        tags=row.tags,
        offered_version=version_id,
        started_at=0.0,
        own_version=version_id,
        continues=row.id,
        session=row.session,
        access=asked.access,
        made_by=row.made_by,
        groups_of=asked.groups_of,
        engine_url=row.engine_url,
    )


# --- pins


def _pinned(row: ExistingTrajectory, wanted: RequestedTrajectory) -> str | None:
    group_pin = row.group_version_id if row.declared else None
    return row.version_id or wanted.own_version or group_pin or wanted.offered_version


def _ref_of(row: ExistingTrajectory, wanted: RequestedTrajectory, adopted: GroupCandidate | None) -> TrajectoryRef:
    return TrajectoryRef(
        row.id,
        adopted.id if adopted is not None else row.group_id,
        row.external_id,
        row.address_group or None,
        _pinned(row, wanted),
        Purpose(row.purpose),
        row.session,
        row.made_by,
        row.engine_url,
    )


def _pin(ex: Executor, found: Sequence[tuple[ExistingTrajectory, RequestedTrajectory]]) -> None:
    """Pin trajectories that existed before their first call (attempts of campaigns), and their groups, by that call."""
    if not found:
        return
    loose = [(row, wanted) for row, wanted in found if row.version_id is None or row.alias_id is None]
    pins = [(row, wanted, _pinned(row, wanted)) for row, wanted in loose]
    offered = {
        row.group_id: row.version_id or wanted.offered_version
        for row, wanted, _ in pins
        if row.declared and row.group_version_id is None
    }
    ex.many(sql.PIN_GROUPS, [(version, group) for group, version in offered.items() if version is not None])
    ex.many(sql.PIN_TRAJECTORIES, [(version, wanted.alias_id, row.id) for row, wanted, version in pins])


def _adopt(
    ex: Executor, at: float, found: Sequence[tuple[ExistingTrajectory, RequestedTrajectory]], group_size: int
) -> dict[str, GroupCandidate]:
    """Assign groups to trajectories that a tool call opened, at their first model call; return them by trajectory.

    An explicit group has its row already and gets its alias; an implicit one is joined now.
    """
    if not found:
        return {}
    bare = [(row, wanted) for row, wanted in found if row.alias_id is None and wanted.alias_id is not None]
    ex.many(sql.NAME_GROUPS, [(wanted.alias_id, row.group_id) for row, wanted in bare if row.group_id is not None])
    alone = [(row, wanted) for row, wanted in bare if row.group_id is None and group_key(wanted) is not None]
    if not alone:
        return {}
    joined = assign_groups(ex, at, [NewTrajectory(wanted, row.sequence, None) for row, wanted in alone], group_size)
    adopted = {row.id: group for (row, _), (group, _) in zip(alone, joined, strict=True) if group is not None}
    ex.many(sql.ADOPT_TRAJECTORIES, [(group.id, id_) for id_, group in adopted.items()])
    return adopted


# --- rows


def _make(ex: Executor, at: float, newcomers: Sequence[NewTrajectory], group_size: int) -> list[TrajectoryRef]:
    """Write the rows of new trajectories, and of the groups that they open."""
    if not newcomers:
        return []
    entered = assign_groups(ex, at, newcomers, group_size)
    rows = [_row(n, group, version, at) for n, (group, version) in zip(newcomers, entered, strict=True)]
    ex.many(sql.INSERT_TRAJECTORIES, rows)
    return [_new_ref(n.place, group, version) for n, (group, version) in zip(newcomers, entered, strict=True)]


def _row(newcomer: NewTrajectory, group: GroupCandidate | None, version_id: str | None, at: float) -> tuple[Any, ...]:
    wanted = newcomer.place
    return (
        wanted.trajectory_id,
        wanted.project_id,
        group.id if group else None,
        wanted.alias_id,
        wanted.address_group,
        wanted.external_id,
        newcomer.sequence,
        TrajectoryState.OPEN.value,
        None,  # end_reason
        wanted.purpose,
        wanted.origin,
        wanted.continues,
        None,  # forked_from_call
        None,  # leaf_call_id
        None,  # leaf_choice
        None,  # selection
        version_id,
        False,  # mixed
        0,  # call_count
        wanted.tags,
        wanted.started_at or at,
        at,  # last_call_at
        None,  # ended_at
        wanted.session,
        wanted.made_by,
        None,  # drift_set_at
        wanted.engine_url,
    )


def _new_ref(wanted: RequestedTrajectory, group: GroupCandidate | None, version_id: str | None) -> TrajectoryRef:
    return TrajectoryRef(
        wanted.trajectory_id,
        group.id if group else None,
        wanted.external_id,
        wanted.address_group or None,
        version_id,
        Purpose(wanted.purpose),
        wanted.session,
        wanted.made_by,
        wanted.engine_url,
    )

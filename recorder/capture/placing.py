"""Where a call's trajectory stands: found at its address, continued where it is sealed, or made new in its group.

Owns: joining groups (explicit, implicit, successors), pins of declared groups, continuations; all batched, inside the
caller's writing transaction. Refuses: attribution, and when a group is ready (`recorder.groups.closing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import groupby
from typing import Any, NamedTuple

from recorder.capture import statements as sql
from recorder.content.turns import TrajectoryRef
from recorder.ids import new_id
from recorder.lineage.statements import AT_ADDRESSES, BY_IDS
from recorder.states import GroupState, Purpose, TrajectoryState
from recorder.store.lanes import Executor


@dataclass(frozen=True, slots=True)
class Place:
    """A trajectory that a call asks for. `trajectory_id` is the id of its row if one has to be made."""

    trajectory_id: str
    project_id: str
    alias_id: str | None
    address_group: str  # the group part of the address, or ""
    external_id: str | None
    implicit_key: str | None  # None: its group is the explicit one, or it has none
    group_size: int | None
    purpose: str
    origin: str
    tags: str  # JSON
    offered_version: str | None
    started_at: float
    continues: str | None = None
    session: str | None = None


class _Row(NamedTuple):
    """A trajectory with its group, as `AT_ADDRESSES` selects it."""

    id: str
    project_id: str
    address_group: str
    external_id: str | None
    sequence: int
    state: str
    purpose: str
    origin: str
    tags: str
    alias_id: str | None
    version_id: str | None
    group_id: str | None
    group_external_id: str | None
    group_implicit_key: str | None
    group_size: int | None
    group_campaign_id: str | None
    group_version_id: str | None
    session: str | None

    @property
    def declared(self) -> bool:
        return self.group_size is not None or self.group_campaign_id is not None


@dataclass(slots=True)
class _Group:
    id: str
    external_id: str | None
    implicit_key: str | None
    sequence: int
    state: str
    declared_size: int | None
    campaign_id: str | None
    version_id: str | None
    members: int = 0
    new: bool = False

    @property
    def declared(self) -> bool:
        return self.declared_size is not None or self.campaign_id is not None


@dataclass(frozen=True, slots=True)
class _Newcomer:
    """A trajectory whose row has to be made."""

    place: Place
    sequence: int
    after: _Row | None  # the sealed one that it continues


_Address = tuple[str, str, str | None]
_GroupKey = tuple[str, str, str]  # project, "explicit" or "implicit", key


def place(ex: Executor, at: float, places: Sequence[Place]) -> list[TrajectoryRef]:
    """The trajectory of each place, in order: found open, or made. `at` is the database's clock."""
    if not places:
        return []
    found = _newest_at(ex, [p for p in places if p.external_id is not None])
    refs: dict[_Address | str, TrajectoryRef] = {}
    newcomers: list[_Newcomer] = []
    pins: list[tuple[_Row, Place]] = []
    for key, wanted in {_address(p): p for p in reversed(places)}.items():  # the first that names an address counts
        row = found.get(key)
        if row is None or row.state != TrajectoryState.OPEN:
            newcomers.append(_newcomer(wanted, row))
        else:
            pins.append((row, wanted))
    adopted = _adopt(ex, at, pins)
    _pin(ex, pins)
    for row, wanted in pins:
        refs[_address(wanted)] = _ref_of(row, wanted, adopted.get(row.id))
    newcomers.reverse()
    for newcomer, ref in zip(newcomers, _make(ex, at, newcomers), strict=True):
        refs[_address(newcomer.place)] = ref
    return [refs[_address(p)] for p in places]


def continue_sealed(
    ex: Executor, at: float, sealed: Sequence[str], unknown: Callable[[str], Place], version_of: Callable[[str], Any]
) -> dict[str, TrajectoryRef]:
    """Where calls of sealed trajectories go on: the open continuation at the same address, or a new one.

    An id without a row (its creation never committed) is made from `unknown`; `version_of` gives the version that a
    sealed trajectory's next call ran on.
    """
    rows = {row.id: row for row in map(_Row._make, ex.all(BY_IDS, ids=list(sealed)))}
    wanted = {id_: _after(rows[id_], version_of(id_)) if id_ in rows else unknown(id_) for id_ in sealed}
    addressed = {id_: p for id_, p in wanted.items() if p.external_id is not None or id_ not in rows}
    refs = dict(zip(addressed, place(ex, at, list(addressed.values())), strict=True))
    rest = [id_ for id_ in wanted if id_ not in refs]
    made = _make(ex, at, [_newcomer(wanted[id_], rows[id_]) for id_ in rest])
    return refs | dict(zip(rest, made, strict=True))


def _address(wanted: Place) -> _Address | str:
    if wanted.external_id is None:
        return wanted.trajectory_id
    return wanted.project_id, wanted.address_group, wanted.external_id


def _newest_at(ex: Executor, places: Sequence[Place]) -> dict[_Address | str, _Row]:
    """The newest trajectory at each address, by sequence."""
    newest: dict[_Address | str, _Row] = {}
    for project_id, of_project in _by_project(places):
        group_parts, ids = {p.address_group for p in of_project}, {p.external_id for p in of_project}
        rows = ex.all(AT_ADDRESSES, project=project_id, groups=sorted(group_parts), ids=sorted(map(str, ids)))
        for row in sorted(map(_Row._make, rows), key=lambda r: r.sequence):
            newest[row.project_id, row.address_group, row.external_id] = row
    return newest


def _by_project(places: Iterable[Place]) -> Iterable[tuple[str, list[Place]]]:
    ordered = sorted(places, key=lambda p: p.project_id)
    return [(project_id, list(of)) for project_id, of in groupby(ordered, key=lambda p: p.project_id)]


def _newcomer(wanted: Place, sealed: _Row | None) -> _Newcomer:
    if sealed is None:
        return _Newcomer(wanted, 0, None)
    return _Newcomer(replace(wanted, continues=sealed.id), sealed.sequence + 1, sealed)


def _after(row: _Row, version_id: str | None) -> Place:
    return Place(
        trajectory_id=new_id("traj"),
        project_id=row.project_id,
        alias_id=row.alias_id,
        address_group=row.address_group,
        external_id=row.external_id,
        implicit_key=row.group_implicit_key,
        group_size=None,
        purpose=row.purpose,
        origin=row.origin,
        tags=row.tags,
        offered_version=version_id,
        started_at=0.0,
        continues=row.id,
        session=row.session,
    )


# --- pins


def _pinned(row: _Row, offered: str | None) -> str | None:
    group_pin = row.group_version_id if row.declared else None
    return row.version_id or group_pin or offered


def _ref_of(row: _Row, wanted: Place, adopted: _Group | None) -> TrajectoryRef:
    return TrajectoryRef(
        row.id,
        adopted.id if adopted is not None else row.group_id,
        row.external_id,
        row.address_group or None,
        _pinned(row, wanted.offered_version),
        Purpose(row.purpose),
        row.session,
    )


def _pin(ex: Executor, found: Sequence[tuple[_Row, Place]]) -> None:
    """The first call of a trajectory that was made beforehand (an attempt of a campaign) pins it."""
    loose = [(row, wanted) for row, wanted in found if row.version_id is None or row.alias_id is None]
    pins = [(row, wanted, _pinned(row, wanted.offered_version)) for row, wanted in loose]
    declared = {row.group_id: version for row, _, version in pins if row.declared and row.group_version_id is None}
    ex.many(sql.PIN_GROUPS, [(version, group) for group, version in declared.items() if version is not None])
    ex.many(sql.PIN_TRAJECTORIES, [(version, wanted.alias_id, row.id) for row, wanted, version in pins])


def _adopt(ex: Executor, at: float, found: Sequence[tuple[_Row, Place]]) -> dict[str, _Group]:
    """The groups of trajectories that a tool call has opened: what a group is made of comes with the first model call.

    An explicit group has its row already and learns its alias; an implicit one is joined now. By trajectory.
    """
    bare = [(row, wanted) for row, wanted in found if row.alias_id is None and wanted.alias_id is not None]
    ex.many(sql.NAME_GROUPS, [(wanted.alias_id, row.group_id) for row, wanted in bare if row.group_id is not None])
    alone = [(row, wanted) for row, wanted in bare if row.group_id is None and _group_key(wanted) is not None]
    if not alone:
        return {}
    joined = _enter(ex, at, [_Newcomer(wanted, row.sequence, None) for row, wanted in alone])
    adopted = {row.id: group for (row, _), (group, _) in zip(alone, joined, strict=True) if group is not None}
    ex.many(sql.ADOPT_TRAJECTORIES, [(group.id, id_) for id_, group in adopted.items()])
    return adopted


# --- groups


def _make(ex: Executor, at: float, newcomers: Sequence[_Newcomer]) -> list[TrajectoryRef]:
    """Write the rows of new trajectories, and of the groups that they open."""
    if not newcomers:
        return []
    entered = _enter(ex, at, newcomers)
    rows = [_row(n, group, version, at) for n, (group, version) in zip(newcomers, entered, strict=True)]
    ex.many(sql.INSERT_TRAJECTORIES, rows)
    return [_new_ref(n.place, group, version) for n, (group, version) in zip(newcomers, entered, strict=True)]


def _enter(ex: Executor, at: float, newcomers: Sequence[_Newcomer]) -> list[tuple[_Group | None, str | None]]:
    """The group that each becomes a member of, written, and the version that it is pinned to."""
    groups = _latest_groups(ex, newcomers)
    joined = [_join(groups, n) for n in newcomers]
    versions = [_pin_of(group, n.place) for n, group in zip(newcomers, joined, strict=True)]
    used = {id(g): (g, n.place) for n, g in zip(newcomers, joined, strict=True) if g is not None}
    ex.many(sql.INSERT_GROUPS, [_group_row(g, p, at) for g, p in used.values() if g.new])
    ex.many(sql.JOIN_GROUPS, [_join_row(g, p, at) for g, p in used.values() if not g.new])
    return list(zip(joined, versions, strict=True))


def _group_key(wanted: Place) -> _GroupKey | None:
    if wanted.address_group:
        return wanted.project_id, "explicit", wanted.address_group
    if wanted.implicit_key is not None and wanted.purpose != Purpose.NONE:
        return wanted.project_id, "implicit", wanted.implicit_key
    return None


def _latest_groups(ex: Executor, newcomers: Sequence[_Newcomer]) -> dict[_GroupKey, _Group]:
    latest: dict[_GroupKey, _Group] = {}
    for project_id, places in _by_project(n.place for n in newcomers):
        keys = {key for p in places if (key := _group_key(p)) is not None}
        explicit = sorted(key for _, kind, key in keys if kind == "explicit")
        implicit = sorted(key for _, kind, key in keys if kind == "implicit")
        if explicit:
            for row in sorted(ex.all(sql.EXPLICIT_GROUPS, project=project_id, keys=explicit), key=lambda r: r[3]):
                latest[project_id, "explicit", row[1]] = _Group(*row)
        if implicit:
            latest |= _implicit_groups(ex, project_id, implicit)
    sized = {g.id: g for g in latest.values() if g.declared_size is not None}
    for group_id, members in ex.all(sql.MEMBER_COUNTS, ids=sorted(sized)) if sized else ():
        sized[group_id].members = members
    return latest


def _implicit_groups(ex: Executor, project_id: str, keys: Sequence[str]) -> dict[_GroupKey, _Group]:
    rows = sorted(ex.all(sql.IMPLICIT_GROUPS, project=project_id, keys=keys), key=lambda r: r[3])
    found = {(project_id, "implicit", row[2]): _Group(*row) for row in rows}
    closed = [key for key in keys if (project_id, "implicit", key) not in found]
    for key, sequence in ex.all(sql.IMPLICIT_SEQUENCES, project=project_id, keys=closed) if closed else ():
        closed_group = _Group("", None, key, sequence, GroupState.LEFT_OUT, None, None, None)
        found[project_id, "implicit", key] = closed_group
    return found


def _join(groups: dict[_GroupKey, _Group], newcomer: _Newcomer) -> _Group | None:
    """The group that a new trajectory becomes a member of: the latest under its key, or that one's successor."""
    wanted = newcomer.place
    key = _group_key(wanted)
    if key is None:
        return None
    group = groups.get(key)
    if group is None or not _admits(group, newcomer.after):
        group = groups[key] = _opened(key, wanted, 0 if group is None else group.sequence + 1)
    if group.declared_size is None:
        group.declared_size = wanted.group_size
    group.members += 1
    return group


def _admits(group: _Group, after: _Row | None) -> bool:
    if group.state != GroupState.OPEN:
        return False
    if group.declared_size is not None and group.members >= group.declared_size:
        return False
    # what comes after an attempt's end is no further attempt of the group that was declared
    return after is None or after.group_id != group.id or not group.declared


def _opened(key: _GroupKey, wanted: Place, sequence: int) -> _Group:
    project_id, kind, name = key
    state, size = GroupState.OPEN, wanted.group_size
    if kind == "explicit":
        return _Group(new_id("group"), name, None, sequence, state, size, None, None, new=True)
    # A made-up id: on PostgreSQL two proxies that open the same implicit group meet at its primary key.
    made = blake2b(f"{project_id}\0{name}\0{sequence}".encode(), digest_size=16).hexdigest()
    return _Group("group_" + made, None, name, sequence, state, size, None, None, new=True)


def _pin_of(group: _Group | None, wanted: Place) -> str | None:
    if group is None or not group.declared:
        return wanted.offered_version
    if group.version_id is None:
        group.version_id = wanted.offered_version
    return group.version_id


def _join_row(group: _Group, wanted: Place, at: float) -> tuple[Any, ...]:
    version = group.version_id if group.declared else None
    return at, at, group.declared_size, version, wanted.alias_id, group.id


def _group_row(group: _Group, wanted: Place, at: float) -> tuple[Any, ...]:
    return (
        group.id,
        wanted.project_id,
        wanted.alias_id,
        group.external_id,
        group.implicit_key,
        group.sequence,
        group.declared_size,
        GroupState.OPEN.value,
        None,  # reason
        group.version_id,
        None,  # current_score_id
        None,  # campaign_id
        None,  # scenario_id
        at,  # opened_at
        at,  # joined_at
        at,  # last_call_at
        None,  # ready_at
        0,  # tries
        None,  # try_after
        None,  # lease_owner
        0,  # lease_epoch
        None,  # lease_expires_at
    )


def _row(newcomer: _Newcomer, group: _Group | None, version_id: str | None, at: float) -> tuple[Any, ...]:
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
    )


def _new_ref(wanted: Place, group: _Group | None, version_id: str | None) -> TrajectoryRef:
    return TrajectoryRef(
        wanted.trajectory_id,
        group.id if group else None,
        wanted.external_id,
        wanted.address_group or None,
        version_id,
        Purpose(wanted.purpose),
        wanted.session,
    )

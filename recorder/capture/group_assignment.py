"""Assign new trajectories to groups: the latest group under a key, or that group's successor.

Owns: explicit and implicit groups, their owners, the pinned version of a declared group, and the rows of groups; in
batches, inside the caller's writing transaction. Refuses: the rows of trajectories
(`recorder.capture.resolve_trajectory`), and when a group is ready (`recorder.queue.groups.closure`).

A group that a caller names belongs to the caller's key or to none. Several keys may have groups of the same name; these
share one sequence of numbers. Implicit groups belong to the project.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import orjson

from recorder.capture import statements as sql
from recorder.capture.trajectories import ExistingTrajectory, NewTrajectory, RequestedTrajectory, group_by_project
from recorder.ids import new_id
from recorder.states import GroupState, Purpose
from recorder.store.write_backends import Executor

_STATES: Final = orjson.dumps([state.value for state in GroupState]).decode()
_GroupKey = tuple[str, str, str, str]  # project, "explicit" or "implicit", key, owner


@dataclass(slots=True)
class GroupCandidate:
    """A group that new trajectories join: its stored facts, with the members that this batch adds."""

    id: str
    external_id: str | None
    implicit_key: str | None
    sequence: int
    state: str
    declared_size: int | None
    campaign_id: str | None
    version_id: str | None
    made_by: str
    members: int = 0
    new: bool = False

    @property
    def declared(self) -> bool:
        """Whether the number of members was declared, or a campaign made the group."""
        return self.declared_size is not None or self.campaign_id is not None


@dataclass(frozen=True, slots=True)
class _KeyedGroups:
    """The current group of each key, and the highest sequence number of each name over all owners."""

    latest: dict[_GroupKey, GroupCandidate] = field(default_factory=dict)
    counted: dict[tuple[str, str, str], int] = field(default_factory=dict)

    def note(self, key: _GroupKey, group: GroupCandidate) -> None:
        """Make this group the current group of a key."""
        self.latest[key] = group
        self.counted[key[:3]] = group.sequence


def assign_groups(
    ex: Executor, at: float, newcomers: Sequence[NewTrajectory], group_size: int
) -> list[tuple[GroupCandidate | None, str | None]]:
    """Write the group of each new trajectory; return each trajectory's group and pinned version.

    `group_size`: the maximum size of a group whose size was not declared.
    """
    known = _latest_groups(ex, newcomers)
    _count_implicit(ex, known, newcomers, group_size)
    joined = [_join(known, n, group_size) for n in newcomers]
    versions = [_pin_of(group, n.place) for n, group in zip(newcomers, joined, strict=True)]
    used = {id(g): (g, n.place) for n, g in zip(newcomers, joined, strict=True) if g is not None}
    if opened := [_group_row(g, p, at) for g, p in used.values() if g.new]:
        ex.many(sql.INSERT_GROUPS, opened)
    if entered := [_join_row(g, p, at) for g, p in used.values() if not g.new]:
        ex.many(sql.JOIN_GROUPS, entered)
    return list(zip(joined, versions, strict=True))


def group_key(wanted: RequestedTrajectory) -> _GroupKey | None:
    """Return the key of the group that a trajectory joins, or None if it joins none."""
    if wanted.address_group:
        return wanted.project_id, "explicit", wanted.address_group, wanted.groups_of
    implicit = (wanted.continues and wanted.continued_key) or wanted.implicit_key
    if implicit is not None and wanted.purpose != Purpose.NONE:
        return wanted.project_id, "implicit", implicit, ""
    return None


def _latest_groups(ex: Executor, newcomers: Sequence[NewTrajectory]) -> _KeyedGroups:
    known = _KeyedGroups()
    for project_id, places in group_by_project(n.place for n in newcomers):
        keys = {key for p in places if (key := group_key(p)) is not None}
        if explicit := sorted(key for key in keys if key[1] == "explicit"):
            _note_explicit(ex, known, project_id, explicit)
        if implicit := sorted(key[2] for key in keys if key[1] == "implicit"):
            _note_implicit(ex, known, project_id, implicit)
    found = {g.id: g for g in known.latest.values()}
    for group_id, members in ex.all(sql.MEMBER_COUNTS, ids=sorted(found)) if found else ():
        found[group_id].members = members
    return known


def _note_explicit(ex: Executor, known: _KeyedGroups, project_id: str, keys: Sequence[_GroupKey]) -> None:
    names = _json_list(sorted({key[2] for key in keys}))
    newest = {row[1]: GroupCandidate(*row) for row in ex.all(sql.NEWEST_EXPLICIT, project=project_id, keys=names)}
    shared: dict[str, GroupCandidate] = {}  # by id: keys that join one group count its members together
    for key in keys:
        if (group := newest.get(key[2])) is None:
            continue
        known.counted[key[:3]] = group.sequence
        if key[3] and group.made_by not in ("", key[3]):
            own = ex.all(sql.NEWEST_OF_OWNER, project=project_id, name=key[2], owner=key[3])
            if not own:
                continue
            group = shared.setdefault(own[0][0], GroupCandidate(*own[0]))
        known.latest[key] = group


def _note_implicit(ex: Executor, known: _KeyedGroups, project_id: str, keys: Sequence[str]) -> None:
    for row in ex.all(sql.NEWEST_OPEN_IMPLICIT, project=project_id, keys=_json_list(keys)):
        known.note((project_id, "implicit", row[2], ""), GroupCandidate(*row))


def _json_list(texts: Sequence[str]) -> str:
    return orjson.dumps(texts).decode()


def _count_implicit(ex: Executor, known: _KeyedGroups, newcomers: Sequence[NewTrajectory], group_size: int) -> None:
    """Read the highest sequence number of each implicit key for which this batch opens a group.

    The latest open group may not be the last: later groups may have closed while one of its members still runs.
    """
    wanted = Counter(key for n in newcomers if (key := group_key(n.place)) is not None and key[1] == "implicit")
    full: defaultdict[str, list[str]] = defaultdict(list)
    for key, count in wanted.items():
        group = known.latest.get(key)
        if group is None or group.declared or group.members + count > group_size:
            full[key[0]].append(key[2])
    for project_id, keys in full.items():
        for name, last in ex.all(sql.LAST_SEQUENCES, project=project_id, keys=_json_list(sorted(keys)), states=_STATES):
            known.counted[project_id, "implicit", name] = -1 if last is None else last


def _join(known: _KeyedGroups, newcomer: NewTrajectory, group_size: int) -> GroupCandidate | None:
    """Return the group that a new trajectory joins: the latest under its key, or its successor."""
    wanted = newcomer.place
    key = group_key(wanted)
    if key is None:
        return None
    group = known.latest.get(key)
    if group is None or not _admits(group, newcomer.after, group_size):
        group = _opened(key, wanted, known.counted.get(key[:3], -1) + 1)
        known.note(key, group)
    if group.declared_size is None:
        group.declared_size = wanted.group_size
    group.members += 1
    return group


def _admits(group: GroupCandidate, after: ExistingTrajectory | None, group_size: int) -> bool:
    if group.state != GroupState.OPEN:
        return False
    if group.members >= (group_size if group.declared_size is None else group.declared_size):
        return False
    # a continuation of an ended attempt is not another attempt in a declared group
    return after is None or after.group_id != group.id or not group.declared


def _opened(key: _GroupKey, wanted: RequestedTrajectory, sequence: int) -> GroupCandidate:
    project_id, kind, name, access = key
    state, size = GroupState.OPEN, wanted.group_size
    if kind == "explicit":
        return GroupCandidate(new_id("group"), name, None, sequence, state, size, None, None, access, new=True)
    # A derived id: on PostgreSQL two proxies that open the same implicit group conflict at its primary key.
    made = blake2b(f"{project_id}\0{name}\0{sequence}".encode(), digest_size=16).hexdigest()
    return GroupCandidate("group_" + made, None, name, sequence, state, size, None, None, access, new=True)


def _pin_of(group: GroupCandidate | None, wanted: RequestedTrajectory) -> str | None:
    if group is None or not group.declared:
        return wanted.own_version or wanted.offered_version
    if group.version_id is None:
        group.version_id = wanted.offered_version
    return wanted.own_version or group.version_id


def _join_row(group: GroupCandidate, wanted: RequestedTrajectory, at: float) -> tuple[Any, ...]:
    version = group.version_id if group.declared else None
    return at, at, group.declared_size, version, wanted.alias_id, group.id


def _group_row(group: GroupCandidate, wanted: RequestedTrajectory, at: float) -> tuple[Any, ...]:
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
        group.made_by,
    )

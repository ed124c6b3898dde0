"""Values for trajectories at the recorder's boundary: requested by a call, existing, or to be created. Pure.

Owns: these three, when two addresses are the same, and who may continue at an address. Refuses: finding and creating
(`recorder.capture.resolve_trajectory`), groups (`recorder.capture.group_assignment`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from recorder.errors import NotOwner
from recorder.messages.calls import ANYBODY, Address, KeyAccess, TrajectoryRef

PlaceKey = tuple[str, str, str | None] | str  # an address, or the id of the row to make


@dataclass(frozen=True, slots=True)
class RequestedTrajectory:
    """A trajectory that a call requests. `trajectory_id`: the id of its row if one must be created.

    `offered_version` becomes the pin of its group, if that is declared and has none, and its own pin without such a
    group. `own_version` is its pin whatever the group's is: the call names that version, or ran on it already.
    """

    trajectory_id: str
    project_id: str
    alias_id: str | None
    address_group: str  # the group part of the address, or ""
    external_id: str | None
    implicit_key: str | None  # None: its group is explicit, or it has none
    group_size: int | None
    purpose: str
    origin: str
    tags: str  # JSON
    offered_version: str | None
    started_at: float
    own_version: str | None = None
    continues: str | None = None
    continued_key: str | None = None  # replaces `implicit_key` if it continues another
    session: str | None = None
    access: KeyAccess = ANYBODY  # the caller's
    made_by: str = ""  # its owner
    groups_of: str = ""  # owner of the group that it joins; "": the project's, for all keys
    engine_url: str | None = None  # the engine of its first call, or of the trajectory that it continues


class ExistingTrajectory(NamedTuple):
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
    made_by: str
    engine_url: str | None

    @property
    def declared(self) -> bool:
        """Whether the number of its group's members was declared, or a campaign made the group."""
        return self.group_size is not None or self.group_campaign_id is not None


@dataclass(frozen=True, slots=True)
class NewTrajectory:
    """A trajectory whose row has to be created."""

    place: RequestedTrajectory
    sequence: int
    after: ExistingTrajectory | None  # the sealed one that it continues


def require_owner(ref: TrajectoryRef, address: Address) -> TrajectoryRef:
    """Return the trajectory at an address that a caller named. Raises NotOwner if it belongs to another key."""
    if not address.access.may_name(ref.made_by):
        named = f"{ref.group_external_id}/{ref.external_id}" if ref.group_external_id else ref.external_id
        raise NotOwner(
            f"the trajectory {named} belongs to another key: name one of your own, or use a key created for this one."
        )
    return ref


def trajectory_key(wanted: RequestedTrajectory) -> PlaceKey:
    """Return the key that requests for one trajectory share: the address, or the id of the row to create."""
    if wanted.external_id is None:
        return wanted.trajectory_id
    return wanted.project_id, wanted.address_group, wanted.external_id


def group_by_project(places: Iterable[RequestedTrajectory]) -> Iterable[tuple[str, list[RequestedTrajectory]]]:
    """Group requested trajectories by project, because a statement reads one project."""
    ordered = list(places)
    if len(ordered) == 1:
        return [(ordered[0].project_id, ordered)]
    ordered.sort(key=lambda p: p.project_id)
    return [(project_id, list(of)) for project_id, of in groupby(ordered, key=lambda p: p.project_id)]

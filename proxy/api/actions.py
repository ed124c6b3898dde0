"""Actions on Hone itself, shared by HTTP, MCP, the pages and the command line.

Owns: which trajectories a caller may change, feedback, promotions, canaries and rollbacks. Refuses: request and answer
formats, and authentication (`proxy.admission.auth`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from proxy.admission.address import NamedTrajectory
from proxy.admission.auth import Caller
from proxy.errors import BadRequest, Forbidden
from proxy.notifications.target import Target
from proxy.recorded_requests.repeater import CallRepeater
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.errors import NotFound
from recorder.ids import check_external
from recorder.queue import feedback
from recorder.registry import alias_moves, aliases
from recorder.registry.alias_moves import BY_HAND
from recorder.registry.aliases import AliasView
from recorder.registry.keys import SOMEBODY, Scope
from recorder.registry.versions import VersionView, get_version, get_version_by_name
from recorder.setting_changes.follower import SettingsFollower
from recorder.store.database import Project, Store
from recorder.views.trajectories.transcripts import find_owners, find_trajectory, list_members


@dataclass(frozen=True, slots=True)
class HoneActions:
    """What the actions need: the project, its recorder, its versions in service, who receives notifications, the
    settings as they are now, and what asks recorded calls again.
    """

    project: Project
    recorder: Recorder
    versions: ServiceRouter
    target: Target | None = None
    settings: SettingsFollower | None = None
    repeater: CallRepeater | None = None

    @property
    def follower(self) -> SettingsFollower:
        """The settings as they are now. Raises NotFound in a program without any."""
        if self.settings is None:
            raise NotFound("this program has no settings to change: `hone serve` and `hone up` have.")
        return self.settings


@dataclass(frozen=True, slots=True)
class MovedAlias:
    """An alias after a move. `previous`: the name of the version that it pointed at before, if any."""

    previous: str | None
    live: VersionView


# --- trajectories


async def own_trajectory_id(hone: HoneActions, caller: Caller, named: str, group: str | None = None) -> str:
    """Return the internal id of a trajectory that the caller may change. Raises NotFound, Forbidden, StoreError."""
    await hone.recorder.require_caught_up()
    trajectory_id = await find_trajectory(hone.project, named, group)
    if caller.run is not None and trajectory_id != await trajectory_id_at(hone, caller.run):
        raise Forbidden(f"this key belongs to the trajectory {caller.run}, not to {named[:200]}.")
    await require_own(hone.project, caller, [trajectory_id], f"the trajectory {named[:200]}")
    return trajectory_id


async def require_own(project: Project, caller: Caller, trajectory_ids: Sequence[str], what: str) -> None:
    """Raise Forbidden unless the caller's key family made all these trajectories, or it may change everybody's.

    A trajectory that was made without a key is everybody's.
    """
    if caller.may(Scope.FEEDBACK_ALL):
        return
    if not all(caller.access.owns(owner) for owner in await find_owners(project.store, trajectory_ids)):
        raise Forbidden(f"{what} belongs to another key: use the key that made it, or one with the scope feedback-all.")


async def require_own_group(project: Project, caller: Caller, group_id: str) -> None:
    """Raise Forbidden unless the caller may change every member of a group."""
    if not caller.may(Scope.FEEDBACK_ALL):
        members = await list_members(project.store, group_id)
        await require_own(project, caller, members, f"a trajectory of the group {group_id}")


async def trajectory_id_at(hone: HoneActions, run: NamedTrajectory) -> str:
    """Return the internal id of the trajectory at an address. Raises NotFound, StoreError."""
    await hone.recorder.require_caught_up()
    return await find_trajectory(hone.project, str(run.trajectory), run.group or "")


async def write_feedback(
    hone: HoneActions,
    caller: Caller,
    trajectory_id: str,
    name: str,
    value: object,
    *,
    comment: str | None = None,
    call_id: str | None = None,
    tags: dict[str, str] | None = None,
    dry_run: bool = False,
) -> str | None:
    """Write feedback about a trajectory, redacted like the trajectory; return its id, or None for a dry run.

    Raises BadRequest, InvalidId, NotFound, and Forbidden if the caller may not change it, or the trajectory that a
    choice compares it with.
    """
    compared = [id_ for key in feedback.COMPARED_WITH if name in feedback.CHOICES and (id_ := (tags or {}).get(key))]
    await require_own(hone.project, caller, [trajectory_id, *compared], f"the trajectory {trajectory_id}")
    redact: Any = hone.recorder.redaction.redact_value
    try:
        check_external(name, "the feedback name")
        feedback.check_value(name, value)
        if dry_run:
            return None
        kept = await redact(value), await redact(comment), call_id, await redact(tags)
        written = await feedback.add_feedback(hone.project, trajectory_id, name, *kept)
    except ValueError as e:
        raise BadRequest(f"{e}.", param="value") from e
    return written.id


# --- versions


def caller_id(caller: Caller) -> str:
    """Return the id that a move records for its caller: the key's id."""
    return caller.key or SOMEBODY


async def promote_version(
    project: Project, version: str, alias: str | None = None, *, who: str = BY_HAND, why: str | None = None
) -> MovedAlias:
    """Make a version live, by its number or its name (helpdesk@3). The move records `who` and `why`.

    Raises NotFound, Conflict.
    """
    chosen = await _chosen(project, version, alias)
    before = await aliases.get_alias(project, chosen.alias_name)
    await alias_moves.set_live(project.store, chosen.alias_id, chosen.id, why="promote", who=who, reason=why)
    return MovedAlias(
        await _name_of(project.store, before.live_version_id), await get_version(project.store, chosen.id)
    )


async def roll_back_alias(
    project: Project, alias: str | None = None, *, who: str = BY_HAND, why: str | None = None
) -> MovedAlias:
    """Remove an alias's canary; without one, make the previous version live again. Raises Conflict, NotFound."""
    one = await get_alias(project, alias)
    left = one.canary_version_id or one.live_version_id
    if one.canary_version_id is not None:
        moved = await alias_moves.set_canary(project.store, one.id, None, 0.0, who=who, reason=why)
    else:
        moved = await alias_moves.rollback(project.store, one.id, who=who, reason=why)
    if moved.live_version_id is None:
        raise NotFound(f"the alias {one.name!r} has no live version: `hone promote` makes one live")
    return MovedAlias(await _name_of(project.store, left), await get_version(project.store, moved.live_version_id))


async def set_share(
    project: Project,
    version: str,
    part: float,
    alias: str | None = None,
    *,
    who: str = BY_HAND,
    why: str | None = None,
) -> AliasView:
    """Make a version (its number, or helpdesk@3) the canary, with a share (0..1) of new groups.

    Raises NotFound, Conflict.
    """
    chosen = await _chosen(project, version, alias)
    return await alias_moves.set_canary(project.store, chosen.alias_id, chosen.id, part, who=who, reason=why)


async def get_alias(project: Project, name: str | None) -> AliasView:
    """Return the alias of that name, or the only alias. Raises NotFound."""
    if name is not None:
        return await aliases.get_alias(project, name)
    all_aliases = await aliases.get_aliases(project)
    if len(all_aliases) != 1:
        names = ", ".join(a.name for a in all_aliases) or "none"
        raise NotFound(f"name an alias; there are: {names}")
    return all_aliases[0]


async def _chosen(project: Project, version: str, alias: str | None) -> VersionView:
    name = version if "@" in version else f"{(await get_alias(project, alias)).name}@{version}"
    return await get_version_by_name(project, name)


async def _name_of(store: Store, version_id: str | None) -> str | None:
    return (await get_version(store, version_id)).name if version_id else None

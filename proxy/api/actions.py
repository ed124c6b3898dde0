"""What a person or an agent does to Hone itself, whichever way it comes: HTTP, MCP or the command line.

Owns: whose run a caller may speak for, feedback, promoting, canaries and rolling back. Refuses: formats of requests and
answers, and who is admitted (`proxy.admission.auth`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from proxy.admission.address import NamedTrajectory
from proxy.admission.auth import Caller
from proxy.errors import BadRequest, Forbidden
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.errors import NotFound
from recorder.ids import check_external
from recorder.queue import feedback
from recorder.registry import alias_moves, aliases
from recorder.registry.alias_moves import BY_HAND
from recorder.registry.aliases import AliasView
from recorder.registry.keys import SOMEBODY
from recorder.registry.versions import VersionView, get_version, get_version_by_name
from recorder.store.database import Project, Store
from recorder.views.trajectories.transcripts import find_trajectory


@dataclass(frozen=True, slots=True)
class HoneActions:
    """What steering works with."""

    project: Project
    recorder: Recorder
    versions: ServiceRouter


@dataclass(frozen=True, slots=True)
class MovedAlias:
    """An alias that points elsewhere now. `left`: the version that it pointed at, if any."""

    left: str | None
    live: VersionView


# --- runs


async def own_trajectory_id(hone: HoneActions, caller: Caller, named: str, group: str | None = None) -> str:
    """The internal id of a run that the caller names, and may speak for. Raises NotFound, Forbidden."""
    found = await find_trajectory(hone.project, named, group)
    if caller.run is not None and found != await trajectory_id_at(hone, caller.run):
        raise Forbidden(f"this key was minted for the run {caller.run}, not for {named[:200]}.")
    return found


async def trajectory_id_at(hone: HoneActions, run: NamedTrajectory) -> str:
    """The internal id of the run at an address. Raises NotFound."""
    return await find_trajectory(hone.project, str(run.trajectory), run.group or "")


async def write_feedback(
    hone: HoneActions,
    trajectory_id: str,
    name: str,
    value: object,
    *,
    comment: str | None = None,
    call_id: str | None = None,
    tags: dict[str, str] | None = None,
    dry_run: bool = False,
) -> str | None:
    """Write feedback about a run, redacted like what it is about; its id, None for a dry run.

    Raises BadRequest, InvalidId, NotFound.
    """
    kept: Any = hone.recorder.redaction.value
    try:
        check_external(name, "the feedback name")
        feedback.check_value(name, value)
        if dry_run:
            return None
        written = await feedback.add_feedback(
            hone.project, trajectory_id, name, kept(value), kept(comment), call_id, kept(tags)
        )
    except ValueError as e:
        raise BadRequest(f"{e}.", param="value") from e
    return written.id


# --- versions


def caller_id(caller: Caller) -> str:
    """Who a caller is, as a move is written down: the key's id."""
    return caller.key or SOMEBODY


async def promote_version(
    project: Project, version: str, alias: str | None = None, *, who: str = BY_HAND, why: str | None = None
) -> MovedAlias:
    """Make a version live: its number, or its name (helpdesk@3). `why`: the words of `caller_id`, kept with the move.

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
    """Take an alias's canary away; without one, go back to the version that was live before. Raises Conflict."""
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
    """Give a version (its number, or helpdesk@3) a part (0..1) of new groups: it becomes the canary.

    Raises NotFound, Conflict.
    """
    chosen = await _chosen(project, version, alias)
    return await alias_moves.set_canary(project.store, chosen.alias_id, chosen.id, part, who=who, reason=why)


async def get_alias(project: Project, name: str | None) -> AliasView:
    """The alias of that name, or the only one there is. Raises NotFound."""
    if name is not None:
        return await aliases.get_alias(project, name)
    found = await aliases.get_aliases(project)
    if len(found) != 1:
        there = ", ".join(a.name for a in found) or "none"
        raise NotFound(f"say which alias; there is: {there}")
    return found[0]


async def _chosen(project: Project, version: str, alias: str | None) -> VersionView:
    name = version if "@" in version else f"{(await get_alias(project, alias)).name}@{version}"
    return await get_version_by_name(project, name)


async def _name_of(store: Store, version_id: str | None) -> str | None:
    return (await get_version(store, version_id)).name if version_id else None

"""`hone close`: end trajectories and groups now, instead of when their timeout passes.

Owns: reading arguments and printing. Refuses: what closing does (`recorder.queue.groups.closure`,
`recorder.queue.groups.manual_close`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from recorder.base.terminal import echo, write_json
from recorder.commands.context import Context, run
from recorder.errors import NotFound

if TYPE_CHECKING:
    from recorder.queue.groups.closure import GroupOutcome
    from recorder.store.database import Project


@dataclass(frozen=True, slots=True)
class _CloseResult:
    """The closed objects. `run`: the trajectory's id, None if a group was named."""

    run: str | None
    was_open: bool
    group: GroupOutcome | None


@click.command()
@click.argument("name", metavar="[TRAJECTORY|GROUP]", required=False)
@click.option(
    "--group", help="The group part of the trajectory's address, if trajectories of several groups share an id."
)
@click.option("--all", "everything", is_flag=True, help="Everything that is open and has no running call.")
@click.pass_obj
def close(context: Context, name: str | None, group: str | None, everything: bool) -> None:
    """End a trajectory, or close a group as it is, so that it can be judged now.

    TRAJECTORY and GROUP are Hone's ids, the ends of them, or the ids that the caller gave. A later call opens a
    continuation.
    """
    if everything == (name is not None):
        raise click.UsageError("name a trajectory or a group, or use --all.")
    if name is None:
        _close_all(context)
        return
    closed = run(context, lambda project: _close(project, name, group))
    if context.json:
        write_json(closed)
        return
    if closed.run is not None:
        echo(f"Closed trajectory {closed.run}." if closed.was_open else f"Trajectory {closed.run} had already ended.")
    if closed.group is not None:
        echo(_group_text(closed.group))


def _close_all(context: Context) -> None:
    from recorder.queue.groups.manual_close import close_all

    closed = run(context, close_all)
    if context.json:
        write_json(closed)
        return
    out = f"; {closed.groups_excluded} were excluded: too few to compare (`hone groups --state left_out`)"
    echo(
        f"Closed {closed.trajectories} trajectories. {closed.groups_ready} groups are ready to be judged"
        f"{out if closed.groups_excluded else ''}."
    )
    if closed.busy:
        echo(f"{closed.busy} trajectories have a running call: they and their groups stay open.")


async def _close(project: Project, name: str, group: str | None) -> _CloseResult:
    from recorder.queue.groups.closure import close_group, trajectory_group
    from recorder.queue.groups.manual_close import end_trajectory
    from recorder.views.lists.short_ids import expand_id
    from recorder.views.trajectories.transcripts import find_trajectory

    name = await expand_id(project, name)
    try:
        found = await find_trajectory(project, name, group)
    except NotFound:
        try:
            return _CloseResult(None, True, await close_group(project, name))
        except NotFound as e:
            raise NotFound(
                f"no trajectory or group {name!r} in project {project.id!r}: "
                "`hone trajectories`, `hone groups` list them"
            ) from e
    was_open = await end_trajectory(project.store, found)
    return _CloseResult(found, was_open, await trajectory_group(project.store, found))


def _group_text(group: GroupOutcome) -> str:
    if group.state == "open":
        return f"Its group {group.id} is still open: `hone close {group.id}` closes it."
    return f"The group {group.id} is {group.state.replace('_', ' ')}" + (f": {group.reason}." if group.reason else ".")

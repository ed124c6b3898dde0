"""`hone datasets`: named lists of trajectories, for `hone trajectories`, `hone export` and `hone scenarios`.

Owns: reading arguments and printing. Refuses: what a dataset is (`recorder.curation.datasets`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import click

from recorder.base.errors import FAILED
from recorder.base.terminal import confirm, echo, format_time, show_table, write_json
from recorder.commands.context import Context, run

if TYPE_CHECKING:
    from recorder.curation.datasets import Change, Dataset
    from recorder.store.database import Project

_BY: Final = "hone datasets"  # recorded as the creator
_names = click.argument("names", metavar="TRAJECTORY...", nargs=-1, required=True)
_group = click.option(
    "--group", help="The group part of the trajectories' addresses, if trajectories of several groups share an id."
)


@click.group()
def datasets() -> None:
    """Keep named lists of trajectories: to find them again, to export them, to make scenarios of them."""


@datasets.command(name="list")
@click.pass_obj
def list_command(context: Context) -> None:
    """List the datasets."""
    found = run(context, _list)
    if context.json:
        write_json(found)
        return
    if not found:
        echo("No dataset yet. `hone datasets create NAME` creates one.")
        return
    rows = [(one.name, one.trajectories, one.deleted or None, format_time(one.created_at)) for one in found]
    show_table(("dataset", "trajectories", "deleted since", "created"), rows, right=("trajectories", "deleted since"))


@datasets.command()
@click.argument("name", metavar="NAME")
@click.argument("names", metavar="[TRAJECTORY]...", nargs=-1)
@_group
@click.pass_obj
def create(context: Context, name: str, names: tuple[str, ...], group: str | None) -> None:
    """Create a dataset, with these trajectories if some are named."""

    async def make(project: Project) -> Dataset:
        from recorder.curation.datasets import add_to_dataset, create_dataset, get_dataset

        ids = await _ids(project, names, group)
        made = await create_dataset(project, name, _BY)
        if not ids:
            return made
        await add_to_dataset(project, name, ids)
        return await get_dataset(project, name)

    made = run(context, make)
    if context.json:
        write_json(made)
    else:
        echo(f"Created the dataset {made.name} with {_counted(made.trajectories)}.")


@datasets.command()
@click.argument("name", metavar="NAME")
@_names
@_group
@click.pass_obj
def add(context: Context, name: str, names: tuple[str, ...], group: str | None) -> None:
    """Add trajectories to a dataset.

    TRAJECTORY is Hone's id, the end of it, or the id that its caller gave.
    """

    async def change(project: Project) -> Mapping[str, Change]:
        from recorder.curation.datasets import add_to_dataset

        return await add_to_dataset(project, name, await _ids(project, names, group))

    _show_changes(context, run(context, change), ("Added", "to"), name, "in it already")


@datasets.command()
@click.argument("name", metavar="NAME")
@_names
@_group
@click.pass_obj
def remove(context: Context, name: str, names: tuple[str, ...], group: str | None) -> None:
    """Remove trajectories from a dataset. They stay in the store."""

    async def change(project: Project) -> Mapping[str, Change]:
        from recorder.curation.datasets import remove_from_dataset

        return await remove_from_dataset(project, name, await _ids(project, names, group))

    _show_changes(context, run(context, change), ("Removed", "from"), name, "not in it")


@datasets.command()
@click.argument("name", metavar="NAME")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_obj
def delete(context: Context, name: str, yes: bool) -> None:
    """Delete a dataset. Its trajectories stay in the store."""

    async def find(project: Project) -> Dataset:
        from recorder.curation.datasets import get_dataset

        return await get_dataset(project, name)

    async def drop(project: Project) -> None:
        from recorder.curation.datasets import delete_dataset

        await delete_dataset(project, name)

    found = run(context, find)
    if not yes:
        confirm(f"Delete the dataset {name}, a list of {_counted(found.trajectories)}?", abort=True, err=True)
    run(context, drop)
    if context.json:
        write_json({"deleted": found})
    else:
        echo(f"Deleted the dataset {name}. Its trajectories stay.")


@datasets.command()
@click.argument("name", metavar="NAME")
@click.pass_obj
def show(context: Context, name: str) -> None:
    """Show a dataset: when it was created, and its trajectories, the newest first."""

    async def read(project: Project) -> tuple[Dataset, list[str]]:
        from recorder.curation.datasets import dataset_ids, get_dataset

        return await get_dataset(project, name), await dataset_ids(project, name)

    one, ids = run(context, read)
    if context.json:
        write_json({"dataset": one, "trajectory_ids": ids})
        return
    gone = f"; {one.deleted} were deleted since" if one.deleted else ""
    echo(f"{one.name}: {_counted(one.trajectories)}{gone}. Created {format_time(one.created_at)} by {one.made_by}.")
    for id_ in ids:
        echo(id_)
    if ids:
        echo(f"`hone trajectories --dataset {one.name}` lists them with their tasks.", err=True)


async def _list(project: Project) -> list[Dataset]:
    from recorder.curation.datasets import list_datasets

    return await list_datasets(project)


async def _ids(project: Project, names: Sequence[str], group: str | None) -> list[str]:
    """Return the internal ids of some trajectories. Raises NotFound."""
    from recorder.views.lists.short_ids import expand_id
    from recorder.views.trajectories.transcripts import find_trajectory

    wanted = [await expand_id(project, name) for name in names]
    return [await find_trajectory(project, name, group) for name in wanted]


def _show_changes(
    context: Context, changes: Mapping[str, Change], words: tuple[str, str], name: str, unchanged: str
) -> None:
    """Print what became of each trajectory; exit with status 1 if one is missing."""
    number = Counter(str(change) for change in changes.values())
    if context.json:
        write_json({"dataset": name, "changes": {id_: str(change) for id_, change in changes.items()}})
    else:
        done, where = words
        others = f" {number['unchanged']} were {unchanged}." if number["unchanged"] else ""
        echo(f"{done} {_counted(number['done'])} {where} the dataset {name}.{others}")
    if number["missing"]:
        raise SystemExit(FAILED)


def _counted(number: int) -> str:
    return f"{number} {'trajectory' if number == 1 else 'trajectories'}"

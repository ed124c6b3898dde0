"""`hone trajectories` and `hone groups`: lists, narrowed by the words that the pages take too, and watched.

Owns: their options, and how a line reads. Refuses: what the words mean (`recorder.listing.words`), queries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import click

from recorder.base.json_output import write_json
from recorder.base.terminal import duration, echo, number, show_table, when
from recorder.commands.context import Context
from recorder.commands.support import run
from recorder.errors import FilterInvalid
from recorder.listing.words import GROUP_WORDS, RUN_WORDS, Word, group_filter, run_filter

if TYPE_CHECKING:
    from recorder.listing.filters import RunFilter
    from recorder.listing.groups import GroupLine
    from recorder.listing.paging import Page
    from recorder.listing.trajectories import TrajectoryLine
    from recorder.store.project import Project

L = TypeVar("L", "TrajectoryLine", "GroupLine")
F = TypeVar("F", bound=Callable[..., Any])
Row = Sequence[object]

_RUN_COLUMNS: Final = ("trajectory", "id", "task", "group", "version", "state", "why", "left out", "purpose", "calls",
                       "reward", "took", "started")  # fmt: skip
_GROUP_COLUMNS: Final = (
    "group", "id", "task", "version", "state", "why", "members", "reward", "from", "to", "opened",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _List(Generic[L]):
    """A list as it is printed."""

    columns: Sequence[str]
    right: Sequence[str]  # the columns that hold numbers
    row: Callable[[L], Row]


def _narrowed(words: Mapping[str, Word]) -> Callable[[F], F]:
    """The options of a list: its words, and how it is shown."""

    def add(command: F) -> F:
        shown = (
            click.option("--watch", is_flag=True, help="Stay, and show what comes and changes, until Ctrl-C."),
            click.option("--before", help="Those before this place alone: for the next page."),
            click.option(
                "--limit", default=50, show_default=True, type=click.IntRange(1), help="How many, newest first."
            ),
        )
        for option in (*shown, *map(_option, reversed(list(words.values())))):
            command = option(command)
        return command

    return add


def _option(word: Word) -> Callable[[F], F]:
    flag = f"--{word.name.replace('_', '-')}"
    kind = click.Choice(word.takes) if word.takes else click.STRING
    return click.option(flag, word.name, multiple=word.many, type=kind, help=word.about)


@click.command()
@_narrowed(RUN_WORDS)
@click.pass_obj
def trajectories(context: Context, /, watch: bool, before: str | None, limit: int, **said: Any) -> None:
    """List recorded runs, newest first."""
    wanted = _read(run_filter, said)

    async def page(project: Project) -> Page[TrajectoryLine]:
        from recorder.listing.trajectories import list_trajectories

        return await list_trajectories(project, await _named(project, wanted), before=before, limit=limit)

    _print(context, page, _List(_RUN_COLUMNS, ("calls", "reward", "took"), _run_row), watch=watch)


@click.command()
@_narrowed(GROUP_WORDS)
@click.pass_obj
def groups(context: Context, /, watch: bool, before: str | None, limit: int, **said: Any) -> None:
    """List groups of runs, newest first."""
    wanted = _read(group_filter, said)

    async def page(project: Project) -> Page[GroupLine]:
        from recorder.listing.groups import list_groups

        return await list_groups(project, wanted, before=before, limit=limit)

    _print(context, page, _List(_GROUP_COLUMNS, ("members", "reward", "from", "to"), _group_row), watch=watch)


R = TypeVar("R")


def _read(filter_of: Callable[[Sequence[tuple[str, str]]], R], said: Mapping[str, Any]) -> R:
    """The filter that options say. Fails as click does, naming the option."""
    values = [(name, [value] if isinstance(value, str) else value or ()) for name, value in said.items()]
    try:
        return filter_of([(name, one) for name, several in values for one in several])
    except FilterInvalid as e:
        raise click.BadParameter(str(e), param_hint=f"--{e.word.replace('_', '-')}") from e


async def _named(project: Project, wanted: RunFilter) -> RunFilter:
    """The filter with a group's whole id: a list shows the end of it."""
    from recorder.listing.short_ids import in_full

    return wanted if wanted.group is None else replace(wanted, group=await in_full(project, wanted.group))


def _print(context: Context, page: Callable[[Project], Awaitable[Page[L]]], shape: _List[L], *, watch: bool) -> None:
    if watch:
        from recorder.commands.watching import follow

        follow(context, page, shape.columns, shape.row, shape.right)
        return
    found = run(context, page)
    if context.json:
        write_json(found.lines)
        return
    show_table(shape.columns, map(shape.row, found.lines), right=shape.right)
    if found.next is not None:
        looked = f"The newest {found.looked_at} were looked at. " if found.looked_at else ""
        echo(f"{looked}More: --before {found.next}", err=True)


def _run_row(t: TrajectoryLine) -> Row:
    from recorder.listing.short_ids import short

    return (
        short(t.id), t.external_id, t.task, t.group_external_id or short(t.group_id), t.version or t.alias, t.state,
        t.selection or t.end_reason, t.left_out, t.purpose, t.call_count, number(t.reward),
        duration(t.last_call_at - t.started_at), when(t.started_at),
    )  # fmt: skip


def _group_row(g: GroupLine) -> Row:
    from recorder.listing.short_ids import short

    return (
        short(g.id), g.external_id, g.task, g.version or g.alias, g.state, g.reason,
        f"{g.members}/{g.declared_size}" if g.declared_size else g.members,
        number(g.reward_mean), number(g.reward_min), number(g.reward_max), when(g.opened_at),
    )  # fmt: skip

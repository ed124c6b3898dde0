"""`hone trajectories` and `hone groups`: filtered lists, and the same lists live with `--watch`.

Owns: their options, the columns of a line, and drawing a list again when it changes. Refuses: what filters mean
(`recorder.views.lists.filters`), queries.

A new trajectory, or another call of one, changes no counter that `recorder.store.changes` watches. So a watched list is
also read every `LOOK_S` seconds.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import click

from recorder.base.terminal import (
    build_table,
    console,
    echo,
    format_duration,
    format_number,
    format_time,
    redrawn,
    show_table,
    write_json,
    write_json_line,
)
from recorder.commands.context import Context, run
from recorder.errors import FilterInvalid
from recorder.views.lists.filters import (
    GROUP_FILTER_PARAMS,
    TRAJECTORY_FILTER_PARAMS,
    FilterParam,
    parse_group_filter,
    parse_trajectory_filter,
    with_usual_groups,
    with_usual_trajectories,
)
from recorder.views.lists.paging import MOST_HIDDEN
from recorder.views.lists.sort_order import Sort

if TYPE_CHECKING:
    from rich.table import Table

    from recorder.store.database import Project
    from recorder.views.lists.filters import TrajectoryFilter
    from recorder.views.lists.groups import GroupLine
    from recorder.views.lists.paging import Page
    from recorder.views.lists.trajectories import TrajectoryLine


LOOK_S: Final = 1.0
_AROUND: Final = 2  # lines of a screen that are not lines of the list: the header and the cursor's line

L = TypeVar("L", "TrajectoryLine", "GroupLine")
ReadPage = Callable[["Project"], Awaitable["Page[L]"]]


def watch_list(
    context: Context,
    page: ReadPage[L],
    columns: Sequence[str],
    row: Callable[[L], Sequence[object]],
    right: Sequence[str],
) -> None:
    """Show a list until Ctrl-C. Raises UsageError if the output is neither a terminal nor JSON."""

    screen = console()
    if not context.json and not screen.is_terminal:
        raise click.UsageError("--watch draws on a terminal. Add --json to write to a file or a pipe.")

    def drawn(lines: Sequence[L]) -> Table:
        return build_table(columns, map(row, lines[: max(1, screen.height - _AROUND)]), right=right)

    async def tell(project: Project) -> None:
        if context.json:
            async for _, changed in iterate_changes(project, page):
                for line in reversed(changed):
                    write_json_line(line, compact=True)
            return
        with redrawn(crop=True) as draw:
            async for lines, _ in iterate_changes(project, page):
                draw(drawn(lines))

    with contextlib.suppress(KeyboardInterrupt):
        run(context, tell)


async def iterate_changes(project: Project, page: ReadPage[L]) -> AsyncIterator[tuple[Sequence[L], Sequence[L]]]:
    """Yield the lines, newest first, whenever they change, and those of them that are new or changed."""
    from recorder.store.changes import Topic

    known: dict[str, L] | None = None
    with project.store.watch.on(Topic.RUNS, Topic.GROUPS) as signal:
        while True:
            await signal.wait(LOOK_S)
            lines = (await page(project)).lines
            before, known = known, {line.id: line for line in lines}
            if known != before:
                yield lines, [line for line in lines if before is None or before.get(line.id) != line]


F = TypeVar("F", bound=Callable[..., Any])
Row = Sequence[object]
_SORT: Final = click.option(
    "--sort",
    type=click.Choice([one.value for one in Sort]),
    default=Sort.TIME.value,
    show_default=True,
    help="The order. By all but time, the largest of the newest 10,000 matches come first.",
)

_TRAJECTORY_COLUMNS: Final = (
    "trajectory", "id", "task", "group", "version", "state", "why", "excluded", "purpose", "calls", "tokens",
    "cost", "reward", "took", "first token", "started",
)  # fmt: skip
_NUMBERS: Final = ("calls", "tokens", "cost", "reward", "took", "first token")
_GROUP_COLUMNS: Final = (
    "group", "id", "task", "version", "state", "why", "members", "reward", "from", "to", "opened",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class _List(Generic[L]):
    """How a list is printed."""

    columns: Sequence[str]
    right: Sequence[str]  # the columns that hold numbers
    row: Callable[[L], Row]


def _narrowed(words: Mapping[str, FilterParam], *, sorts: bool = False) -> Callable[[F], F]:
    """Return a decorator with the options of a list: its filters, and how it is shown."""

    def add(command: F) -> F:
        shown = (
            *([_SORT] if sorts else []),
            click.option("--watch", is_flag=True, help="Keep running and show new and changed lines, until Ctrl-C."),
            click.option("--before", help="Only lines before this position: for the next page."),
            click.option(
                "--limit", default=50, show_default=True, type=click.IntRange(1), help="How many, newest first."
            ),
        )
        for option in (*shown, *map(_option, reversed(list(words.values())))):
            command = option(command)
        return command

    return add


def _flag(parameter: str) -> str:
    return f"--{parameter.replace('_', '-')}"


def _option(word: FilterParam) -> Callable[[F], F]:
    kind = click.Choice(word.takes) if word.takes else click.STRING
    return click.option(_flag(word.name), word.name, multiple=word.many, type=kind, help=word.about)


@click.command()
@_narrowed(TRAJECTORY_FILTER_PARAMS, sorts=True)
@click.pass_obj
def trajectories(context: Context, /, watch: bool, before: str | None, limit: int, sort: str, **options: Any) -> None:
    """List recorded trajectories, newest first or sorted."""
    wanted = with_usual_trajectories(_read(parse_trajectory_filter, options))

    async def page(project: Project) -> Page[TrajectoryLine]:
        from recorder.views.lists.trajectories import list_trajectories

        named = await _named(project, wanted)
        return await list_trajectories(project, named, before=before, limit=limit, sort=Sort(sort))

    _print(context, page, _List(_TRAJECTORY_COLUMNS, _NUMBERS, _trajectory_row), watch=watch)


@click.command()
@_narrowed(GROUP_FILTER_PARAMS)
@click.pass_obj
def groups(context: Context, /, watch: bool, before: str | None, limit: int, **options: Any) -> None:
    """List groups of trajectories, newest first."""
    wanted = with_usual_groups(_read(parse_group_filter, options))

    async def page(project: Project) -> Page[GroupLine]:
        from recorder.views.lists.groups import list_groups

        return await list_groups(project, wanted, before=before, limit=limit)

    _print(context, page, _List(_GROUP_COLUMNS, ("members", "reward", "from", "to"), _group_row), watch=watch)


R = TypeVar("R")


def _read(filter_of: Callable[[Sequence[tuple[str, str]]], R], options: Mapping[str, Any]) -> R:
    """Return the filter of the options. Raises BadParameter, which names the option."""
    values = [(name, [value] if isinstance(value, str) else value or ()) for name, value in options.items()]
    try:
        return filter_of([(name, one) for name, several in values for one in several])
    except FilterInvalid as e:
        raise click.BadParameter(str(e), param_hint=_flag(e.word)) from e


async def _named(project: Project, wanted: TrajectoryFilter) -> TrajectoryFilter:
    """Return the filter with the full id of its group, because lists show only the end of ids."""
    from recorder.views.lists.short_ids import expand_id

    return wanted if wanted.group is None else replace(wanted, group=await expand_id(project, wanted.group))


def _print(context: Context, page: Callable[[Project], Awaitable[Page[L]]], shape: _List[L], *, watch: bool) -> None:
    if watch:
        watch_list(context, page, shape.columns, shape.row, shape.right)
        return
    found = run(context, page)
    if context.json:
        write_json(found.lines)
    else:
        show_table(shape.columns, map(shape.row, found.lines), right=shape.right)
    if found.hidden:
        number = f"{found.hidden} or more" if found.hidden >= MOST_HIDDEN else str(found.hidden)
        echo(
            f"{number} of origin shadow (shadow answers, pairs of a gate) are hidden: --origin any shows all.", err=True
        )
    if found.sorted_over is not None:
        echo(f"Sorted over the newest {found.sorted_over} matches. Older ones are not among them.", err=True)
    if found.next is not None and not context.json:
        searched = f"The newest {found.looked_at} were searched. " if found.looked_at else ""
        echo(f"{searched}More: --before {found.next}", err=True)


def _trajectory_row(t: TrajectoryLine) -> Row:
    from recorder.views.lists.short_ids import shorten_id

    return (
        shorten_id(t.id), t.external_id, t.task, t.group_external_id or shorten_id(t.group_id), t.version or t.alias,
        t.state, t.selection or t.end_reason, t.excluded, t.purpose, t.call_count,
        None if t.tokens_in is None or t.tokens_out is None else t.tokens_in + t.tokens_out, _cost(t),
        format_number(t.reward), format_duration(t.last_call_at - t.started_at), _first_token(t),
        format_time(t.started_at),
    )  # fmt: skip


def _first_token(t: TrajectoryLine) -> str | None:
    return None if t.first_token_s is None else f"{t.first_token_s:.2f} s"


def _cost(t: TrajectoryLine) -> str | None:
    """Return what its calls and its judging cost in US dollars; None if no price is known."""
    known = [cost for cost in (t.cost_usd, t.judge_usd) if cost is not None]
    return f"${sum(known):.4f}" if known else None


def _group_row(g: GroupLine) -> Row:
    from recorder.views.lists.short_ids import shorten_id

    return (
        shorten_id(g.id), g.external_id, g.task, g.version or g.alias, g.state, g.reason,
        f"{g.members}/{g.declared_size}" if g.declared_size else g.members,
        format_number(g.reward_mean), format_number(g.reward_min), format_number(g.reward_max),
        format_time(g.opened_at),
    )  # fmt: skip

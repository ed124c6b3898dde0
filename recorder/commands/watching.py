"""A list that is watched: on a terminal the newest lines, redrawn; with `--json` each line that came or changed.

Owns: waiting for changes, and showing them until Ctrl-C. Refuses: what a line is.

A new run and a further turn of one are written past what the store's watch counts (`recorder.store.changes`), so the
list is looked at every `LOOK_S` as well.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import click

from recorder.base.json_output import write_json_line
from recorder.base.live import redrawn
from recorder.base.terminal import console, table
from recorder.commands.context import Context
from recorder.commands.support import run

if TYPE_CHECKING:
    from rich.table import Table

    from recorder.listing.groups import GroupLine
    from recorder.listing.paging import Page
    from recorder.listing.trajectories import TrajectoryLine
    from recorder.store.project import Project

LOOK_S: Final = 1.0
_AROUND: Final = 2  # lines of a screen that no line of the list is on: the header, and the cursor's

L = TypeVar("L", "TrajectoryLine", "GroupLine")
ReadPage = Callable[["Project"], Awaitable["Page[L]"]]


def follow(
    context: Context,
    page: ReadPage[L],
    columns: Sequence[str],
    row: Callable[[L], Sequence[object]],
    right: Sequence[str],
) -> None:
    """Show a list until Ctrl-C. Raises UsageError where nobody would see it."""

    screen = console()
    if not context.json and not screen.is_terminal:
        raise click.UsageError("--watch draws on a terminal: into a file or a pipe it goes with --json.")

    def drawn(lines: Sequence[L]) -> Table:
        return table(columns, map(row, lines[: max(1, screen.height - _AROUND)]), right=right)

    async def tell(project: Project) -> None:
        if context.json:
            async for _, changed in changes(project, page):
                for line in reversed(changed):
                    write_json_line(line, compact=True)
            return
        with redrawn(crop=True) as draw:
            async for lines, _ in changes(project, page):
                draw(drawn(lines))

    with contextlib.suppress(KeyboardInterrupt):
        run(context, tell)


async def changes(project: Project, page: ReadPage[L]) -> AsyncIterator[tuple[Sequence[L], Sequence[L]]]:
    """The lines whenever they are others than before, newest first, and which of them came or changed."""
    from recorder.store.changes import Topic

    known: dict[str, L] | None = None
    with project.store.watch.on(Topic.RUNS, Topic.GROUPS) as news:
        while True:
            await news.wait(LOOK_S)
            lines = (await page(project)).lines
            before, known = known, {line.id: line for line in lines}
            if known != before:
                yield lines, [line for line in lines if before is None or before.get(line.id) != line]

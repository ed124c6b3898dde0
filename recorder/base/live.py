"""Live output on a terminal: a progress line, a progress bar, and a view that is redrawn in place.

Owns: where each is drawn (progress on standard error, views on standard output). Refuses: what is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from recorder.base.terminal import clean_line, console, echo

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINES: Final = 10  # progress lines without a terminal

ReportProgress = Callable[[str, int, int], None]  # the text, the amount done, the total


@contextmanager
def show_progress(first: str, *, only_on_terminal: bool = False) -> Iterator[ReportProgress]:
    """Show progress until the block ends, by calls of the yielded `report(text, done, total)`.

    On a terminal it is one changing line, which begins as `first`. Otherwise it is a line at each tenth, or nothing if
    `only_on_terminal` is set.
    """
    screen = console(err=True)
    if screen.is_terminal:
        with screen.status(clean_line(first)) as status:
            yield lambda text, _done, _of: status.update(clean_line(text))
        return

    def report(text: str, done: int, of: int) -> None:
        if not only_on_terminal and (done == of or done % max(1, of // _LINES) == 0):
            echo(text, err=True)

    yield report


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[ReportProgress]:
    """Show progress as a bar until the block ends, on a terminal only."""
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:32}"), BarColumn(), TextColumn("{task.completed:,.0f}/{task.total:,.0f}"))
    screen = console(err=True)
    with Progress(*columns, console=screen, disable=quiet or not screen.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=1)
        yield lambda doing, done, of: bar.update(task, description=doing, completed=done, total=max(of, 1))


@contextmanager
def redrawn(*, crop: bool = False) -> Iterator[Callable[[RenderableType], None]]:
    """Draw views in place until the block ends, by calls of the yielded function. `crop`: cut off long views."""
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, vertical_overflow="crop" if crop else "ellipsis") as live:
        yield lambda view: live.update(view, refresh=True)

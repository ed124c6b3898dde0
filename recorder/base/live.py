"""What changes on a terminal while a command works: how far it is, a bar, a view drawn again in its place.

Owns: where each is drawn: how far a command is on standard error, a view on standard output. Refuses: what is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from recorder.base.terminal import clean_line, console, echo

if TYPE_CHECKING:
    from rich.console import RenderableType

_LINES: Final = 10  # where nobody sees a line change

ReportProgress = Callable[[str, int, int], None]  # what is done, how much of it, of how much


@contextmanager
def show_progress(first: str, *, only_on_terminal: bool = False) -> Iterator[ReportProgress]:
    """Until the block ends: `count(text, done, of)` says how far it is, in one line that changes.

    Where there is no terminal, in a line at each tenth, or not at all. `first`: what stands there before.
    """
    screen = console(err=True)
    if screen.is_terminal:
        with screen.status(clean_line(first)) as status:
            yield lambda text, _done, _of: status.update(clean_line(text))
        return

    def tell(text: str, done: int, of: int) -> None:
        if not only_on_terminal and (done == of or done % max(1, of // _LINES) == 0):
            echo(text, err=True)

    yield tell


@contextmanager
def progress_bar(*, quiet: bool) -> Iterator[ReportProgress]:
    """The same as a bar, on a terminal alone."""
    from rich.progress import BarColumn, Progress, TextColumn

    columns = (TextColumn("{task.description:32}"), BarColumn(), TextColumn("{task.completed:,.0f}/{task.total:,.0f}"))
    screen = console(err=True)
    with Progress(*columns, console=screen, disable=quiet or not screen.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=1)
        yield lambda doing, done, of: bar.update(task, description=doing, completed=done, total=max(of, 1))


@contextmanager
def redrawn(*, crop: bool = False) -> Iterator[Callable[[RenderableType], None]]:
    """Until the block ends: draw a view in the place of the one before it. `crop`: what is too long is cut off."""
    from rich.live import Live

    with Live(console=console(), auto_refresh=False, vertical_overflow="crop" if crop else "ellipsis") as live:
        yield lambda view: live.update(view, refresh=True)

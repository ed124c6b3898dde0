"""Print on a terminal, for all commands: harmless text, numbers, times, tables, progress, live views and JSON.

Owns: escaping of hostile text, the look of lines and tables, where each output goes (progress to standard error, views
to standard output), and the form of `--json`. Refuses: what is printed, and the look of a conversation
(`recorder.commands.transcript`).

Text of models, tools and users is untrusted: an escape sequence could rewrite the screen, the title or the clipboard,
and a bidirectional mark could change the visible order. Every printed string goes through `clean`, and none is read as
rich's markup. rich is imported inside functions, because `hone --help` must be instant.
"""

from __future__ import annotations

import json
import math
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, is_dataclass
from datetime import datetime
from io import StringIO
from typing import IO, TYPE_CHECKING, Any, Final, TextIO

import click

from recorder.states import Tone, state_tone

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.padding import PaddingDimensions
    from rich.table import Table
    from rich.text import Text

NONE: Final = "–"  # where there is no value
_UNWRAPPED: Final = 1_000_000
_DAY_S: Final = 86400.0
_FOLDED: Final = 200
_KEPT: Final = frozenset("\n\t")
_TONE_STYLES: Final = {Tone.GOOD: "green", Tone.FAULT: "red", Tone.ATTENTION: "yellow", Tone.NEUTRAL: ""}


def clean(text: object) -> str:
    """Return `text` with every control, format and surrogate character replaced by a visible form."""
    plain = str(text).replace("\r\n", "\n")
    return plain if plain.isascii() and plain.isprintable() else plain.translate(_SHOWN)


class _VisibleCharacters(dict[int, str]):
    """A cache: code point → the text shown for it. Long texts have few different characters."""

    def __missing__(self, code: int) -> str:
        self[code] = _visible(chr(code))
        return self[code]


_SHOWN: Final = _VisibleCharacters()


def _visible(char: str) -> str:
    if char in _KEPT:
        return char
    category = unicodedata.category(char)
    # Cc control, Cf format (bidirectional marks, zero width), Cs surrogate, Co private use, Cn unassigned,
    # Zl and Zp line and paragraph separators
    if category[0] != "C" and category not in ("Zl", "Zp"):
        return char
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)  # the control pictures: ␛ for escape
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


# --- numbers and times ------------------------------------------------------------------------------------------------


def format_number(value: float | None, form: str = ".3g", *, missing: str = NONE) -> str:
    """Return a number by a format, by default with three significant digits; a dash for None."""
    return missing if value is None else format(value, form)


def percent(value: float | None) -> str:
    """Return a share of 0 to 1 in per cent; a dash for None."""
    return NONE if value is None else f"{100 * value:.1f} %"


def format_duration(seconds: float) -> str:
    """Return a duration as `07:38` or `3:07:38`."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def format_time(at: float | None) -> str:
    """Return a time (unix seconds) in the local time zone; empty for None."""
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def clock_or_date(at: float) -> str:
    """Return the local time of a past moment (unix seconds), with the date if it is not today."""
    then = datetime.fromtimestamp(at).astimezone()
    return then.strftime("%H:%M:%S") if then.date() == datetime.now().astimezone().date() else format_time(at)


def clock_time(at: float, now: float) -> str:
    """Return the local time of a future moment (unix seconds), rounded up to the minute: `14:20`.

    From a day after `now` on, the date is included.
    """
    then = datetime.fromtimestamp(math.ceil(at / 60) * 60).astimezone()
    return then.strftime("%H:%M" if at - now < _DAY_S else "%Y-%m-%d %H:%M")


# --- plain lines: no rich ---------------------------------------------------------------------------------------------


def echo(*parts: object | tuple[object, str], err: bool = False) -> None:
    """Print a text made harmless, without line breaks; a part may be (text, colour). `err`: on standard error."""
    click.echo("".join(map(_part, parts)), err=err)


def _part(part: object | tuple[object, str]) -> str:
    return click.style(clean(part[0]), fg=part[1]) if isinstance(part, tuple) else clean(part)


def confirm(question: str, *, abort: bool = False, err: bool = False) -> bool:
    """Ask for yes or no. With `abort`, raises click.Abort at a no."""
    return click.confirm(clean(question), abort=abort, err=err)


def print_error(message: str) -> None:
    """Print why a command failed. The message may contain text from an engine, a file or a caller."""
    echo(f"hone: {message}", err=True)


def print_click_error(error: click.ClickException) -> None:
    """Print an error in a command's arguments as click does; it may contain a file's or a model's text."""
    message = StringIO()
    error.show(message)
    echo(message.getvalue().removesuffix("\n"), err=True)


# --- lines and tables in colour ---------------------------------------------------------------------------------------


def console(file: TextIO | None = None, *, err: bool = False, soft_wrap: bool = False) -> Console:
    """Return rich's console for the terminal. Output to a file or a pipe is plain and never wrapped.

    `soft_wrap`: lines are not wrapped on a terminal either.
    """
    from rich.console import Console

    def made(width: int | None = None) -> Console:
        return Console(
            file=file, stderr=err, soft_wrap=soft_wrap, highlight=False, markup=False, emoji=False, width=width
        )

    wide = made()
    return wide if wide.is_terminal else made(_UNWRAPPED)


def show(*shown: RenderableType, folded: bool = False) -> None:
    """Print lines, tables and anything else that rich can draw.

    `folded`: lines to a file or a pipe are wrapped after 200 columns, since a table's cell may be a paragraph.
    """
    screen = console()
    if folded and not screen.is_terminal:
        screen.width = _FOLDED
    for one in shown:
        screen.print(one)


def show_lines(styled: Iterable[tuple[object, str]]) -> None:
    """Print lines, each (text, style)."""
    show(*(clean_line(text, style) for text, style in styled))


def show_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> None:
    """Print a table; the columns in `right` hold numbers."""
    show(build_table(columns, rows, right=right))


def text(words: object, style: str = "") -> Text:
    """Harmless text of one line or many."""
    from rich.text import Text

    return Text(clean(words), style=style)


def clean_line(words: object, style: str = "") -> Text:
    """One line of harmless text."""
    from rich.text import Text

    return Text(clean(words).replace("\n", "⏎").replace("\t", " "), style=style)


def color_line(words: object) -> Text:
    """One line of harmless text, coloured if it is the name of a state."""
    return clean_line(words, _TONE_STYLES[state_tone(str(words))])


def build_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[object]],
    *,
    right: Iterable[str] = (),
    headed: bool = True,
    padding: PaddingDimensions = (0, 2, 0, 0),
) -> Table:
    """Return a table without borders. Every cell is made harmless, states are coloured, and a Text keeps its style.

    `right`: the columns that hold numbers. `headed`: show the columns' names. `padding`: around a cell, as in CSS.
    """
    from rich.table import Table
    from rich.text import Text

    made = Table(box=None, padding=padding, header_style="dim", show_header=headed)
    numbers = set(right)
    for column in columns:
        made.add_column(clean_line(column), justify="right" if column in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else color_line("" if cell is None else cell) for cell in row))
    return made


# --- progress and live views ------------------------------------------------------------------------------------------

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


# --- JSON: `--json` ---------------------------------------------------------------------------------------------------


def write_json(value: object) -> None:
    """Print one JSON document on standard output."""
    click.echo(to_json(value, indent=2))


def write_json_line(value: object, out: IO[str] | None = None, *, compact: bool = False) -> None:
    """Print one JSON document on a line of its own, unbuffered, to `out` or standard output."""
    click.echo(to_json(value, compact=compact), file=out)


def to_json(value: object, *, indent: int | None = None, compact: bool = False) -> str:
    """Return JSON in ASCII, so that a transcript cannot control the terminal; NaN and infinity become null."""
    form: dict[str, Any] = {"indent": indent, "separators": (",", ":") if compact else None}
    try:
        return json.dumps(value, allow_nan=False, default=_plain, **form)
    except ValueError:
        return json.dumps(_finite(json.loads(json.dumps(value, default=_plain))), **form)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _plain(value: object) -> object:
    """Convert a value that JSON cannot represent."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, Sequence | frozenset) else str(value)

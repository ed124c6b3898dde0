"""What everything is printed with: harmless text, times, numbers, tables.

Owns: making hostile text harmless, the look of lists. Refuses: the look of a conversation
(`recorder.commands.transcript`), reading the store.

What models, tools and users wrote is data from outside: an escape sequence in it could rewrite the screen, the title or
the clipboard, and a bidirectional mark could show a text that is not there. Every string that is printed goes through
`clean`, and none is ever read as rich's markup.
"""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

_UNWRAPPED: Final = 1_000_000
_KEPT: Final = frozenset("\n\t")
_STATE_STYLES: Final = {
    "completed": "green", "scored": "green", "trained": "green", "complete": "green",
    "errored": "red", "left_out": "red", "aborted": "red", "unscored": "yellow", "sealed-late": "yellow",
    "tried": "yellow",
}  # fmt: skip


def clean(text: object) -> str:
    """`text` with every control, format and surrogate character shown instead of sent to the terminal."""
    plain = str(text).replace("\r\n", "\n")
    return plain if plain.isascii() and plain.isprintable() else plain.translate(_SHOWN)


class _Shown(dict[int, str]):
    """Code point → what is shown of it, each looked at once: long texts are made of few."""

    def __missing__(self, code: int) -> str:
        self[code] = _visible(chr(code))
        return self[code]


_SHOWN: Final = _Shown()


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


def line(text: object, style: str = "") -> Text:
    """One line of harmless text."""
    return Text(clean(text).replace("\n", "⏎").replace("\t", " "), style=style)


def coloured(text: object) -> Text:
    """One line of harmless text, in its colour where it is the name of a state."""
    return line(text, _STATE_STYLES.get(str(text), ""))


def console() -> Console:
    """The terminal. What goes to a file or a pipe is plain, and no line of it is broken."""
    wide = Console(highlight=False, markup=False, emoji=False)
    return wide if wide.is_terminal else Console(highlight=False, markup=False, emoji=False, width=_UNWRAPPED)


def when(at: float | None) -> str:
    """A time (unix seconds) in the reader's zone."""
    return "" if at is None else time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def number(value: float | None) -> str:
    """A reward, or a dash where there is none."""
    return "–" if value is None else f"{value:.3g}"


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Iterable[str] = ()) -> Table:
    """A quiet table; every cell is made harmless, and states have their colour."""
    made = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for column in columns:
        made.add_column(line(column), justify="right" if column in set(right) else "left", overflow="fold")
    for row in rows:
        made.add_row(*(coloured("" if cell is None else cell) for cell in row))
    return made

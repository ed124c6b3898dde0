"""Hostile text, and what of it a terminal would obey."""

from __future__ import annotations

import io
import re
import unicodedata

from rich.console import Console, RenderableType

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202egnp.exe\u2066 [bold red]not markup[/] \ud800 \x00\r"


def harmless(text: str) -> bool:
    bad = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
    return all(c == "\n" or unicodedata.category(c) not in bad for c in text)


def printed(shown: RenderableType, *, colour: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=200, highlight=False, markup=False, emoji=False, force_terminal=colour)
    console.print(shown)
    return out.getvalue()


def uncoloured(shown: RenderableType) -> str:
    """What a terminal with colours gets, without the escapes that set colours."""
    return re.sub(r"\x1b\[[0-9;]*m", "", printed(shown, colour=True))

"""Rows of a Markdown table.

Owns: what a cell may hold. Refuses: which columns there are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a whole table. Cells are Markdown, one line each."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines)


def cell(text: str) -> str:
    """Return a text as one cell."""
    return " ".join(text.split()).replace("|", "\\|")


def code(text: str) -> str:
    """Return a value as inline code, even if it contains backticks."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{text}{fence}"

"""A database that is a file: another one may lie at its path later, or none.

Owns: telling which one it is. Refuses: opening it.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote


def existing(path: str) -> str:
    """SQLite's URI of a file that must be there: one that was deleted under us must not be made anew, empty."""
    return f"file:{quote(path)}?mode=rw"


def identity(path: str) -> tuple[int, int] | None:
    """Which file lies at a path: another one may lie there later."""
    try:
        found = Path(path).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino

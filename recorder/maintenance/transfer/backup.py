"""Copy a SQLite store's file while it is in use, or name the command for databases that have tools of their own.

Owns: the copy: a new file, private to its owner, checked, and complete or absent. Refuses: other files of the data
folder, and the schema: stores of older and newer versions of Hone are backed up as well.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sqlite3
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.engine import URL

from recorder.errors import StoreError
from recorder.store.sqlite import existing_file_uri

PAGES: Final = 4096  # a step: 16 MiB
_SNAPSHOT: Final = "SELECT count(*) FROM sqlite_master"  # SQLite takes it at the first read


@dataclass(frozen=True, slots=True)
class BackupResult:
    """A complete backup."""

    file: Path
    size_bytes: int


def back_up(source: Path, file: Path, report: Callable[[int, int], None] = lambda *_: None) -> BackupResult:
    """Copy SQLite's file at one moment; `report` is called with the number of copied pages and of all pages.

    One snapshot is read from the first page to the last, because under steady writing the copy would otherwise restart
    for ever. Until it is done SQLite's log grows. Raises StoreError if `file` exists or the copy fails its check.
    """
    if file.exists():
        raise StoreError(f"{file} exists already, and a backup overwrites nothing: name another file")
    try:
        draft = _draft(file)
        try:
            _copy(source, draft, report)
            _require_sound(draft)
            os.link(draft, file)  # unlike a rename it refuses a file that came meanwhile
        finally:
            for left in (draft, *(Path(f"{draft}{end}") for end in ("-wal", "-shm", "-journal"))):
                left.unlink(missing_ok=True)
    except (OSError, sqlite3.Error) as e:
        raise StoreError(f"the store {source} cannot be backed up to {file}: {e}") from e
    return BackupResult(file, file.stat().st_size)


def backup_command(url: URL, file: Path) -> str:
    """Return the command that backs up a PostgreSQL database, without its password."""
    # A socket's folder, which pg_dump accepts as the host; TLS by pg_dump's name for asyncpg's option.
    words = {"host": "host", "ssl": "sslmode", "sslmode": "sslmode"}
    query = {words[name]: value for name, value in url.query.items() if name in words}
    plain = URL.create("postgresql", url.username, None, url.host, url.port, url.database, query)
    address = plain.render_as_string().replace("%2F", "/")
    return f"pg_dump --format=custom --file={shlex.quote(str(file))} {shlex.quote(address)}"


def _draft(file: Path) -> Path:
    """Create an empty file in the same folder that only its owner can read, with `mkstemp`."""
    handle, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.absolute().parent)
    os.close(handle)
    return Path(name)


def _copy(source: Path, draft: Path, report: Callable[[int, int], None]) -> None:
    with (
        contextlib.closing(sqlite3.connect(existing_file_uri(str(source)), uri=True, isolation_level=None)) as read,
        contextlib.closing(sqlite3.connect(existing_file_uri(str(draft)), uri=True)) as written,
    ):
        read.execute("BEGIN")
        read.execute(_SNAPSHOT).fetchone()
        read.backup(written, pages=PAGES, progress=lambda _, left, pages: report(pages - left, pages), sleep=0)


def _require_sound(draft: Path) -> None:
    with contextlib.closing(sqlite3.connect(existing_file_uri(str(draft)), uri=True)) as copy:
        problems = [str(row[0]) for row in copy.execute("PRAGMA integrity_check(5)")]
    if problems != ["ok"]:
        raise StoreError(
            f"the copy failed its integrity check, so the store is probably damaged: {'; '.join(problems)}"
        )

"""The data folder: creation, ownership, and permissions that exclude all other users.

Owns: which names in it are Hone's, closing a folder that is open to others, rejecting a folder of another owner, and
letting one group read the adapters. Refuses: the content of its files.

Only Hone's names are touched, so the data folder may hold other files.
"""

from __future__ import annotations

import contextlib
import grp
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from recorder.errors import StoreError
from recorder.processes import file_modes

log = logging.getLogger(__name__)

ADAPTERS: Final = "adapters"
OURS: Final = (
    "hone.db*",
    "run.json",
    "run.new",
    "engine.json",
    "engine.new",
    "engine.key*",
    "logs",
    ADAPTERS,
    "checkpoints",
    "campaigns",
    "tracking",
)
_NOBODYS: Final = frozenset({"lost+found"})  # names that a new file system contains


def make_data_folder(data: Path) -> Path:
    """Create the data folder, or close the existing one to all other users. Returns its absolute path.

    Raises StoreError if it cannot be created, belongs to another user, or cannot be closed.
    """
    try:
        file_modes.make_folder(data)
        folder = data.resolve()
        _require_ours(folder)
        _mend(folder)
    except OSError as e:
        raise StoreError(f"cannot use the data folder {data}: {e}. Choose another with --data.") from e
    return folder


def share_adapters(data: Path, group: str | None) -> None:
    """Let a group, by name or number, read the adapters and nothing else; None: only the owner may.

    Raises StoreError if the group is unknown or this user is not in it.
    """
    adapters = data / ADAPTERS
    if group is None:
        if adapters.is_dir() and file_modes.is_shared(adapters):
            adapters.chmod(file_modes.FOLDER)
            _mend(data)
        return
    try:
        number = int(group) if group.isdecimal() else grp.getgrnam(group).gr_gid
        file_modes.make_folder(adapters)
        for path in _within(adapters):
            os.chown(path, -1, number)
            path.chmod(file_modes.SHARED_FOLDER if path.is_dir() else file_modes.SHARED_FILE)
        adapters.chmod(file_modes.SHARED_FOLDER | stat.S_ISGID)
        os.chown(data, -1, number)
        data.chmod(file_modes.FOLDER | stat.S_IXGRP)  # to traverse, not to list
    except (KeyError, OSError) as e:
        raise StoreError(
            f"the group {group!r} cannot be given the adapters in {adapters}: {e}. Set engine.adapter_group to a group "
            "that this user is in, or unset it."
        ) from e


def _require_ours(folder: Path) -> None:
    found = folder.stat()
    if found.st_uid != os.geteuid():
        raise StoreError(
            f"the data folder {folder} belongs to user {found.st_uid}, and this program runs as {os.geteuid()}: run it "
            "as that user, or choose another folder with --data."
        )
    names = {path.name for path in folder.iterdir()} - _NOBODYS
    if found.st_mode & 0o077 and names and not any(True for _ in _ours(folder)):
        raise StoreError(
            f"{folder} is open to others and contains other files than Hone's: choose a separate folder with --data, "
            f"or close this one with `chmod 700 {folder}`."
        )


def _mend(folder: Path) -> None:
    """Close files and folders that are open to others, and warn once.

    Files in a closed folder, such as a draft of a killed program, were not accessible: they are closed without a
    warning.
    """
    adapters = folder / ADAPTERS
    shared = adapters.is_dir() and file_modes.is_shared(adapters)
    opened = _closed(folder, file_modes.FOLDER | (stat.S_IXGRP if shared else 0))
    for top in _ours(folder):
        group = 0o050 if shared and top == adapters else 0
        for path in _within(top):
            reached = path.parent in opened or _is_open(path.parent)
            closed = _closed(path, file_modes.FOLDER | group)
            opened += closed if reached else []
    if opened:
        log.warning(
            "the data folder %s was open to others: %d of its files and folders are now accessible to the owner only "
            "(%s first)",
            folder, len(opened), opened[0],
        )  # fmt: skip


def _is_open(folder: Path) -> bool:
    with contextlib.suppress(FileNotFoundError):  # as below
        return bool(folder.stat().st_mode & 0o077)
    return False


def _closed(path: Path, allowed: int) -> list[Path]:
    """Remove permissions outside `allowed` from a file or folder; return it in a list if there were any."""
    with contextlib.suppress(FileNotFoundError):  # another process's draft, renamed meanwhile
        mode = stat.S_IMODE(path.lstat().st_mode)
        if mode & 0o077 & ~allowed:
            path.chmod(mode & ~(0o077 & ~allowed))
            return [path]
    return []


def _ours(folder: Path) -> Iterator[Path]:
    return (path for name in OURS for path in folder.glob(name))


def _within(top: Path) -> Iterator[Path]:
    """Yield this file or folder and everything in it. Links are not followed."""
    if top.is_symlink():
        return
    yield top
    for folder, folders, files in os.walk(top):
        yield from (path for name in (*folders, *files) if not (path := Path(folder, name)).is_symlink())

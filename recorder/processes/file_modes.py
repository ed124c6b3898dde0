"""Create files and folders that only their owner can read, whatever the umask and whatever existed before.

Owns: the modes, and creating or opening a file or folder with them. Refuses: which files exist
(`recorder.store.data_folder`).
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

FOLDER: Final = 0o700
FILE: Final = 0o600
SHARED_FOLDER: Final = 0o750
SHARED_FILE: Final = 0o640


def make_folder(path: Path) -> None:
    """Make a folder and its missing parents; only a new folder gets its mode here."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode=FOLDER, parents=True, exist_ok=True)
    for folder in missing:
        folder.chmod(FOLDER)  # the umask may have removed bits, and new parents have a wider mode


def private_opener(path: str, flags: int) -> int:
    """For `open(path, mode, opener=private_opener)`: only the owner can read the file, even if it existed before."""
    handle = os.open(path, flags | os.O_CLOEXEC, FILE)
    if stat.S_IMODE(os.fstat(handle).st_mode) != FILE:
        os.fchmod(handle, FILE)
    return handle


def write_private(path: Path, text: str) -> None:
    """Write a whole file that only its owner can read."""
    with open(path, "w", encoding="utf-8", opener=private_opener) as file:
        file.write(text)


def open_log(path: Path) -> BinaryIO:
    """Open a log file for appending."""
    return open(path, "ab", opener=private_opener)


def is_shared(folder: Path) -> bool:
    """Whether a group may read the files in this folder: it has the set-group-id bit, which also sets their group."""
    return bool(folder.stat().st_mode & stat.S_ISGID)


def folder_modes(folder: Path) -> tuple[int, int]:
    """Return the modes of a folder and of a file in this folder."""
    return (SHARED_FOLDER, SHARED_FILE) if is_shared(folder) else (FOLDER, FILE)

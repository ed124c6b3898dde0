"""Folders that appear completely or not at all.

Owns: writing to a temporary name, fsync, rename, sha256 of files. Refuses: the contents of a folder.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recorder.processes import file_modes

_UNFINISHED = ".unfinished-"
_RANDOM_BYTES = 8


@contextmanager
def unfinished_folder(parent: Path, owner: str) -> Iterator[Path]:
    """A new folder in `parent` to fill; removed at the end unless `finish_folder` renamed it."""
    file_modes.make_folder(parent)
    folder = parent / f"{_UNFINISHED}{owner}-{secrets.token_hex(_RANDOM_BYTES)}"
    folder.mkdir(mode=file_modes.FOLDER)
    try:
        yield folder
    finally:
        remove_folder(folder)


def finish_folder(folder: Path, name: str) -> Path:
    """Flush a folder to disk, make it readable like its parent, and rename it to `name`, which must be free."""
    folder_mode, file_mode = file_modes.folder_modes(folder.parent)
    for path in sorted(folder.iterdir()):
        path.chmod(file_mode)
        _fsync(path)
    folder.chmod(folder_mode)
    _fsync(folder)
    final = folder.parent / name
    folder.rename(final)
    _fsync(folder.parent)
    return final


def remove_unfinished(parent: Path, owner: str) -> None:
    """Remove half-written folders of a killed process of the same owner. Only that owner may call it."""
    for folder in parent.glob(f"{_UNFINISHED}*"):
        if folder.name[: -2 * _RANDOM_BYTES] == f"{_UNFINISHED}{owner}-":
            remove_folder(folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder with its contents; a missing folder is not an error."""
    shutil.rmtree(folder, ignore_errors=True)


def remove_empty(folder: Path) -> None:
    """Remove an empty folder that no group was given: its next user makes it again."""
    with suppress(OSError):
        if not file_modes.is_shared(folder):
            folder.rmdir()


def file_sha256(path: Path) -> str:
    """The file's sha256, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _fsync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

"""Adapters on disk: those of versions that may serve are there and are the ones that were published, and no others.

Owns: these invariants. Refuses: what is in an adapter: whoever loads one checks that.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Final

from sqlalchemy import select

from recorder.checking.look import Look, Violation, Violations
from recorder.states import UNDECIDED, VersionState
from recorder.store.schema import versions

_ADAPTERS: Final = "adapters"
_MANIFEST: Final = "manifest.json"
_UNFINISHED: Final = "."  # a trainer writes beside the final name, and its successor removes what it left
_SERVABLE: Final = (*sorted(UNDECIDED - {VersionState.ALLOCATED}), VersionState.LIVE, VersionState.RETIRED)


async def adapters_of_versions_that_may_serve_are_there(look: Look) -> Violations:
    """The folder of every version that may serve is there, with the manifest that the store knows."""
    query = select(versions).where(versions.c.number > 0, versions.c.state.in_(_SERVABLE), versions.c.path.is_not(None))
    async for row in look.find(query, versions.c.id):
        what = _wrong_with(Path(row.path), row.manifest_sha256)
        if what is not None:
            do = "put the folder back from a backup, or move the alias to a version that has one: `hone promote`"
            yield Violation("version", row.id, f"it is {row.state}, and {what}", do)


def _wrong_with(folder: Path, manifest_sha256: str | None) -> str | None:
    try:
        found = hashlib.sha256((folder / _MANIFEST).read_bytes()).hexdigest()
    except OSError as e:
        return f"{folder / _MANIFEST} cannot be read: {e.strerror}"
    return None if found == manifest_sha256 else f"{folder / _MANIFEST} is not the one that the store knows"


async def every_folder_has_a_version(look: Look) -> Violations:
    """Every folder among the adapters is that of a version which the store knows."""
    known = {
        Path(row.path).name
        async for row in look.find(select(versions.c.id, versions.c.path), versions.c.id)
        if row.path
    }
    for folder in sorted(_folders(look.data / _ADAPTERS)):
        if folder.name not in known:
            what = "no version of the store has this folder: its trainer died before the step was written"
            yield Violation("folder", str(folder), what, "remove it, once no trainer runs")


def _folders(adapters: Path) -> list[Path]:
    if not adapters.is_dir():
        return []
    return [one for one in adapters.iterdir() if one.is_dir() and not one.name.startswith(_UNFINISHED)]

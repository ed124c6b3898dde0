"""Folders of versions that nobody needs any more: removed, so that disks do not fill while an alias learns for months.

Owns: removing them, and what a trainer left that died between a folder's last rename and its step's commit. Refuses:
the rule (`recorder.upkeep.retention`). For the one process that holds the alias.
"""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from recorder.registry.aliases import AliasView
from recorder.registry.versions import slug
from recorder.store.database import Store
from recorder.upkeep.retention import known_folders, release_folders
from trainer.artifacts import durable
from trainer.step.core import Folders


async def remove_unneeded(store: Store, alias: AliasView, folders: Folders, keep: int) -> None:
    """Remove the folders of versions that are not needed, then those that no version of the store has."""
    for released in await release_folders(store, alias.id, keep):
        for path in filter(None, (released.path, released.checkpoint_path)):
            await asyncio.to_thread(durable.remove, Path(path))
    known = await known_folders(store)
    for parent in (folders.adapters, folders.checkpoints):
        for folder in _of_alias(parent, alias):
            if not {folder.name, folder.name.rpartition("-")[0]} & known:
                await asyncio.to_thread(durable.remove, folder)


def _of_alias(parent: Path, alias: AliasView) -> list[Path]:
    named = re.compile(re.escape(slug(alias.name)) + r"@\d+-[0-9a-f]{12}")
    return [folder for folder in parent.glob("*@*") if named.fullmatch(folder.name)]

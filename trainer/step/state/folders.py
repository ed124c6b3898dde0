"""The folders of versions and checkpoints on disk, and removing those that nothing needs.

Refuses: the rule of retention (`recorder.maintenance.retention`), and their contents (`trainer.step.state.files`).
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from pathlib import Path

from recorder.maintenance.retention import known_folders, release_folders
from recorder.processes import durable_folders
from recorder.registry.aliases import AliasView
from recorder.registry.engine_names import alias_slug
from recorder.store.database import Store
from trainer.artifacts import adapters
from trainer.settings import TrainerSettings


@dataclass(frozen=True, slots=True)
class TrainerFolders:
    """The folders of versions and checkpoints. A version's two folders have one name."""

    adapters: Path
    checkpoints: Path

    @classmethod
    def of(cls, data: Path) -> TrainerFolders:
        """The folders of a data folder."""
        return cls(data / "adapters", data / "checkpoints")


def remove_unfinished(folders: TrainerFolders, alias: AliasView) -> None:
    """Remove what a process that was killed left half written, and its adapters to try."""
    for folder in (folders.adapters, folders.checkpoints):
        durable_folders.remove_unfinished(folder, alias_slug(alias.name))
    adapters.remove_trials(folders.adapters, alias.name)


async def remove_unneeded(store: Store, alias: AliasView, folders: TrainerFolders, settings: TrainerSettings) -> None:
    """Remove the folders of versions that are not needed, then those that belong to no version in the store."""
    for released in await release_folders(store, alias.id, settings.keep_versions, settings.named_versions):
        for path in filter(None, (released.path, released.checkpoint_path)):
            await asyncio.to_thread(durable_folders.remove_folder, Path(path))
    known = await known_folders(store)
    for parent in (folders.adapters, folders.checkpoints):
        for folder in _of_alias(parent, alias):
            if not {folder.name, folder.name.rpartition("-")[0]} & known:
                await asyncio.to_thread(durable_folders.remove_folder, folder)


def _of_alias(parent: Path, alias: AliasView) -> list[Path]:
    named = re.compile(re.escape(alias_slug(alias.name)) + r"@\d+-[0-9a-f]{12}")
    return [folder for folder in parent.glob("*@*") if named.fullmatch(folder.name)]

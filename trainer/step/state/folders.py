"""The folders of versions and checkpoints on disk, and removing those that nothing needs.

Where `adapters.url` is set, an adapter's folder is there too: written before the version becomes visible in the store,
and removed there before it is removed here. So what is left here says what may be left there.

Refuses: the rule of retention (`recorder.maintenance.retention`), and their contents (`trainer.step.state.files`).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from recorder.adapters.storage import AdapterStorage, storage_at
from recorder.errors import AdapterDamaged, AdaptersUnavailable, NotFound, RecorderError
from recorder.maintenance.retention import known_folders, release_folders
from recorder.processes import durable_folders
from recorder.registry.aliases import AliasView
from recorder.registry.engine_names import alias_slug
from recorder.store.database import Store
from trainer.artifacts import adapters
from trainer.errors import VersionNotWritten
from trainer.settings import TrainerSettings
from trainer.step.state.results import WrittenStep

log = logging.getLogger(__name__)

_OWNER: Final = "learner"  # of unfinished copies


@dataclass(frozen=True, slots=True)
class TrainerFolders:
    """The folders of versions and checkpoints. A version's two folders have one name."""

    adapters: Path
    checkpoints: Path
    storage: AdapterStorage | None = None

    @classmethod
    def of(cls, data: Path, adapters_url: str | None = None) -> TrainerFolders:
        """The folders of a data folder. `adapters_url`: where adapters are shared, if not there."""
        return cls(data / "adapters", data / "checkpoints", storage_at(adapters_url))

    def publish(self, adapter: Path) -> None:
        """Share a complete adapter. Raises `VersionNotWritten`; then it is removed."""
        if self.storage is None:
            return
        try:
            self.storage.publish(adapter)
        except BaseException as e:
            self.remove_adapter(adapter)
            if isinstance(e, RecorderError):
                raise VersionNotWritten(str(e)) from e
            raise

    def fetch_missing(self, adapter: Path, manifest_sha256: str | None) -> None:
        """Fetch an adapter that this machine lost. Raises `AdaptersUnavailable`."""
        if self.storage is None or adapter.exists():
            return
        try:
            self.storage.fetch(adapter.name, adapter.parent, _OWNER, manifest_sha256)
        except (NotFound, AdapterDamaged) as e:  # what reads it says that it is missing
            log.warning("%s", e)

    def remove_adapter(self, adapter: Path) -> bool:
        """Remove an adapter. Return False if it stays, because it could not be removed from `adapters.url`."""
        if self.storage is not None:
            try:
                self.storage.remove(adapter.name)
            except AdaptersUnavailable as e:
                log.warning("%s It is tried again after the next step.", e)
                return False
        durable_folders.remove_folder(adapter)
        return True

    def remove_written(self, written: WrittenStep) -> None:
        """Remove a step's files: the store does not know them."""
        self.remove_adapter(written.published.path)
        durable_folders.remove_folder(written.checkpoint)


def remove_unfinished(folders: TrainerFolders, alias: AliasView) -> None:
    """Remove what a process that was killed left half written, and its adapters to try."""
    for folder in (folders.adapters, folders.checkpoints):
        durable_folders.remove_unfinished(folder, alias_slug(alias.name))
    for trial in adapters.list_trials(folders.adapters, alias.name):
        if not folders.remove_adapter(trial):
            break


async def remove_unneeded(store: Store, alias: AliasView, folders: TrainerFolders, settings: TrainerSettings) -> None:
    """Remove the folders of versions that are not needed, then those that belong to no version in the store."""
    unneeded = []
    for released in await release_folders(store, alias.id, settings.keep_versions, settings.named_versions):
        unneeded.append(Path(released.path))
        if released.checkpoint_path:
            await asyncio.to_thread(durable_folders.remove_folder, Path(released.checkpoint_path))
    known = await known_folders(store)
    for folder in _unknown(folders.checkpoints, alias, known):
        await asyncio.to_thread(durable_folders.remove_folder, folder)
    for folder in dict.fromkeys([*unneeded, *_unknown(folders.adapters, alias, known)]):
        if not await asyncio.to_thread(folders.remove_adapter, folder):
            break  # the storage is away: all of them are unknown the next time


async def publish_missing(store: Store, alias: AliasView, folders: TrainerFolders) -> None:
    """Share the adapters of versions that were made before `adapters.url` was set. Raises `AdaptersUnavailable`."""
    if folders.storage is None:
        return
    missing = await known_folders(store) - await asyncio.to_thread(folders.storage.names)
    for folder in _of_alias(folders.adapters, alias):
        if folder.name in missing:
            try:
                await asyncio.to_thread(folders.storage.publish, folder)
            except AdapterDamaged as e:
                log.warning("%s", e)


def _unknown(parent: Path, alias: AliasView, known: Collection[str]) -> list[Path]:
    """The folders of an alias that belong to no version in the store."""
    return [one for one in _of_alias(parent, alias) if not {one.name, one.name.rpartition("-")[0]} & set(known)]


def _of_alias(parent: Path, alias: AliasView) -> list[Path]:
    named = re.compile(re.escape(alias_slug(alias.name)) + r"@\d+-[0-9a-f]{12}")
    return [folder for folder in parent.glob("*@*") if named.fullmatch(folder.name)]

"""An adapter's files on this proxy's disk, where the controller checks them before an engine loads them.

Owns: fetching a missing folder from `adapters.url` beside the controller's rounds, and removing copies of what was
removed there. Refuses: checking the content (`proxy.versions.verification`), and the hosts of engines, which fetch for
themselves (`hone adapters sync`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import Final

from proxy.errors import AdapterError
from recorder.adapters.storage import storage_at
from recorder.adapters.sync import remove_gone
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import AdapterDamaged, AdaptersUnavailable, NotFound
from recorder.processes import durable_folders
from recorder.settings import AdapterSettings

log = logging.getLogger(__name__)

OWNER: Final = "proxy"  # of unfinished copies
AWAY_S: Final = 5.0  # between two tries while the storage does not answer


class AdapterFiles:
    """The folder `into` of this proxy: the data folder's adapters. Without a URL all files are there, or never come."""

    def __init__(self, settings: AdapterSettings | None = None, into: Path | None = None) -> None:
        settings = settings or AdapterSettings()
        self.wait_s = settings.wait_s
        self._storage = storage_at(settings.url)
        self._into = into
        self._fetches: dict[str, asyncio.Task[None]] = {}  # by folder name
        self._away_until = float("-inf")
        self._has_begun = False
        self._failing = RateLimitedLog(log)

    @property
    def are_fetched(self) -> bool:
        """Whether engines' hosts fetch adapters, so that a folder which an engine does not see may come."""
        return self._storage is not None

    def are_here(self, folder: Path, manifest_sha256: str | None) -> bool:
        """Whether a folder is on this disk. If it is missing it is fetched meanwhile: ask again soon.

        Raises AdapterError if it cannot be fetched, ever.
        """
        if self._storage is None or (folder.is_dir() and folder.name not in self._fetches):
            return True
        fetch = self._fetches.get(folder.name)
        if fetch is None:
            if time.monotonic() >= self._away_until:
                self._require_place(folder)
                self._fetches[folder.name] = asyncio.create_task(
                    asyncio.to_thread(self._fetch, folder.name, manifest_sha256), name=f"fetch {folder.name}"
                )
            return False
        if not fetch.done():
            return False
        del self._fetches[folder.name]
        try:
            fetch.result()
        except AdapterDamaged as e:
            raise AdapterError("manifest_mismatch", str(e)) from e
        except NotFound as e:
            raise AdapterError("file_missing", str(e)) from e
        except AdaptersUnavailable as e:
            self._failing(logging.WARNING, "%s", e)
            self._away_until = time.monotonic() + AWAY_S
            return False
        return True

    async def stop(self) -> None:
        """End the fetches. A thread that still copies ends by itself."""
        for fetch in self._fetches.values():
            fetch.cancel()
        await asyncio.gather(*self._fetches.values(), return_exceptions=True)

    def _require_place(self, folder: Path) -> None:
        if folder.parent != self._into:
            raise AdapterError(
                "file_missing",
                f"{folder.name} was written into {folder.parent}, and this proxy's adapters are in {self._into}: give "
                "learner, proxies and engines' hosts the same data folder (`data`), by its absolute path.",
            )

    def _fetch(self, name: str, manifest_sha256: str | None) -> None:
        assert self._storage is not None
        assert self._into is not None
        if not self._has_begun:
            durable_folders.remove_unfinished(self._into, OWNER)  # of a killed proxy
            self._has_begun = True
        self._storage.fetch(name, self._into, OWNER, manifest_sha256)
        remove_gone(self._storage, self._into)

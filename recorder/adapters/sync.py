"""A host's local copies of the adapters at `adapters.url`.

Owns: fetching what is there and not here, verified, the newest first; removing what was removed there on purpose.
Refuses: the store and the proxy: the URL alone says what is kept, because the learner removes a folder there only when
nothing needs it any more (`recorder.maintenance.retention`). A folder that is missing there without such a record
stays: an empty bucket takes no version from a running engine.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from recorder.adapters.folder_names import is_folder_name, order_to_fetch
from recorder.adapters.storage import AdapterStorage
from recorder.errors import AdapterDamaged, AdaptersUnavailable, NotFound
from recorder.processes import durable_folders

log = logging.getLogger(__name__)

OWNER: Final = "sync"  # of unfinished copies
FIRST_RETRY_S: Final = 5.0  # after a folder that could not be fetched; doubled each time …
LONGEST_RETRY_S: Final = 300.0  # … up to this
AWAY_RETRY_S: Final = 30.0  # as long at most, while the storage does not answer


@dataclass(slots=True)
class SyncResult:
    """What a pass did. `failed`: sentences. `is_complete`: False if it ended early to look for newer folders."""

    fetched: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    is_complete: bool = True


class AdapterSync:
    """Keeps the folder `into` as the storage is. One at a time on a folder."""

    def __init__(self, storage: AdapterStorage, into: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._storage = storage
        self._into = into
        self._clock = clock
        self._waits: dict[str, tuple[float, float]] = {}  # name → when it is tried again, seconds of its wait
        durable_folders.remove_unfinished(into, OWNER)  # of a killed one

    def run_pass(self, within_s: float | None = None) -> SyncResult:
        """Fetch and remove what differs. After `within_s` it ends early. Raises `AdaptersUnavailable` for a listing."""
        began, result = self._clock(), SyncResult()
        there = self._storage.names()
        here = _local_names(self._into)
        for name in order_to_fetch(there - here):
            if within_s is not None and result.fetched and self._clock() - began > within_s:
                result.is_complete = False
                return result
            if self._waits.get(name, (0.0, 0.0))[0] <= self._clock():
                self._fetch(name, result)
        result.removed += remove_gone(self._storage, self._into, there)
        self._waits = {name: wait for name, wait in self._waits.items() if name in there}
        return result

    def _fetch(self, name: str, result: SyncResult) -> None:
        try:
            self._storage.fetch(name, self._into, OWNER)
        except (AdapterDamaged, AdaptersUnavailable, NotFound) as e:
            if isinstance(e, NotFound) and self._storage.was_removed(name):  # since the listing
                return
            _, waited_s = self._waits.get(name, (0.0, 0.0))
            wait_s = min(max(FIRST_RETRY_S, 2 * waited_s), LONGEST_RETRY_S)
            self._waits[name] = self._clock() + wait_s, wait_s
            result.failed.append(f"{e} It is tried again in {wait_s:.0f} s.")
        else:
            self._waits.pop(name, None)
            result.fetched.append(name)


async def keep_in_sync(sync: AdapterSync, every_s: float, stopping: asyncio.Event) -> None:
    """Run passes until `stopping` is set, and log what they do. A storage that is away is asked again, less often."""
    pause_s = every_s
    while not stopping.is_set():
        try:
            result = await asyncio.to_thread(sync.run_pass, every_s)
        except AdaptersUnavailable as e:
            pause_s = min(max(2 * pause_s, FIRST_RETRY_S), AWAY_RETRY_S)
            log.error("%s The next try is in %.0f s; what was fetched stays.", e, pause_s)
        else:
            pause_s = every_s if result.is_complete else 0.0
            _log_result(result)
        if pause_s:
            try:
                await asyncio.wait_for(stopping.wait(), pause_s)
            except TimeoutError:
                continue


def _log_result(result: SyncResult) -> None:
    for name in result.fetched:
        log.info("%s is here, verified", name)
    for name in result.removed:
        log.info("%s is removed: nothing needs it any more", name)
    for sentence in result.failed:
        log.error("%s", sentence)


def remove_gone(storage: AdapterStorage, into: Path, there: set[str] | None = None) -> list[str]:
    """Remove the copies in `into` of what was removed from the storage on purpose. Return their names.

    `there`: the storage's names, if they are known. Raises `AdaptersUnavailable`.
    """
    here = _local_names(into)
    gone = sorted(here - (storage.names() if there is None else there))
    removed = [name for name in gone if storage.was_removed(name)]
    for name in removed:
        durable_folders.remove_folder(into / name)
    return removed


def _local_names(into: Path) -> set[str]:
    return {one.name for one in into.iterdir() if is_folder_name(one.name)} if into.is_dir() else set()

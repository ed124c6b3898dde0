"""Run the sweep for as long as a process lives: when something is due, in one process at a time.

Owns: when the next sweep runs, and the lease under which it runs. Refuses: what is due and what happens to it
(`recorder.maintenance.sweep`).

Any number of processes may run a sweeper. Each finds the next due time by one query; the first to take the lease
`sweep` then sweeps. Changes that can bring the due time forward wake it: ended trajectories, groups that change their
holder, a process that ended. New trajectories and calls do not wake it, because they are due a timeout later at the
earliest.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from recorder.errors import StoreError
from recorder.maintenance.sweep import next_due_query, seconds_until_due, sweep
from recorder.queue import leases
from recorder.queue.leases import PROXY
from recorder.settings import RecorderSettings
from recorder.store.changes import ChangeSignal, Topic
from recorder.store.database import Project

LEASE: Final = "sweep"
LEASE_S: Final = 60.0  # a longer sweep may overlap another without harm: each of its writes is guarded
BREATH_S: Final = 0.2  # between two looks, however much happens
LOOK_S: Final = 20.0  # the longest pause between two queries: claiming an attempt sends no notification
RETENTION_EVERY_S: Final = 60.0  # days need no haste, and no index
HICCUP_S: Final = 1.0

log = logging.getLogger(__name__)


class Sweeper:
    """Sweeps one project: `async with sweeper.running(): …`. `owner` names this process (`holders.holder_name`)."""

    def __init__(self, project: Project, settings: RecorderSettings, owner: str) -> None:
        self.sweeps = 0  # done by this process
        self._project = project
        self._settings = settings
        self._question = next_due_query(project.id, settings)  # built once: building it costs more than running it
        self._owner = owner
        self._stopping = False
        self._retained_at = float("-inf")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sweep until the block ends."""
        with self._project.store.watch.on(Topic.RUNS, Topic.GROUPS, Topic.LEASES) as news:
            task = asyncio.create_task(self._run(news), name="sweep")
            try:
                yield
            finally:
                self._stopping = True
                news.tell()
                await task  # not cancelled: a statement that is cut off leaves its connection's thread behind

    async def _run(self, news: ChangeSignal) -> None:
        within_s: float | None = None
        while True:
            await news.wait(within_s)
            if self._stopping:
                return
            try:
                within_s = await self._look()
            except StoreError as e:
                log.warning("the sweep is paused until the store answers: %s", e)
                within_s = HICCUP_S
            except Exception:  # one object that trips a bug of ours must not keep all others waiting for good
                log.exception("the sweep failed")
                within_s = LOOK_S
            await asyncio.sleep(BREATH_S)

    async def _look(self) -> float:
        """Sweep if anything is due; in how many seconds to look again."""
        await leases.release_all_dead(self._project, PROXY)
        due_s = await seconds_until_due(self._project.store, self._question)
        if due_s > 0 and not self._retention_is_due():
            settings = self._settings
            return min(due_s, settings.answered_idle_s, settings.idle_timeout_s, settings.group_timeout_s, LOOK_S)
        lease = await leases.acquire_lease(self._project, LEASE, self._owner, LEASE_S)
        if lease is None:  # another process sweeps now
            await leases.release_all_dead(self._project, LEASE)
            return HICCUP_S
        try:
            report = await sweep(self._project, self._settings)
        finally:
            await leases.release_lease(self._project.store, lease)
        self.sweeps += 1
        self._retained_at = time.monotonic()
        return BREATH_S if report.changed else HICCUP_S

    def _retention_is_due(self) -> bool:
        due = time.monotonic() - self._retained_at >= RETENTION_EVERY_S
        return self._settings.retention_days is not None and due

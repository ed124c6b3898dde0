"""The settings as they are now: those that a program started with, under the changes in the store.

Owns: following the changes, within 250 ms, and waking those who wait. A program has one follower, and reads it at the
moment of use. While the store is away, the last known values hold. Refuses: making changes
(`recorder.setting_changes.actions`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Final

from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import StoreError
from recorder.setting_changes.change_rows import SettingChange, read_changes
from recorder.setting_changes.changeable_settings import PAUSED
from recorder.setting_changes.overlay import lay_over
from recorder.settings import LearnSettings
from recorder.store.changes import Topic
from recorder.store.database import Project

log = logging.getLogger(__name__)

LOOK_S: Final = 10.0  # between two looks without a signal
RETRY_S: Final = 1.0  # while the store is away


class SettingsFollower:
    """The current settings of a project: `async with follower.running(): …`. One that does not run never changes.

    `started_with`: the settings of hone.toml, variables and flags.
    """

    def __init__(self, project: Project, started_with: HoneSettings) -> None:
        self.project = project
        self.started_with = started_with
        self._settings = started_with
        self._overrides = dict(started_with.overrides())
        self._stored: Mapping[str, SettingChange] = {}
        self._changes: Mapping[str, SettingChange] = {}  # those of them that apply
        self._refused: Mapping[str, str] = {}
        self._telling: list[Callable[[], None]] = []
        self._away = RateLimitedLog(log)

    @property
    def settings(self) -> HoneSettings:
        """All settings in force."""
        return self._settings

    @property
    def learn(self) -> LearnSettings:
        """`[learn]` in force."""
        return self._settings.learn

    @property
    def overrides(self) -> Mapping[str, Mapping[str, float]]:
        """The sampling values that replace a client's, by alias: one mapping, which has the values of now."""
        return self._overrides

    def aliases(self) -> dict[str, AliasSettings]:
        """The declared aliases in force, by name."""
        return self._settings.declared_aliases()

    @property
    def changes(self) -> Mapping[str, SettingChange]:
        """The changes in force, by key."""
        return self._changes

    @property
    def refused(self) -> Mapping[str, str]:
        """By key, why a stored change does not apply."""
        return self._refused

    @property
    def pause(self) -> SettingChange | None:
        """The change that pauses learning, if one does."""
        return self._changes.get(PAUSED) if self.learn.paused else None

    @contextmanager
    def telling(self, tell: Callable[[], None]) -> Iterator[None]:
        """Call `tell` after each change, until the block ends: by then the new values can be read."""
        self._telling.append(tell)
        try:
            yield
        finally:
            self._telling.remove(tell)

    async def refresh(self) -> None:
        """Read the changes now. Raises StoreError."""
        changes = await read_changes(self.project)
        if changes == self._stored:
            return
        self._stored = changes
        laid = lay_over(self.started_with, {key: one.after for key, one in changes.items()})
        for key, why in laid.refused.items():
            if self._refused.get(key) != why:
                log.warning("the change of %s by %s does not apply: %s", key, changes[key].by, why)
        self._changes = {key: one for key, one in changes.items() if key not in laid.refused}
        self._settings, self._refused = laid.settings, laid.refused
        self._overrides.clear()
        self._overrides.update(laid.settings.overrides())
        for tell in (*self._telling,):
            tell()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Read the changes, and follow them until the block ends. Raises StoreError if the first look fails."""
        await self.refresh()
        stopping = asyncio.Event()
        task = asyncio.create_task(self._follow(stopping), name="follow settings")
        try:
            yield
        finally:
            stopping.set()
            await task  # not cancelled: an interrupted statement leaks its connection's thread

    async def _follow(self, stopping: asyncio.Event) -> None:
        waiting = asyncio.create_task(stopping.wait())
        try:
            with self.project.store.watch.on(Topic.SETTINGS) as news:
                waiting.add_done_callback(lambda _: news.tell())
                within_s = LOOK_S
                while not stopping.is_set():
                    await news.wait(within_s)
                    if not stopping.is_set():
                        within_s = await self._look()
        finally:
            waiting.cancel()

    async def _look(self) -> float:
        try:
            await self.refresh()
        except StoreError as e:
            self._away(logging.WARNING, "changes of settings cannot be read, and the last known hold: %s", e)
            return RETRY_S
        return LOOK_S

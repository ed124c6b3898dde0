"""The engine replicas as the controller sees them: who answers, what each holds, what each is offered for.

Owns: watching every replica, loading what it lacks before it takes requests, and reporting it to the store.
Refuses: deciding which versions are kept (`proxy.versions.pins`) or admitted (`proxy.versions.controller`).

A replica's `loaded` list in the store is what proxies may ask it for: a version is taken off that list first, and
unloaded when no proxy holds it any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Literal

from proxy.engine.replica import Replica, ServedModels
from proxy.errors import AdapterError, EngineError, EngineUnreachable
from recorder.registry import replicas
from recorder.registry.versions import VersionView
from recorder.store.database import Project

log = logging.getLogger(__name__)

WATCH_UP_S = 5.0  # a request that meets an engine's death tells of it at once
WATCH_DOWN_S = 0.3
WATCH_TIMEOUT_S = 10.0
REPORT_EVERY_S = 10.0

State = Literal["up", "down", "starting"]


class Member:
    """One replica: its latest observation, and what is reported of it."""

    def __init__(self, replica: Replica, patience_s: float) -> None:
        self.replica = replica
        self.state: State = "starting"
        self.detail: str | None = None
        self.served: ServedModels | None = None
        self.fingerprint: str | None = None  # of what it serves, once that was looked at; never of an earlier run
        self.unfit: str | None = None  # why what it serves must not be used, though it answers
        self.lacks: frozenset[str] = frozenset()  # what it was to load and refused
        self.offered: frozenset[str] = frozenset()
        self._patience_s = patience_s
        self._looking = asyncio.Lock()
        self.doubt = asyncio.Event()  # set: somebody could not reach it
        self._answered_at = float("-inf")
        self._reported: object = None
        self._reported_at = float("-inf")

    @property
    def url(self) -> str:
        """Where it is."""
        return self.replica.url

    @property
    def adapters(self) -> dict[str, str]:
        """Engine name → folder of the adapters that it holds, as last seen."""
        return dict(self.served.adapters) if self.served else {}

    async def look(self) -> None:
        """Ask what it serves. One that refuses connections is down at once, one that is slow after some patience."""
        async with self._looking:  # or an answer from before a load could come after it
            await self._look()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(WATCH_TIMEOUT_S):
                self.served = await self.replica.served()
            self._answered_at = time.monotonic()
            if self.state == "down" and self.unfit is None:  # an answer alone makes nothing fit
                self.state, self.detail = "starting", None
        except TimeoutError:
            if time.monotonic() - self._answered_at > self._patience_s:
                self.went_down(f"no answer for {self._patience_s:.0f} s")
        except EngineError as e:
            self.went_down(str(e))

    def went_down(self, why: str) -> None:
        """It takes no requests until it has been seen, and loaded, again."""
        self.state, self.detail, self.served, self.unfit = "down", why, None, None
        self.offered, self.fingerprint = frozenset(), None

    def found_unfit(self, why: str) -> None:
        """It answers and takes no requests, until what it serves is found fit. Said once, however often it is found."""
        if why != self.unfit:
            log.error("%s is not used: %s", self.url, why)
        self.state, self.detail, self.unfit = "down", why, why
        self.offered = frozenset()

    def found_fit(self) -> None:
        """What it serves may be used."""
        if self.unfit is not None:
            self.state, self.detail, self.unfit = "starting", None, None

    def now_up(self, keep: Collection[str]) -> None:
        """It takes requests for its base and for what it holds of `keep` (engine names)."""
        assert self.served is not None
        self.state = "up"
        self.offered = frozenset(self.served.bases) | (frozenset(keep) & frozenset(self.served.adapters))

    async def load(self, version: VersionView) -> None:
        """Load a version. Raises EngineUnreachable, AdapterError."""
        assert version.path is not None
        await self.replica.load(version.engine_name, version.path)
        await self.look()

    async def unload(self, engine_name: str) -> None:
        """Unload an adapter. Raises EngineError."""
        await self.replica.unload(engine_name)
        await self.look()

    async def report(self, project: Project) -> None:
        """Write its row where it changed, or is due."""
        base = next(iter(self.served.bases), None) if self.served else None
        content = (self.state, self.detail, self.offered, base, self.fingerprint)
        now = time.monotonic()
        if content == self._reported:
            if now - self._reported_at < REPORT_EVERY_S:
                return
            if await replicas.touch_replica(project, self.url):
                self._reported_at = now
                return
        await replicas.report_replica(
            project,
            self.url,
            state=self.state,
            loaded=sorted(self.offered),
            base_model=base,
            base_fingerprint=self.fingerprint,
            detail=self.detail,
        )
        self._reported, self._reported_at = content, now


class Fleet:
    """All replicas. `start()` watches them until `stop()`; `changed` is called when one is not as it was."""

    def __init__(self, project: Project, members: Iterable[Member], changed: Callable[[], None] = lambda: None) -> None:
        self._project = project
        self._changed = changed
        self.members: Sequence[Member] = tuple(members)
        self._watchers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Watch every replica from now on."""
        self._watchers = [asyncio.create_task(self._watch(m), name=f"watch {m.url}") for m in self.members]

    async def stop(self) -> None:
        """Stop watching and close connections."""
        for task in self._watchers:
            task.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for member in self.members:
            await member.replica.close()

    def suspect(self, url: str) -> None:
        """Look at a replica at once: a request could not reach it."""
        for member in self.members:
            if member.url == url:
                member.doubt.set()

    def up(self) -> list[Member]:
        """Replicas that take requests."""
        return [m for m in self.members if m.state == "up"]

    async def take_over(self) -> None:
        """Begin to speak for the replicas: forget engines that are no longer configured, and proxies long gone."""
        urls = {m.url for m in self.members}
        for row in await replicas.list_replicas(self._project):
            if row.url not in urls:
                await replicas.forget_replica(self._project, row.url)
        await replicas.forget_gone_proxies(self._project)

    async def reconcile(self, keep: Sequence[VersionView]) -> None:
        """Give every replica that answers what it lacks, and let it take requests for what it has of `keep`."""
        await asyncio.gather(*(self._reconcile(member, keep) for member in self.members))

    async def _reconcile(self, member: Member, keep: Sequence[VersionView]) -> None:
        # One that came back amid this round was not looked at yet: it may serve another base than before.
        if member.served is None or member.unfit is not None or member.fingerprint is None:
            return
        missing = [v for v in keep if member.adapters.get(v.engine_name) != v.path]
        refused: list[str] = []
        for version in missing:
            try:
                await member.load(version)
            except EngineUnreachable as e:
                member.went_down(str(e))
                return
            except AdapterError as e:
                refused.append(version.engine_name)
                member.detail = str(e)
                log.error("%s cannot be served: %s", version.name, e)
        member.lacks = frozenset(refused)
        if not refused:
            member.detail = None
        if member.served is not None:
            member.now_up({v.engine_name for v in keep} - set(refused))

    async def report(self) -> None:
        """Write what changed."""
        for member in self.members:
            await member.report(self._project)

    async def _watch(self, member: Member) -> None:
        while True:
            before = member.state, member.served
            await member.look()
            if (member.state, member.served) != before:
                self._changed()
            if member.served is None:
                await asyncio.sleep(WATCH_DOWN_S)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(WATCH_UP_S):
                    await member.doubt.wait()
            member.doubt.clear()

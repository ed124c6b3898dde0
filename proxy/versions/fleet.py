"""The engine replicas as the controller sees them: which answer, what each holds, and what each may be asked for.

Owns: watching every replica, loading missing adapters before it takes requests, and reporting it to the store. Refuses:
which versions are kept (`proxy.versions.pins`) or admitted (`proxy.versions.controller`).

A replica's `loaded` list in the store is what proxies may ask it for: a version is first removed from that list, and
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
from recorder.registry.replicas import ReplicaView
from recorder.registry.versions import VersionView
from recorder.store.database import Project

log = logging.getLogger(__name__)

WATCH_UP_S = 5.0  # a request that fails on an engine reports it at once
WATCH_DOWN_S = 0.3
WATCH_TIMEOUT_S = 10.0
REPORT_EVERY_S = 10.0
_ANY_TOKEN = (1,)  # ids of every vocabulary

State = Literal["up", "down", "starting", "asleep"]


class Member:
    """One replica: its latest observation, and what is reported about it."""

    def __init__(self, replica: Replica, patience_s: float) -> None:
        self.replica = replica
        self.state: State = "starting"
        self.detail: str | None = None
        self.served: ServedModels | None = None
        self.fingerprint: str | None = None  # of what it serves, once that was checked; reset when it goes down
        self.unfit: str | None = None  # why it must not be used although it answers
        self.lacks: frozenset[str] = frozenset()  # versions that it refused to load
        self.unseen: str | None = None  # that it does not see a new version, which its host may still fetch
        self.offered: frozenset[str] = frozenset()
        self.paused_for: int | None = None  # the epoch of the lease `gpu` that it is asleep for
        self.is_known_awake = False  # whether it was seen awake since it started, or since its last pause
        self.pause_error: str | None = None  # why it could not be paused or woken
        self._patience_s = patience_s
        self._looking = asyncio.Lock()
        self.doubt = asyncio.Event()  # set: a request could not reach it
        self._answered_at = float("-inf")
        self._reported: object = None
        self._reported_at = float("-inf")
        self._inherited: frozenset[str] | None = None  # models in the row of the controller before this one

    @property
    def url(self) -> str:
        """Its URL."""
        return self.replica.url

    @property
    def adapters(self) -> dict[str, str]:
        """Engine name → folder of its adapters, as last seen."""
        return dict(self.served.adapters) if self.served else {}

    def holds(self, version: VersionView) -> bool:
        """Whether it had a version loaded, from the version's folder, as last seen."""
        return version.path is not None and self.adapters.get(version.engine_name) == version.path

    async def look(self) -> None:
        """Ask what it serves. It is down at once if it refuses connections, and after some patience if it is slow."""
        async with self._looking:  # so that no older answer arrives after a load
            await self._look()

    async def _look(self) -> None:
        try:
            async with asyncio.timeout(WATCH_TIMEOUT_S):
                self.served = await self.replica.served()
            self._answered_at = time.monotonic()
            if self.state == "down" and self.unfit is None:  # an answer alone does not make it fit
                self.state, self.detail = "starting", None
        except TimeoutError:
            if time.monotonic() - self._answered_at > self._patience_s:
                self.mark_down(f"no answer for {self._patience_s:.0f} s")
        except EngineError as e:
            self.mark_down(str(e))

    def mark_down(self, why: str) -> None:
        """Mark it as down: it takes no requests until it was seen, and loaded, again."""
        self.state, self.detail, self.served, self.unfit = "down", why, None, None
        self.offered, self.fingerprint = frozenset(), None
        self.forget_pause()

    def mark_asleep(self, epoch: int, keep: Collection[str], why: str | None) -> None:
        """Mark it as asleep: it takes requests for what it holds, and they wait until it is awake."""
        assert self.served is not None
        self.state, self.detail, self.paused_for, self.pause_error = "asleep", why, epoch, None
        self.offered = frozenset(self.served.bases) | (frozenset(keep) & frozenset(self.served.adapters))

    def mark_awake(self) -> None:
        """Mark it as awake: missing adapters are loaded, then it takes requests again."""
        if self.state == "asleep":
            self.state, self.detail = "starting", None
        self.paused_for, self.pause_error, self.is_known_awake = None, None, True

    def forget_pause(self) -> None:
        """Forget whether it is paused, because it was away, or another controller paused it."""
        self.paused_for, self.pause_error, self.is_known_awake = None, None, False

    def mark_unfit(self, why: str) -> None:
        """Mark it as unfit: it answers, but takes no requests until its base is found fit. Logged once per reason."""
        if why != self.unfit:
            log.error("%s is not used: %s", self.url, why)
        self.state, self.detail, self.unfit = "down", why, why
        self.offered = frozenset()

    def mark_fit(self) -> None:
        """Mark it as fit: its base may be used."""
        if self.unfit is not None:
            self.state, self.detail, self.unfit = "starting", None, None

    def mark_up(self, keep: Collection[str]) -> None:
        """Mark it as up: it takes requests for its base and for those of `keep` (engine names) that it holds."""
        assert self.served is not None
        self.state = "up"
        self.offered = frozenset(self.served.bases) | (frozenset(keep) & frozenset(self.served.adapters))

    async def load(self, version: VersionView) -> None:
        """Load a version. Raises EngineUnreachable, AdapterError."""
        assert version.path is not None
        await self.replica.load(version.engine_name, version.path)
        await self.look()

    async def try_adapter(self, engine_name: str, path: str) -> None:
        """Load an adapter and unload it at once. Raises AdapterError, and EngineError if it may still be loaded.

        Some engines lose their base with their last adapter. There it is loaded again, and stays.
        """
        await self.replica.load(engine_name, path)
        await self.unload(engine_name)
        if await self._answers_for_base():
            return
        log.warning("%s does not answer for its base without an adapter: %s stays loaded", self.url, engine_name)
        with contextlib.suppress(EngineError):  # the adapter was accepted, whatever follows
            await self.replica.load(engine_name, path)
            await self.replica.logprobs(engine_name, _ANY_TOKEN, _ANY_TOKEN)
        await self.look()

    async def _answers_for_base(self) -> bool:
        base = next(iter(self.served.bases), None) if self.served else None
        if base is None:
            return True
        try:
            await self.replica.logprobs(base, _ANY_TOKEN, _ANY_TOKEN)
        except EngineUnreachable:
            raise
        except EngineError:
            return False
        return True

    async def ask_one_token(self) -> None:
        """Let it compute one token with an adapter, or with its base if it has none. Raises EngineError."""
        name = next(iter([*self.adapters, *(self.served.bases if self.served else ())]), None)
        if name is not None:
            await self.replica.logprobs(name, _ANY_TOKEN, _ANY_TOKEN)

    async def unload(self, engine_name: str) -> None:
        """Unload an adapter. Raises EngineError."""
        await self.replica.unload(engine_name)
        await self.look()

    def inherit(self, row: ReplicaView | None) -> None:
        """Take over its row from another controller. A replica that was up stays up until this controller has seen a
        reason against it: requests go on meanwhile.
        """
        self.forget_pause()
        self._reported = None
        self._inherited = frozenset(row.loaded) if row is not None and row.state in ("up", "asleep") else None

    def _contradicts(self, inherited: frozenset[str]) -> bool:
        """Whether it was seen without one of these models."""
        return self.served is not None and not inherited <= self.served.bases.keys() | self.served.adapters.keys()

    async def report(self, project: Project) -> None:
        """Write its row if it changed, or if that is due; not while only an inherited row tells whether it is up."""
        if self._inherited is not None and self.state == "starting" and not self._contradicts(self._inherited):
            return
        self._inherited = None
        base = next(iter(self.served.bases), None) if self.served else None
        detail = self.pause_error or self.detail or self.unseen
        content = (self.state, detail, self.offered, base, self.fingerprint)
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
            detail=detail,
        )
        self._reported, self._reported_at = content, now


class Fleet:
    """All replicas. `start()` watches them until `stop()`; `changed` is called when one has changed."""

    def __init__(self, project: Project, members: Iterable[Member], changed: Callable[[], None] = lambda: None) -> None:
        self._project = project
        self._changed = changed
        self.members: Sequence[Member] = tuple(members)
        self._watchers: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start watching every replica."""
        self._watchers = [asyncio.create_task(self._watch(m), name=f"watch {m.url}") for m in self.members]

    async def stop(self) -> None:
        """Stop watching and close connections."""
        for task in self._watchers:
            task.cancel()
        await asyncio.gather(*self._watchers, return_exceptions=True)
        for member in self.members:
            await member.replica.close()

    def suspect(self, url: str) -> None:
        """Check a replica at once: a request could not reach it."""
        for member in self.members:
            if member.url == url:
                member.doubt.set()

    def up(self) -> list[Member]:
        """Return the replicas that take requests."""
        return [m for m in self.members if m.state == "up"]

    async def take_over(self) -> None:
        """Take charge of the replicas: delete the rows of engines that are no longer configured, and of proxies that
        stopped long ago.
        """
        rows = {row.url: row for row in await replicas.list_replicas(self._project)}
        for member in self.members:
            member.inherit(rows.pop(member.url, None))
        for url in rows:
            await replicas.forget_replica(self._project, url)
        await replicas.forget_gone_proxies(self._project)

    async def reconcile(self, keep: Sequence[VersionView]) -> None:
        """Load missing versions of `keep` on every replica that answers, and let it take requests for those it has."""
        await asyncio.gather(*(self._reconcile(member, keep) for member in self.members))

    async def _reconcile(self, member: Member, keep: Sequence[VersionView]) -> None:
        # A replica that came back during this round was not checked yet: it may serve another base than before.
        if member.served is None or member.unfit is not None or member.fingerprint is None or member.state == "asleep":
            return
        missing = [v for v in keep if not member.holds(v)]
        refused: list[str] = []
        for version in missing:
            try:
                await member.load(version)
            except EngineUnreachable as e:
                member.mark_down(str(e))
                return
            except AdapterError as e:
                refused.append(version.engine_name)
                if member.detail != str(e):  # it is tried again in every round
                    log.error("%s cannot be served: %s", version.name, e)
                member.detail = str(e)
        member.lacks = frozenset(refused)
        if not refused:
            member.detail = None
        if member.served is not None:
            member.mark_up({v.engine_name for v in keep} - set(refused))

    async def report(self) -> None:
        """Write the rows that changed."""
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

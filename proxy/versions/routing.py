"""Routing: which version and which engine serve a request, from a snapshot that follows the store.

Owns: the snapshot of aliases, versions and replicas, names (`helpdesk`, `helpdesk@3`), routing, and the count of
requests in flight that the controller waits for. Refuses: moving aliases and loading adapters (the controller does),
and any I/O while a request is routed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from proxy.errors import NoReplica
from proxy.settings.sections import ProxySettings
from proxy.versions import affinity, pins
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import StoreError
from recorder.ids import new_id
from recorder.messages.calls import TrajectoryRef
from recorder.registry import replicas
from recorder.registry.aliases import AliasView, read_aliases
from recorder.registry.replicas import ReplicaView
from recorder.registry.versions import VersionView, read_versions, repin_trajectory
from recorder.store import sql
from recorder.store.changes import ChangeSignal, Topic
from recorder.store.database import Project

log = logging.getLogger(__name__)

REPORT_EVERY_S = 10.0  # a proxy reports at least this often, which distinguishes a quiet one from a dead one
RETRY_S = 0.25  # after a failed read of the store
AVOID_S = 1.0  # how long another replica is preferred after a connection failed


@dataclass(frozen=True, slots=True)
class Target:
    """What a request's `model` names: an alias, and a version if it names one (`helpdesk@3`)."""

    alias: AliasView
    version: VersionView | None = None


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes."""

    version: VersionView
    engine_model: str  # the `model` for the engine
    replica_url: str  # without /v1
    engine_key: str | None
    base_fingerprint: str | None
    moved: bool = False  # the trajectory's pin to another version ended
    stays: bool = False  # the trajectory stays on this engine once it has answered


TAKING: Final = ("up", "asleep")  # states of replicas that take requests


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The store's aliases, versions and replicas at one moment. `ahead_s`: the database's clock minus ours."""

    aliases: Mapping[str, AliasView] = field(default_factory=dict)  # by name
    versions: Mapping[str, VersionView] = field(default_factory=dict)  # by id
    replicas: tuple[ReplicaView, ...] = ()
    ahead_s: float = 0.0

    def up(self) -> list[ReplicaView]:
        """Return the replicas that take requests; one that is asleep answers them after its pause."""
        return [r for r in self.replicas if r.state in TAKING]

    def has(self, version: VersionView) -> list[ReplicaView]:
        """Return the replicas that take requests and hold this version."""
        return [r for r in self.replicas if r.state in TAKING and version.engine_name in r.loaded]

    def version_named(self, alias: AliasView, number: str) -> VersionView | None:
        """Return the version `alias@number`, or None."""
        return next(
            (v for v in self.versions.values() if v.alias_id == alias.id and str(v.number) == number),
            None,
        )


class HeldRoute:
    """The context of a request in flight. No generator: 6 function calls less for each request."""

    __slots__ = ("_route", "_router")

    def __init__(self, router: ServiceRouter, route: Route) -> None:
        self._router = router
        self._route = route

    def __enter__(self) -> None:
        self._router.begin(self._route)

    def __exit__(self, *_: object) -> None:
        self._router.end(self._route)


class ServiceRouter:
    """What is in service now, as this process knows it. `start()` it, then route without I/O; `stop()` it."""

    def __init__(
        self,
        project: Project,
        settings: ProxySettings,
        *,
        proxy_url: str = "",
        engine_key: str | None = None,
        proxy_id: str | None = None,
        declared: Collection[str] = (),
    ) -> None:
        self.proxy_id = proxy_id or new_id("proxy")
        self.on_failure: Callable[[str], None] = lambda url: (
            None
        )  # called with the URL of an engine that could not be reached
        self._project = project
        self._settings = settings
        self._proxy_url = proxy_url
        self.engine_key = engine_key
        self.declared = tuple(declared)  # aliases of the settings: the store has them a moment after the first start
        self._snapshot = Snapshot()
        self._in_flight: Counter[str] = Counter()  # by version id
        self._busy: Counter[str] = Counter()  # by replica URL
        self._avoid_until: dict[str, float] = {}
        self._reported: object = None
        self._reported_at = float("-inf")
        self._refreshing = asyncio.Lock()
        self._stopping = asyncio.Event()
        self._news = ChangeSignal()
        self._follower: asyncio.Task[None] | None = None
        self._broken = RateLimitedLog(log)

    async def start(self) -> None:
        """Read the store once, then follow it until `stop()`."""
        await self.refresh()
        self._follower = asyncio.create_task(self._follow(), name="versions in service")

    async def stop(self) -> None:
        """Stop following, and remove this proxy from the store's list."""
        self._stopping.set()
        self._news.tell()
        if self._follower is not None:
            await self._follower  # not cancelled: a cancelled statement leaks its connection's thread
        await replicas.forget_proxy(self._project.store, self.proxy_id)

    @property
    def snapshot(self) -> Snapshot:
        """The latest snapshot."""
        return self._snapshot

    # --- names

    def resolve(self, model: str) -> Target | None:
        """Return what `model` names: an alias, or one version of it that is in service. None: unknown.

        Raises `NoReplica` for a declared alias that the store does not have yet, and for a version that engines load.
        """
        name, at, number = model.rpartition("@")
        snapshot = self._snapshot
        alias = snapshot.aliases.get(model)
        if alias is not None:
            return Target(alias)
        if model in self.declared or (at and name in self.declared and name not in snapshot.aliases):
            raise NoReplica(f"the alias {model!r} is not in service yet, because Hone is starting: retry in a moment.")
        alias = snapshot.aliases.get(name) if at else None
        version = snapshot.version_named(alias, number) if alias else None
        if alias is None or version is None:
            return None
        if self._in_service(version):
            return Target(alias, version)
        if pins.is_needed(version, alias, snapshot.versions):
            raise NoReplica(self._why_not(version))
        return None

    def models(self) -> list[dict[str, Any]]:
        """Return OpenAI model objects: every alias, also one that is only declared so far, every version that can be
        requested by name, other providers' models.
        """
        snapshot = self._snapshot
        cards = [
            _card(alias.name, snapshot.versions.get(alias.live_version_id or "")) for alias in snapshot.aliases.values()
        ]
        cards += [_card(name, None) for name in self.declared if name not in snapshot.aliases]
        cards += [_card(v.name, v) for v in snapshot.versions.values() if self._in_service(v)]
        return cards + [_card(model.name, None) for model in self._settings.models]

    def _in_service(self, version: VersionView) -> bool:
        return version.number == 0 or bool(self._snapshot.has(version))

    # --- routing

    def offer(self, alias: AliasView, key: str, *, may_hold: bool = False) -> str:
        """Return the version id for a new trajectory. `key`, its group's id or its own, decides the draw; with
        `may_hold` that may be the held-back version before the live one. Raises NoReplica if the alias has no live
        version.
        """
        current = self._snapshot.aliases.get(alias.name, alias)
        drawn = pins.draw_version(current, key, self._held_back(current) if may_hold else None)
        if drawn is None:
            raise NoReplica(f"the alias {alias.name!r} has no live version: see `hone versions`.")
        return drawn

    def _held_back(self, alias: AliasView) -> str | None:
        """The version id that a share of new trajectories stays on, if an engine holds it."""
        version = self._snapshot.versions.get(pins.holdback_version(alias, self.clock()) or "")
        return version.id if version is not None and self._snapshot.has(version) else None

    def clock(self) -> float:
        """Return the database's clock in unix seconds, as of the latest refresh."""
        return time.time() + self._snapshot.ahead_s

    def route(
        self,
        alias: AliasView,
        pinned: str | None = None,
        exact: VersionView | None = None,
        *,
        key: str | None = None,
        engine_url: str | None = None,
    ) -> Route:
        """Return where a request goes: to the `exact` version if one is named, else to a valid pin, else to the live
        version; of its engines, to `engine_url` if it can serve now, else to the one that `key` decides.

        Without a key, the engine with the fewest calls in flight is taken. Raises `NoReplica` if no engine can serve it
        now: answer 503 with Retry-After.
        """
        alias = self._snapshot.aliases.get(alias.name, alias)
        version = exact or self._pinned(alias, pinned) or self._live(alias)
        holders = self._snapshot.has(version)
        if not holders:
            raise NoReplica(self._why_not(version))
        # a trajectory that uses two aliases has the engine of one of them, as its pin is on one of them
        stays = key is not None and (pinned is None or self._is_pin_of(alias, pinned))
        return Route(
            version=version,
            engine_model=version.engine_name,
            replica_url=self.choose_engine(holders, key, engine_url if stays else None),
            engine_key=self.engine_key,
            base_fingerprint=version.base_fingerprint or alias.base_fingerprint,
            moved=exact is None and version.id != pinned and self._is_pin_of(alias, pinned),
            stays=stays,
        )

    def route_trajectory(self, target: Target, trajectory: TrajectoryRef) -> Route:
        """Return where a call of a trajectory goes, by its pin and its engine. Raises NoReplica."""
        return self.route(
            target.alias,
            trajectory.version_id,
            target.version,
            key=affinity.affinity_key(trajectory),
            engine_url=trajectory.engine_url,
        )

    def has_choice(self) -> bool:
        """Return whether more than one engine takes requests."""
        return len(self._snapshot.up()) > 1

    def choose_engine(self, holders: Sequence[ReplicaView], key: str | None, engine_url: str | None) -> str:
        """Return the URL of one of these engines: `engine_url` if it is one of the best, else the one that `key`
        decides, without a key the least busy one. The best are awake and did not fail a moment ago, if any is so.
        """
        if len(holders) == 1:
            return holders[0].url
        hindered = {one.url: self._hindrance(one) for one in holders}
        best = min(hindered.values())
        in_flight = {url: self._busy[url] for url, hindrance in hindered.items() if hindrance == best}
        if engine_url in in_flight:
            return engine_url
        return affinity.choose_engine(key, in_flight) if key is not None else affinity.least_busy(in_flight)

    def serving(self, base_fingerprint: str | None) -> tuple[ReplicaView, str | None] | None:
        """Return an engine that is up and has this base, with the key for it; None if there is none."""
        having = [one for one in self._snapshot.up() if base_fingerprint and one.base_fingerprint == base_fingerprint]
        if not having:
            return None
        url = self.choose_engine(having, None, None)
        return next(one for one in having if one.url == url), self.engine_key

    def _is_pin_of(self, alias: AliasView, pinned: str | None) -> bool:
        """Whether a trajectory's pin concerns `alias`: a trajectory that uses two aliases is pinned on one of them."""
        version = self._snapshot.versions.get(pinned or "")
        return pinned is not None and (version is None or version.alias_id == alias.id)

    def _pinned(self, alias: AliasView, pinned: str | None) -> VersionView | None:
        """The pinned version while the pin holds and can be served; None moves the trajectory to the live version."""
        snapshot = self._snapshot
        version = snapshot.versions.get(pinned or "")
        if version is None or not pins.is_pin_valid(
            version, alias, snapshot.versions, self._settings.pin_max_age_versions
        ):
            return None
        if snapshot.has(version) or not snapshot.up():  # no engine is up: a restart, which the pin survives
            return version
        return version if version.id in (alias.live_version_id, alias.canary_version_id) else None

    def _live(self, alias: AliasView) -> VersionView:
        """The live version; the one before it while engines still load a promoted version from disk."""
        snapshot = self._snapshot
        live = snapshot.versions.get(alias.live_version_id or "")
        if live is None:
            raise NoReplica(f"the alias {alias.name!r} has no live version: see `hone versions`.")
        before = snapshot.versions.get(alias.previous_version_id or "")
        return before if before and snapshot.has(before) and not snapshot.has(live) else live

    def _hindrance(self, replica: ReplicaView) -> tuple[bool, bool]:
        """Why others are preferred to it: it failed a moment ago, or it is asleep."""
        return self._avoid_until.get(replica.url, 0.0) > time.monotonic(), replica.state == "asleep"

    def is_asleep(self, url: str) -> bool:
        """Return whether an engine is paused for a trainer on its GPU: its answers stand still."""
        return any(one.url == url and one.state == "asleep" for one in self._snapshot.replicas)

    def _why_not(self, version: VersionView) -> str:
        known = self._snapshot.replicas
        if not known:
            return f"no engine is known yet that could serve {version.name}: retry in a moment."
        states = "; ".join(
            f"{r.url} {r.state} ({r.detail or 'serves ' + (', '.join(r.loaded) or 'nothing')})" for r in known
        )
        return f"no engine holds {version.name} now: {states}. Retry in a moment."

    def failed(self, route: Route) -> None:
        """Report that the route's engine could not be reached: for a moment other replicas are preferred."""
        self._avoid_until[route.replica_url] = time.monotonic() + AVOID_S
        self.on_failure(route.replica_url)

    def hold(self, route: Route) -> HeldRoute:
        """Count a request in flight: its version stays loaded until the block ends."""
        return HeldRoute(self, route)

    def begin(self, route: Route) -> None:
        """Begin a request in flight."""
        self._in_flight[route.version.id] += 1
        self._busy[route.replica_url] += 1

    def end(self, route: Route) -> None:
        """End a request in flight."""
        self._in_flight[route.version.id] -= 1
        self._busy[route.replica_url] -= 1
        if not self._in_flight[route.version.id] and not self._snapshot.has(route.version):
            self._news.tell()  # so that the unload need not wait for the next report

    def busy(self, route: Route) -> int:
        """Return how many requests of this proxy the route's engine answers now."""
        return self._busy[route.replica_url]

    async def moved_away(self, trajectory_id: str, version_id: str) -> None:
        """Record that a trajectory left its pin for `version_id`: it is mixed from now on."""
        await repin_trajectory(self._project.store, trajectory_id, version_id)

    # --- following the store

    async def refresh(self) -> None:
        """Read aliases, versions and replicas, then report which versions this proxy may still use."""
        async with self._refreshing:
            async with self._project.store.read() as conn:  # separate transactions would take twice as long
                aliases = {a.name: a for a in await read_aliases(conn, self._project.id)}
                versions = {v.id: v for v in await read_versions(conn, self._project.id, pins.SERVABLE)}
                known = await replicas.read_replicas(conn, self._project.id)
                ahead_s = await sql.current_time(conn) - time.time()
            self._snapshot = Snapshot(aliases, versions, tuple(known), ahead_s)
            await self._report()

    def holding(self) -> dict[str, int]:
        """Return version id → requests in flight; 0 for a version that a request may still be sent to.

        A version that is absent here gets no request from this proxy any more: the controller may unload it.
        """
        held = {v.id: 0 for v in self._snapshot.versions.values() if self._snapshot.has(v)}
        return held | {version_id: n for version_id, n in self._in_flight.items() if n > 0}

    async def _report(self) -> None:
        holding = self.holding()
        generations = {a.id: a.generation for a in self._snapshot.aliases.values()}
        content = (generations, frozenset(holding))
        now = time.monotonic()
        if content == self._reported:
            if now < self._reported_at + REPORT_EVERY_S:
                return
            if await replicas.touch_proxy(self._project.store, self.proxy_id):
                self._reported_at = now
                return
        await replicas.report_proxy(
            self._project,
            self.proxy_id,
            self._proxy_url,
            generations=generations,
            in_flight=holding,
        )
        self._reported, self._reported_at = content, now

    async def _follow(self) -> None:
        failing = False
        with self._project.store.watch.on(Topic.SERVICE, Topic.ENGINES) as self._news:
            while not self._stopping.is_set():
                due_s = self._reported_at + REPORT_EVERY_S - time.monotonic()
                changed = await self._news.wait(RETRY_S if failing else due_s)
                try:
                    await self._keep_up(changed or failing)
                    failing = False
                except StoreError as e:  # requests continue with the last snapshot
                    if not failing:
                        log.warning("the versions in service cannot be read, the last known ones stay: %s", e)
                    failing = True
                except Exception as e:  # noqa: BLE001 - a bug in one refresh must not end following the store
                    self._broken(logging.ERROR, "the versions in service cannot be read", error=e)
                    failing = True

    async def _keep_up(self, changed: bool) -> None:
        """Refresh after a change; without one, report that this proxy lives."""
        if changed:
            await self.refresh()
            return
        async with self._refreshing:
            await self._report()


async def wait_for_event(event: asyncio.Event, within_s: float) -> bool:
    """Wait for an event for at most `within_s` seconds. Return whether it is set."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()


def _card(name: str, version: VersionView | None) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": int(version.created_at) if version else 0,
        "owned_by": "hone",
        "root": version.name if version else name,
        "parent": None,
    }

"""Shadow answers of live trajectories: which trajectories and calls are drawn, and the loop that requests the answers.

Owns: the draw, by hashes of ids; when to look for ended trajectories; the limits: one process at a time, the budget.
Refuses: asking engines (`proxy.shadow.answers`), and the rows of a group (`recorder.queue.groups.same_request`).

The draw follows from ids, and a call is answered again once. A restarted proxy therefore continues where it was, as far
back as `look_back_s` reaches, and two proxies that overlap do no work twice.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import Final, Literal

from proxy.errors import NoReplica
from proxy.metrics import Metrics
from proxy.settings.sections import ShadowSettings
from proxy.shadow.answers import ShadowAnswerer, ShadowRequest
from proxy.shadow.request_replay import is_replayable
from proxy.versions.routing import Route, ServiceRouter
from recorder.base.lru import Lru
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import NotFound, StoreError
from recorder.queue import leases
from recorder.queue.groups.same_request import EndedTrajectory, find_ended_trajectories, open_shadow
from recorder.queue.leases import Lease
from recorder.registry.aliases import AliasView
from recorder.store.changes import ChangeSignal, Topic
from recorder.store.database import Project
from recorder.views.status.figures import list_shadow_costs
from recorder.views.trajectories.shapes import CallView
from recorder.views.trajectories.transcripts import load_trajectory

LEASE: Final = "shadow"
LEASE_S: Final = 60.0
BREATH_S: Final = 0.5  # between two queries, however many trajectories end
HICCUP_S: Final = 1.0  # after a failure, and while another process holds the lease
MOST_AT_ONCE: Final = 8  # calls that are being answered again; the settings limit the requests
PATIENCE_S: Final = 60.0  # how long a call waits for an idle engine before it is skipped
REMEMBERED_TRAJECTORIES: Final = 8192  # trajectories that were examined
LOOK_BACK_S: Final = 300.0  # beyond the time after which an idle trajectory ends: a restart takes less
LATE_S: Final = 5.0  # how late an end may be seen after a later one (PostgreSQL)
DAY_S: Final = 86400.0

log = logging.getLogger(__name__)


def is_drawn(run_id: str, share: float) -> bool:
    """Whether a trajectory belongs to the share."""
    return _uniform("run", run_id) < share


def draw_call(call_ids: Iterable[str], at: Literal["any", "first"]) -> str | None:
    """Return the call to be answered again, from call ids in order; None if there is none.

    `any`: the call with the highest hash. Hashes are uniform and independent, so every call is equally likely, and the
    number of calls need not be known in advance: reservoir sampling of one.
    """
    ids = iter(call_ids)
    if at == "first":
        return next(ids, None)
    return max(ids, key=lambda call_id: _uniform("turn", call_id), default=None)


def _uniform(what: str, of: str) -> float:
    """A uniform number in 0..1 from a hash of an id; independent for different values of `what`."""
    return int.from_bytes(blake2b(f"shadow {what}\0{of}".encode(), digest_size=8).digest()) / 2**64


class Shadower:
    """Has calls answered again: `async with shadower.running(): …`. One per proxy. `settings` by alias.

    A trajectory is skipped if its last call is older than `look_back_s` when it ends.
    """

    def __init__(
        self,
        project: Project,
        settings: Mapping[str, ShadowSettings],
        versions: ServiceRouter,
        answering: ShadowAnswerer,
        metrics: Metrics,
        look_back_s: float,
    ) -> None:
        self._project = project
        self._settings = settings
        self._versions = versions
        self._answering = answering
        self._metrics = metrics
        self._look_back_s = look_back_s
        self._since = 0.0
        self._seen: Lru[str, bool] = Lru(REMEMBERED_TRAJECTORIES)
        self._lease: Lease | None = None
        self._renew_at = 0.0
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._at_work: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._failing = RateLimitedLog(log)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Have calls answered again until the block ends; running requests are then cancelled."""
        with self._project.store.watch.on(Topic.RUNS) as news:
            task = asyncio.create_task(self._run(news), name="shadow")
            try:
                yield
            finally:
                self._stopping.set()
                news.tell()
                await task  # not cancelled: a cancelled statement leaks its connection's thread
                await asyncio.gather(*self._at_work)
                if self._lease is not None:
                    await leases.release_lease(self._project.store, self._lease)

    async def _run(self, news: ChangeSignal) -> None:
        within_s: float | None = 0.0
        while not self._stopping.is_set():
            await news.wait(within_s)
            within_s = None if await self._guarded_look() else HICCUP_S
            await self._breathe()

    async def _breathe(self) -> None:
        try:
            async with asyncio.timeout(BREATH_S):
                await self._stopping.wait()
        except TimeoutError:
            return

    async def _guarded_look(self) -> bool:
        """Look for trajectories; False if that should be repeated soon although nothing changes."""
        try:
            return self._stopping.is_set() or await self._look()
        except StoreError as e:
            self._failing(logging.WARNING, "shadow answers are paused until the store answers: %s", e)
        except Exception as e:  # noqa: BLE001 - a bug with one trajectory must not end the loop
            self._failing(logging.ERROR, "looking for calls to answer again failed: %s", e, error=e)
        return False

    async def _look(self) -> bool:
        """Start the drawn trajectories; False if another process holds the lease."""
        aliases = {alias.id: alias for alias in self._versions.snapshot.aliases.values()}
        enabled = {id_: self._settings[alias.name] for id_, alias in aliases.items() if alias.name in self._settings}
        runs = await find_ended_trajectories(self._project, enabled, self._look_back_s, self._since)
        new = [run for run in runs if run.id not in self._seen]
        drawn = [run for run in new if is_drawn(run.id, enabled[run.alias_id].share)]
        if drawn and not await self._is_mine():
            return False
        for run in new:
            self._seen.put(run.id, True)
        self._since = max([self._since, *(run.ended_at - LATE_S for run in runs)])
        for run in drawn:
            await self._begin(run, aliases[run.alias_id])
        return True

    async def _is_mine(self) -> bool:
        """Whether this process holds the lease, or could take it."""
        if self._lease is None or time.monotonic() >= self._renew_at:
            owner = self._versions.proxy_id
            self._lease = await leases.acquire_lease(self._project, LEASE, owner, LEASE_S)
            self._renew_at = time.monotonic() + LEASE_S / 2
        return self._lease is not None

    async def _begin(self, run: EndedTrajectory, alias: AliasView) -> None:
        """Have one call of a trajectory answered again, concurrently, as soon as there is room."""
        await self._slots.acquire()
        task = asyncio.create_task(self._guarded(run, alias), name=f"shadow {run.id}")
        self._at_work.add(task)
        task.add_done_callback(self._at_work.discard)

    async def _guarded(self, run: EndedTrajectory, alias: AliasView) -> None:
        try:
            if not self._stopping.is_set():
                self._metrics.shadow_turn(alias.name, await self._answer_again(run, alias))
        except NotFound:  # deleted meanwhile
            return
        except StoreError as e:
            self._failing(logging.WARNING, "no call of trajectory %s was answered again: %s", run.id, e)
        except Exception as e:  # noqa: BLE001 - a boundary: no failure here may end the proxy
            self._failing(logging.ERROR, "no call of trajectory %s was answered again: %s", run.id, e, error=e)
        finally:
            self._slots.release()

    async def _answer_again(self, run: EndedTrajectory, alias: AliasView) -> str:
        """Have one call of a trajectory answered again; return the outcome for the metrics."""
        settings = self._settings[alias.name]
        if settings.budget is not None and await self._spent(alias) >= settings.budget:
            return "over_budget"
        view = await load_trajectory(self._project.store, run.id, with_tokens=True)
        turns = {call.id: call for call in view.calls if call.alias_id == alias.id and is_replayable(call)}
        drawn = draw_call(turns, settings.at)
        if drawn is None:
            return "no_turn"
        route = self._route(alias, run, turns[drawn])
        if route is None:
            return "version_gone"
        ask = ShadowRequest(turns[drawn], alias.name, route, settings.max_in_flight)
        if not await self._answering.has_room(ask, PATIENCE_S, self._stopping):
            return "engine_busy"
        group = await open_shadow(self._project.store, drawn, settings.n - 1)
        if group is None:
            return "answered_before"
        asking = (self._answering.answer(ask, into, self._stopping) for into in group.waiting)
        for error in await asyncio.gather(*asking, return_exceptions=True):
            if error is not None:
                raise error
        return "answered"

    def _route(self, alias: AliasView, run: EndedTrajectory, call: CallView) -> Route | None:
        """The route to the version that answered the call; None if it is not in service any more."""
        version = self._versions.snapshot.versions.get(call.version_id or "")
        if version is None:
            return None
        try:
            return self._versions.route(alias, exact=version, key=run.id)
        except NoReplica:
            return None

    async def _spent(self, alias: AliasView) -> int:
        costs = await list_shadow_costs(self._project, time.time() - DAY_S)
        return sum(cost.tokens for cost in costs if cost.alias == alias.name)

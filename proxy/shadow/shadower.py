"""Which runs have a turn answered again, and which turn: by hashes of their ids, so that whoever draws draws the same.

Owns: the draw. Pure. Refuses: what a run or a turn is, beside its id.

Live runs that have ended, and one turn of each that is drawn answered again: for as long as a proxy runs.

Owns: when it is looked, which runs and turns are taken on (by `draw.py`), the bounds of that: one process at a time,
the budget. Refuses: asking (`answering.py`), the rows of a group (`recorder.queue.groups.shadows`).

What is drawn follows from ids, and a turn is answered again once: so a proxy that was killed goes on where it was, as
far as it looks back, and two that overlap do nothing twice.
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
from recorder.queue.groups.shadows import EndedTrajectory, ended_runs, open_shadow
from recorder.queue.leases import Lease
from recorder.registry.aliases import AliasView
from recorder.store.changes import ChangeSignal, Topic
from recorder.store.database import Project
from recorder.views.status.figures import list_shadow_costs
from recorder.views.trajectories.shapes import CallView
from recorder.views.trajectories.transcripts import load_trajectory


def is_drawn(run_id: str, share: float) -> bool:
    """Whether a run is one of the share."""
    return _uniform("run", run_id) < share


def draw_call(call_ids: Iterable[str], at: Literal["any", "first"]) -> str | None:
    """The turn of a run that is answered again, of those given in order; None where there is none.

    `any`: the one with the highest number, where each has a number of its own, uniform and independent of the others.
    So every turn is as likely as any other, however many there are, and none has to be known in advance: a reservoir
    of one.
    """
    turns = iter(call_ids)
    if at == "first":
        return next(turns, None)
    return max(turns, key=lambda call_id: _uniform("turn", call_id), default=None)


def _uniform(what: str, of: str) -> float:
    """A number in 0..1 that follows from an id, and one for another question from the same id does not."""
    return int.from_bytes(blake2b(f"shadow {what}\0{of}".encode(), digest_size=8).digest()) / 2**64


LEASE: Final = "shadow"
LEASE_S: Final = 60.0
BREATH_S: Final = 0.5  # between two looks, however many runs end
HICCUP_S: Final = 1.0  # after a failure, and while another process holds the lease
MOST_AT_ONCE: Final = 8  # turns that are being answered again; how many requests that may be is the settings' to say
PATIENCE_S: Final = 60.0  # how long a turn waits for an idle engine before it is let go
KEPT_RUNS: Final = 8192  # that were looked at
LOOK_BACK_S: Final = 300.0  # beyond the time after which a run that is idle ends: a restart takes less
LATE_S: Final = 5.0  # by how much an end may be seen after a later one (PostgreSQL)
DAY_S: Final = 86400.0

log = logging.getLogger(__name__)


class Shadower:
    """One a proxy: `async with shadower.running(): …`. `settings` by alias.

    A run whose last call is longer ago than `look_back_s` when it ends is not looked at."""

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
        self._seen: Lru[str, bool] = Lru(KEPT_RUNS)
        self._lease: Lease | None = None
        self._renew_at = 0.0
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        self._at_work: set[asyncio.Task[None]] = set()
        self._stopping = asyncio.Event()
        self._failing = RateLimitedLog(log)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer turns again until the block ends; what is being asked then is given up."""
        with self._project.store.watch.on(Topic.RUNS) as news:
            task = asyncio.create_task(self._run(news), name="shadow")
            try:
                yield
            finally:
                self._stopping.set()
                news.tell()
                await task  # not cancelled: a statement that is cut off leaves its connection's thread behind
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
        """Look for runs; False where that should be done again soon, though nothing changes."""
        try:
            return self._stopping.is_set() or await self._look()
        except StoreError as e:
            self._failing(logging.WARNING, "no turn is answered again until the store answers: %s", e)
        except Exception as e:  # noqa: BLE001 - one run that trips a bug of ours must not end it for all others
            self._failing(logging.ERROR, "looking for turns to answer again failed: %s", e, error=e)
        return False

    async def _look(self) -> bool:
        """Take on the runs that are drawn; False where another process does that."""
        aliases = {alias.id: alias for alias in self._versions.snapshot.aliases.values()}
        wanted = {id_: self._settings[alias.name] for id_, alias in aliases.items() if alias.name in self._settings}
        runs = await ended_runs(self._project, wanted, self._look_back_s, self._since)
        new = [run for run in runs if run.id not in self._seen]
        drawn = [run for run in new if is_drawn(run.id, wanted[run.alias_id].share)]
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
        """Answer a turn of a run again beside others, as soon as there is room."""
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
            self._failing(logging.WARNING, "a turn of run %s was not answered again: %s", run.id, e)
        except Exception as e:  # noqa: BLE001 - a boundary: nothing here may end what agents are served by
            self._failing(logging.ERROR, "a turn of run %s was not answered again: %s", run.id, e, error=e)
        finally:
            self._slots.release()

    async def _answer_again(self, run: EndedTrajectory, alias: AliasView) -> str:
        """Have one turn of a run answered again; what became of that, in a word."""
        settings = self._settings[alias.name]
        if settings.budget is not None and await self._spent(alias) >= settings.budget:
            return "over_budget"
        view = await load_trajectory(self._project.store, run.id, with_tokens=True)
        turns = {call.id: call for call in view.calls if call.alias_id == alias.id and is_replayable(call)}
        drawn = draw_call(turns, settings.at)
        if drawn is None:
            return "no_turn"
        route = self._route(alias, turns[drawn])
        if route is None:
            return "version_gone"
        ask = ShadowRequest(turns[drawn], alias.name, route, settings.max_in_flight)
        if not await self._answering.has_room(ask, PATIENCE_S, self._stopping):
            return "engine_busy"
        group = await open_shadow(self._project.store, drawn, settings.n - 1)
        if group is None:
            return "answered_before"
        asking = (self._answering.answer(ask, into, self._stopping) for into in group.waiting)
        for came_to in await asyncio.gather(*asking, return_exceptions=True):
            if came_to is not None:
                raise came_to
        return "answered"

    def _route(self, alias: AliasView, call: CallView) -> Route | None:
        """Where the version that took the turn can be asked; None where it is in service no more."""
        version = self._versions.snapshot.versions.get(call.version_id or "")
        if version is None:
            return None
        try:
            return self._versions.route(alias, exact=version)
        except NoReplica:
            return None

    async def _spent(self, alias: AliasView) -> int:
        costs = await list_shadow_costs(self._project, time.time() - DAY_S)
        return sum(cost.tokens for cost in costs if cost.alias == alias.name)

"""Pause engines while a trainer holds the lease `gpu`, and wake them once its memory is free.

Owns: the controller's half of the protocol in `recorder.queue.training.gpu_pauses`. Refuses: the requests
(`proxy.engine.sleep`), calls in flight (their streams wait: `proxy.engine.client`), and the trainer's half.

An engine that wakes into memory that is not free dies. So it is woken only when the lease was released, or its holder
is known to have ended, or the lease has expired and the driver shows the memory as free. Until then the engine's
status has the reason. A new controller continues where the last one ended: it asks each engine whether it is paused.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from proxy.engine.cache_metrics import CacheCounters, read_counters, refill_cost
from proxy.engine.device import detect_device, free_gpu_mib
from proxy.engine.sleep import is_paused, pause_engine, pause_method, wake_engine
from proxy.errors import EngineError, EngineUnreachable
from proxy.settings.sections import EngineSettings
from proxy.versions.fleet import Fleet, Member
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.queue import leases
from recorder.queue.leases import Lease
from recorder.queue.training import gpu_pauses
from recorder.queue.training.gpu_pauses import EnginePause
from recorder.store.database import Project

log = logging.getLogger(__name__)

LOOK_S = 0.5  # while a trainer holds the GPU: a holder that is killed sends no signal
RETRY_S = 1.0  # after an engine's error
# What the driver may show less than before: other programs take and return small parts.
SLACK_MIB = 256
REFILL_S = 60.0  # after a pause: most conversations that go on have asked again by then


class EnginePauser:
    """Pauses and wakes the engines of a fleet. `tick()` it in every round of the controller."""

    def __init__(
        self,
        project: Project,
        fleet: Fleet,
        engine: EngineSettings,
        again: Callable[[float], None],
        free_mib: Callable[[], Sequence[int] | None] | None = None,
    ) -> None:
        """`again`: asks for a round within so many seconds. `free_mib` replaces the driver."""
        device = detect_device(engine)
        self.is_active = engine.share != "split"
        self._project = project
        self._fleet = fleet
        self._again = again
        self._method = pause_method(engine.share, device) if self.is_active else None
        self._has_memory = device == "cuda" or free_mib is not None  # on a CPU there is none to wait for
        self._free_mib = free_mib or (lambda: free_gpu_mib(engine.gpus))
        self._failing = RateLimitedLog(log)
        self._refills: dict[str, _Refill] = {}  # by URL: pauses whose cost is not whole yet

    async def tick(self, controller: Lease | None, keep: Collection[str]) -> None:
        """Pause the engines if a trainer holds the GPU, else wake them. `keep`: engine names of versions in service."""
        if not self.is_active or controller is None:
            return
        used_by, why = await self._user()
        for member in self._fleet.members:
            if member.served is None or member.unfit is not None:
                continue
            try:
                if used_by is not None:
                    await self._pause(member, used_by, controller, keep, why)
                else:
                    await self._wake(member, controller, why)
            except EngineUnreachable as e:
                member.mark_down(str(e))
            except EngineError as e:
                member.pause_error = str(e)
                self._failing(logging.ERROR, "%s", e)
                self._again(RETRY_S)
            await member.report(self._project)
            await self._finish_refill(member)
        if used_by is not None:
            self._again(LOOK_S)

    async def _user(self) -> tuple[Lease | None, str | None]:
        """The holder of the GPU, and what status says of it; None if its memory is free, and how that is known."""
        found = await leases.find_lease(self._project, leases.GPU)
        if found is None:
            return None, None
        held, is_valid = found
        if leases.has_ended(held):
            why = f"the trainer {held.owner} ended without releasing the GPU"
        elif is_valid:
            return held, f"a trainer uses its GPU ({held.owner})"
        elif await self._is_memory_free(held):
            why = f"the trainer {held.owner} no longer renewed its lease, and the GPU's memory is free"
        else:
            why = "no longer renews its lease on the GPU, and the memory is not shown to be free: end that process"
            return held, f"the trainer {held.owner} {why}"
        log.warning("%s: the engines are woken", why)
        await leases.release_lease(self._project.store, held)
        return None, why

    async def _is_memory_free(self, held: Lease) -> bool:
        """Whether the driver shows as much free memory as there was before the holder moved in."""
        if not self._has_memory:
            return True
        pauses = [one for one in await gpu_pauses.list_pauses(self._project) if one.epoch == held.epoch]
        if not pauses:  # no engine was asleep for it: it has not moved in
            return True
        before = next((one.free_mib for one in pauses if one.free_mib is not None), None)
        now = await asyncio.to_thread(self._free_mib)
        if before is None or now is None or len(now) != len(before):
            return False
        return all(free >= was - SLACK_MIB for free, was in zip(now, before, strict=True))

    async def _pause(
        self, member: Member, used_by: Lease, controller: Lease, keep: Collection[str], why: str | None
    ) -> None:
        assert self._method is not None
        if member.paused_for != used_by.epoch:
            member.is_known_awake = False
            was_allowed = await gpu_pauses.is_allowed(self._project, member.url, used_by.epoch)
            # An engine that is asleep for this holder stays untouched: the holder may have moved in.
            if not (was_allowed and await is_paused(member.replica)):
                began_at = await gpu_pauses.store_time(self._project)
                await self._begin_refill(member)
                await pause_engine(member.replica, self._method)
                if not was_allowed:
                    free = await asyncio.to_thread(self._free_mib) if self._has_memory else None
                    await gpu_pauses.record_asleep(
                        self._project, member.url, used_by, by=controller, began_at=began_at, free_mib=free
                    )
                log.info("%s is asleep: %s", member.url, why)
        member.mark_asleep(used_by.epoch, keep, why)

    async def _wake(self, member: Member, controller: Lease, why: str | None) -> None:
        assert self._method is not None
        if member.is_known_awake:
            return
        if await is_paused(member.replica):
            async with self._project.store.write() as conn:  # another controller may have allowed a trainer to move in
                await leases.require_lease(conn, controller)
            await wake_engine(member.replica, self._method)
        if (pause := await gpu_pauses.find_open_pause(self._project, member.url)) is not None:
            await gpu_pauses.record_awake(self._project, pause, why=why)
            await self._measure_refill(member, pause)
            log.info("%s is awake", member.url)
            await self._probe(member)
        member.mark_awake()

    async def _probe(self, member: Member) -> None:
        """Let the engine answer for one token, before adapters are loaded into it. Raises EngineError."""
        try:
            await member.ask_one_token()
        except EngineUnreachable:
            raise
        except EngineError as e:
            member.mark_unfit(f"it does not answer after its pause: {e}")

    # --- what the emptied prefix cache costs

    async def _begin_refill(self, member: Member) -> None:
        await self._finish_refill(member, now=True)
        if (before := await read_counters(member.replica)) is not None:
            self._refills[member.url] = _Refill(before)

    async def _measure_refill(self, member: Member, pause: EnginePause) -> None:
        refill = self._refills.get(member.url)
        woken = await read_counters(member.replica) if refill is not None else None
        if refill is None or woken is None:
            self._refills.pop(member.url, None)
            return
        refill.pause, refill.woken = pause, woken
        refill.due = asyncio.get_running_loop().time() + REFILL_S
        self._again(REFILL_S)

    async def _finish_refill(self, member: Member, *, now: bool = False) -> None:
        """Write what the refill cost, once it is due, or at the next pause."""
        refill = self._refills.get(member.url)
        if refill is None or refill.pause is None or refill.woken is None:
            return
        left_s = refill.due - asyncio.get_running_loop().time()
        if left_s > 0 and not now:
            self._again(left_s)
            return
        del self._refills[member.url]
        if (counters := await read_counters(member.replica)) is not None:
            tokens, seconds = refill_cost(refill.before, refill.woken, counters)
            await gpu_pauses.record_refill(self._project, refill.pause, seconds=seconds, tokens=tokens)


@dataclass(slots=True)
class _Refill:
    """A pause whose refill is being measured. `due`: when (the loop's clock)."""

    before: CacheCounters
    pause: EnginePause | None = None
    woken: CacheCounters | None = None
    due: float = 0.0

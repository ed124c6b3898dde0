"""Pauses of engines for a trainer on the same GPU: who may use the GPU when, and what pauses cost.

Owns: the rows of pauses in the ledger, waiting for a pause, and the rule of `engine.max_pause_share`. Refuses: pausing
and waking engines (`proxy.versions.pauses`), and moving the trainer's base (`trainer.step.gpu_share`).

The lease `gpu` is the truth: its epoch is one use of the GPU. A trainer takes the lease and moves its base in only once
every engine has a row `engine_asleep` of that epoch. It releases the lease after it has moved out, and an engine is
woken only then, or after the holder's process has ended. A lease that expires stays its holder's, because the memory
may too. No row of an earlier epoch allows anything, so that a controller or a trainer may end at any moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import select

from recorder.queue import leases
from recorder.queue.leases import Lease
from recorder.queue.training.budgets import HOUR_S, seconds_until_free
from recorder.registry import replicas
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.ledger import LedgerRow, write_rows
from recorder.store.schema import ledger

ASLEEP: Final = "engine_asleep"  # the ledger's code: the engine's memory is released for the epoch
AWAKE: Final = "engine_awake"  # it is awake again
REFILLED: Final = "engine_refilled"  # what computing the emptied prefix cache again has cost
_KIND: Final = "engine"
_MOST: Final = 400  # rows that are read, the newest
LOOK_S: Final = 5.0  # a controller that is killed sends no signal


@dataclass(frozen=True, slots=True)
class EnginePause:
    """One pause of one engine. Times are unix seconds of the store's clock; `ended_at` None: it goes on.

    `refill_s`: what computing the emptied prefix cache again took. `free_mib`: free memory of each GPU, in MiB, when
    the engine was asleep and the trainer had not moved in; None: not known.
    """

    url: str
    epoch: int
    owner: str
    began_at: float
    ended_at: float | None = None
    refill_s: float = 0.0
    free_mib: Sequence[int] | None = None

    def seconds(self, at: float) -> float:
        """Return how long it has lasted until `at`, with its refill."""
        return max(0.0, (at if self.ended_at is None else self.ended_at) - self.began_at) + self.refill_s


async def store_time(project: Project) -> float:
    """Return the time of the store's clock, in unix seconds."""
    async with project.store.read() as conn:
        return await sql.current_time(conn)


async def record_asleep(
    project: Project, url: str, used_by: Lease, *, by: Lease, began_at: float, free_mib: Sequence[int] | None
) -> None:
    """Write that an engine is asleep for a holder of the GPU. `by`: the controller's lease. Raises LeaseLost."""
    detail = {"epoch": used_by.epoch, "owner": used_by.owner, "began_at": began_at}
    if free_mib is not None:
        detail["free_mib"] = list(free_mib)
    async with project.store.write() as conn:
        await leases.require_lease(conn, by)  # a controller that was replaced meanwhile must not allow anything
        await write_rows(conn, [LedgerRow(project.id, _KIND, url, ASLEEP, detail)])


async def record_awake(project: Project, pause: EnginePause, *, why: str | None = None) -> None:
    """Write that a pause has ended. `why`: what ended it, other than its holder."""
    detail = {"epoch": pause.epoch, **({"why": why} if why else {})}
    async with project.store.write() as conn:
        await write_rows(conn, [LedgerRow(project.id, _KIND, pause.url, AWAKE, detail)])


async def record_refill(project: Project, pause: EnginePause, *, seconds: float, tokens: float) -> None:
    """Write what the first requests after a pause computed again, because the prefix cache was empty."""
    detail = {"epoch": pause.epoch, "seconds": round(seconds, 3), "tokens": round(tokens)}
    async with project.store.write() as conn:
        await write_rows(conn, [LedgerRow(project.id, _KIND, pause.url, REFILLED, detail)])


async def list_pauses(project: Project) -> list[EnginePause]:
    """Return the newest pauses of all engines, oldest first."""
    query = (
        select(ledger.c.object_id, ledger.c.code, ledger.c.detail, ledger.c.at)
        .where(ledger.c.project_id == project.id, ledger.c.code.in_((ASLEEP, AWAKE, REFILLED)))
        .order_by(ledger.c.id.desc())
        .limit(_MOST)
    )
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    return merge_pauses((row.object_id, row.code, row.detail or {}, float(row.at)) for row in reversed(rows))


def merge_pauses(rows: Iterable[tuple[str, str, Mapping[str, Any], float]]) -> list[EnginePause]:
    """Return the pauses that rows (URL, code, detail, time) report, by their beginning. Rows are in order of time."""
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for url, code, detail, at in rows:
        key = (url, int(detail.get("epoch", 0)))
        if code == ASLEEP:
            first = {"began_at": detail["began_at"], "owner": detail["owner"], "free_mib": detail.get("free_mib")}
            found.setdefault(key, first)
        elif code == AWAKE and key in found:
            found[key].setdefault("ended_at", at)
        elif code == REFILLED and key in found:
            found[key]["refill_s"] = float(detail["seconds"])
    pauses = [EnginePause(url, epoch, **facts) for (url, epoch), facts in found.items()]
    return sorted(pauses, key=lambda one: one.began_at)


async def find_open_pause(project: Project, url: str) -> EnginePause | None:
    """Return the newest pause of an engine, if it has not ended."""
    newest = next((one for one in reversed(await list_pauses(project)) if one.url == url), None)
    return newest if newest is not None and newest.ended_at is None else None


async def is_allowed(project: Project, url: str, epoch: int) -> bool:
    """Whether an engine was asleep for this use of the GPU: its holder may have moved in."""
    its = (ledger.c.object_kind == _KIND, ledger.c.object_id == url, ledger.c.code == ASLEEP)
    query = select(ledger.c.detail).where(*its, ledger.c.project_id == project.id).order_by(ledger.c.id.desc()).limit(1)
    async with project.store.read() as conn:
        newest = (await conn.execute(query)).scalar_one_or_none()
    return newest is not None and newest["epoch"] == epoch


async def list_awake_engines(project: Project, lease: Lease) -> list[str]:
    """Return what a holder of the GPU still waits for: engines that are not asleep for it, each with its state."""
    known = await replicas.list_replicas(project)
    if not known:
        return ["no engine has started yet"]
    return [
        f"{one.url} ({one.detail or one.state})" for one in known if not await is_allowed(project, one.url, lease.epoch)
    ]


async def is_gpu_used(project: Project) -> bool:
    """Whether a trainer may be on the GPU: it holds the lease, or its lease expired and its process runs."""
    found = await leases.find_lease(project, leases.GPU)
    return found is not None and not leases.has_ended(found[0])


async def find_hung_holder(project: Project, grace_s: float) -> int | None:
    """Return the process of this machine whose lease on the GPU expired `grace_s` seconds ago or earlier, though it
    runs: it hangs, and the engine cannot wake before it ends.
    """
    found = await leases.find_lease(project, leases.GPU)
    if found is None or found[1] or leases.has_ended(found[0]):
        return None
    is_over = await store_time(project) >= found[0].expires_at + grace_s
    return leases.pid_here(found[0].owner) if is_over else None


# --- the rule of `engine.max_pause_share`


@dataclass(frozen=True, slots=True)
class PauseBudget:
    """What pauses cost within the last hour, refills included, and when the next may begin.

    Engines that paused together count once. `last_s`: the cost of the last pause, whenever that was; `share` and
    `limit`: of an hour.
    """

    pauses: int
    seconds: float
    refill_s: float
    last_s: float
    share: float
    limit: float
    free_in_s: float


def read_budget(pauses: Sequence[EnginePause], limit: float, at: float) -> PauseBudget:
    """Return the budget at a time (unix seconds). `limit`: the share of an hour that pauses may take."""
    costs = _costs(pauses, at)
    recent = [one for one in costs if one[0] > at - HOUR_S]
    epochs = {one.epoch for one in pauses if one.ended_at is None or one.ended_at > at - HOUR_S}
    refill_s = sum(one.refill_s for one in pauses if one.epoch in epochs)
    spent_s, last_s = sum(cost for _, cost in recent), costs[-1][1] if costs else 0.0
    free_in_s = seconds_until_pause(pauses, limit, at)
    return PauseBudget(len(epochs), spent_s, refill_s, last_s, spent_s / HOUR_S, limit, free_in_s)


def seconds_until_pause(pauses: Sequence[EnginePause], limit: float, at: float) -> float:
    """Return in how many seconds the next pause may begin, if it takes as long as the last one; 0: now.

    Pauses take at most `limit` of every hour. One that alone takes more of an hour is given a longer window, in which
    it takes that share: 5 minutes at 5 % are followed by 95 minutes without one.
    """
    costs = _costs(pauses, at)
    expected_s = costs[-1][1] if costs else 0.0
    window_s = max(HOUR_S, expected_s / limit)
    return seconds_until_free(costs, limit * window_s - expected_s + _ROUNDING, window_s, at)


_ROUNDING: Final = 1e-6


def _costs(pauses: Sequence[EnginePause], at: float) -> list[tuple[float, float]]:
    """When each use of the GPU ended, and how long engines paused for it: those that pause together count once."""
    longest: dict[int, tuple[float, float]] = {}
    for one in pauses:
        ended = at if one.ended_at is None else one.ended_at
        before = longest.get(one.epoch, (0.0, 0.0))
        longest[one.epoch] = max(ended, before[0]), max(one.seconds(at), before[1])
    return sorted(longest.values())

"""Named leases: which process controls the engine, which one trains an alias, which judges are running.

Owns: acquiring, renewing and releasing leases by guarded statements on the database's clock; a holder's name
(`host:pid:random`); releasing leases of dead processes of this machine, so that another process takes over at once; and
a process's presence, which is a lease under its own name. Refuses: the meaning of a name, and whether processes of
other machines are dead: their leases expire.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import LeaseLost, StoreError
from recorder.store import sql
from recorder.store.changes import Topic, mark_quiet
from recorder.store.database import Project, Store
from recorder.store.schema import leases
from recorder.store.sql import now

CONTROLLER = "controller"
GPU: Final = "gpu"  # held by the trainer that computes on the engine's GPU (`recorder.queue.training.gpu_pauses`)
_CLOCKS_DIFFER_S: Final = 10.0  # between the database and the start of a process, at most


@dataclass(frozen=True, slots=True)
class Lease:
    """A name held by `owner` until `expires_at` (unix seconds). The epoch counts its holders."""

    project_id: str
    name: str
    owner: str
    epoch: int
    expires_at: float


def trainer_lease(alias_name: str) -> str:
    """Return the name of the lease that lets only one process train an alias."""
    return f"trainer:{alias_name}"


async def acquire_lease(
    project: Project, name: str, owner: str, lease_s: float, *, take_expired: bool = True
) -> Lease | None:
    """Acquire a lease that is free, expired or already the owner's (with a new epoch); None if another holds it.

    `take_expired` False: an expired lease stays its holder's until somebody releases it.
    """
    free = or_(leases.c.lease_owner.is_(None), leases.c.lease_owner == owner)
    if take_expired:
        free = or_(free, leases.c.lease_expires_at <= now())
    others = (leases.c.project_id == project.id, leases.c.name == name, ~free)
    async with project.store.read() as conn:  # testing a held lease must not take the write lock
        if (await conn.execute(select(leases.c.name).where(*others))).first():
            return None
    async with project.store.write() as conn:
        statement = sql.insert(conn, leases).values(
            project_id=project.id, name=name, lease_owner=owner, lease_epoch=1, lease_expires_at=now() + lease_s
        )
        taken = statement.on_conflict_do_update(
            index_elements=["project_id", "name"],
            set_={
                "lease_owner": owner,
                "lease_epoch": leases.c.lease_epoch + 1,
                "lease_expires_at": now() + lease_s,
            },
            where=free,
        ).returning(leases.c.lease_epoch, leases.c.lease_expires_at)
        row = (await conn.execute(taken)).first()
    return Lease(project.id, name, owner, *row) if row else None


async def seconds_until_free(project: Project, name: str) -> float:
    """Return the seconds until a lease expires if its holder does not renew it; 0 if it is free."""
    held = (leases.c.project_id == project.id, leases.c.name == name, leases.c.lease_owner.is_not(None))
    async with project.store.read() as conn:
        left_s = (await conn.execute(select(leases.c.lease_expires_at - now()).where(*held))).scalar_one_or_none()
    return max(0.0, float(left_s or 0.0))


async def renew_lease(store: Store, lease: Lease, lease_s: float) -> Lease:
    """Extend a lease, also an expired one that no other owner took. Raises LeaseLost."""
    async with store.write() as conn:
        return replace(lease, expires_at=await _touch(conn, lease, lease_expires_at=now() + lease_s))


async def release_lease(store: Store, lease: Lease) -> None:
    """Release a lease; does nothing if it was lost already."""
    statement = update(leases).where(_held(lease)).values(lease_owner=None, lease_expires_at=None)
    async with store.write() as conn:
        await conn.execute(statement)


async def require_lease(conn: AsyncConnection, lease: Lease) -> None:
    """Raise LeaseLost unless the lease is still its holder's: guards a write in the caller's transaction."""
    await _touch(conn, lease, lease_expires_at=leases.c.lease_expires_at)


async def find_lease(project: Project, name: str) -> tuple[Lease, bool] | None:
    """Return a lease that has a holder, and whether it is still valid; None if it is free."""
    query = select(leases, (leases.c.lease_expires_at > now()).label("valid")).where(
        leases.c.project_id == project.id, leases.c.name == name, leases.c.lease_owner.is_not(None)
    )
    async with project.store.read() as conn:
        row = (await conn.execute(query)).first()
    if row is None:
        return None
    lease = Lease(project.id, name, row.lease_owner, row.lease_epoch, row.lease_expires_at)
    return lease, bool(row.valid)


async def list_holders(project: Project, prefix: str = "") -> list[Lease]:
    """Return the valid leases whose name begins with `prefix`, by name."""
    query = (
        select(
            leases.c.project_id, leases.c.name, leases.c.lease_owner, leases.c.lease_epoch, leases.c.lease_expires_at
        )
        .where(
            leases.c.project_id == project.id,
            leases.c.name.startswith(prefix, autoescape=True),
            leases.c.lease_owner.is_not(None),
            leases.c.lease_expires_at > now(),
        )
        .order_by(leases.c.name)
    )
    async with project.store.read() as conn:
        return [Lease(*row) for row in await conn.execute(query)]


def _held(lease: Lease) -> ColumnElement[bool]:
    return and_(
        leases.c.project_id == lease.project_id,
        leases.c.name == lease.name,
        leases.c.lease_owner == lease.owner,
        leases.c.lease_epoch == lease.epoch,
    )


async def _touch(conn: AsyncConnection, lease: Lease, **values: Any) -> float:
    statement = update(leases).where(_held(lease)).values(**values).returning(leases.c.lease_expires_at)
    statement = mark_quiet(statement)
    expires_at = (await conn.execute(statement)).scalar_one_or_none()
    if expires_at is None:
        raise LeaseLost(
            f"{lease.owner} no longer holds {lease.name!r} (epoch {lease.epoch}): its lease expired and was taken. "
            "Discard the work and acquire it again."
        )
    return float(expires_at)


def holder_name() -> str:
    """Return a new name for this process as a holder of leases."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


def pid_here(holder: str) -> int | None:
    """Return the process id of a holder on this machine; None: it is on another, or the name has none."""
    host, _, pid = holder.rpartition(":")[0].rpartition(":")
    return int(pid) if host == socket.gethostname() and pid.isdecimal() else None


def runs_here(holder: str, since: float) -> bool:
    """Return whether the holder is a process of this machine that has run since a time (unix seconds).

    A process that began later has only the same id, and one that nobody waits for has ended.
    """
    import psutil  # here: few programs sweep

    if (pid := pid_here(holder)) is None:
        return False
    try:
        process = psutil.Process(pid)
        return bool(process.create_time() <= since + _CLOCKS_DIFFER_S and process.status() != psutil.STATUS_ZOMBIE)
    except (psutil.Error, ValueError, OverflowError):
        return False


def has_ended(lease: Lease) -> bool:
    """Return whether a lease's holder was a process of this machine that has ended, its memory with it; False if
    unsure. A process that nobody waits for yet has ended too.
    """
    return pid_here(lease.owner) is not None and not runs_here(lease.owner, lease.expires_at)


async def renew_late(project: Project, prefix: str, lease_s: float) -> None:
    """Extend expired leases with a name that begins with `prefix` whose holders still run on this machine.

    They are only late, because the machine is busy. A holder that is done releases its lease.
    """
    query = select(leases).where(
        leases.c.project_id == project.id,
        leases.c.name.startswith(prefix, autoescape=True),
        leases.c.lease_owner.is_not(None),
        leases.c.lease_expires_at <= now(),
    )
    async with project.store.read() as conn:
        rows = (await conn.execute(query)).all()
    for row in rows:
        if runs_here(row.lease_owner, row.lease_expires_at):
            lease = Lease(project.id, row.name, row.lease_owner, row.lease_epoch, row.lease_expires_at)
            with suppress(LeaseLost):
                await renew_lease(project.store, lease, lease_s)


def is_dead(holder: str) -> bool:
    """Return whether the holder was a process of this machine that has ended; False if unsure."""
    if (pid := pid_here(holder)) is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


async def release_dead(project: Project, name: str) -> None:
    """Release the lease `name` if a dead process of this machine holds it."""
    for lease in await list_holders(project, name):
        if lease.name == name and is_dead(lease.owner):
            await release_lease(project.store, lease)


async def wait_until_free(project: Project, name: str) -> None:
    """Wait until a lease is released, has expired, or was held by a process of this machine that is dead."""
    with project.store.watch.on(Topic.LEASES) as news:
        left_s: float | None = None
        while left_s is None or left_s > 0:
            await news.wait(left_s)
            await release_dead(project, name)
            left_s = await seconds_until_free(project, name)


async def release_all_dead(project: Project, prefix: str) -> None:
    """Release all leases of dead processes of this machine with a name that begins with `prefix`."""
    for lease in await list_holders(project, prefix):
        if is_dead(lease.owner):
            await release_lease(project.store, lease)


JUDGE: Final = "judge:"  # followed by the holder's name
PROXY: Final = "proxy:"
_RENEWALS_A_LEASE: Final = 3

log = logging.getLogger(__name__)


@asynccontextmanager
async def keep_presence(project: Project, kind: str, owner: str, lease_s: float) -> AsyncIterator[None]:
    """Hold a lease until the block ends, as a sign that `owner` is running.

    It is acquired again after an outage of the store.
    """
    held: list[Lease] = []

    async def show() -> None:
        if held:
            held[:] = [await renew_lease(project.store, held[0], lease_s)]
        else:
            lease = await acquire_lease(project, kind + owner, owner, lease_s)
            held.extend([lease] if lease else [])

    over = asyncio.Event()
    keeper = asyncio.create_task(_keep(show, held, lease_s, over), name=f"show {kind}{owner}")
    try:
        yield
    finally:
        over.set()
        await keeper  # not cancelled: it may be acquiring the lease
        with suppress(StoreError):  # otherwise it expires by itself
            for lease in held:
                await release_lease(project.store, lease)


async def _keep(show: Callable[[], Awaitable[None]], held: list[Lease], lease_s: float, over: asyncio.Event) -> None:
    while not over.is_set():
        try:
            await show()
        except LeaseLost:
            held.clear()  # it expired while the store was unavailable
            continue
        except StoreError as e:
            log.warning("this process cannot renew the lease that shows that it is running: %s", e)
        with suppress(TimeoutError):
            async with asyncio.timeout(lease_s / _RENEWALS_A_LEASE):
                await over.wait()

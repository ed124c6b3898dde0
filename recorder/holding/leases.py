"""Leases with a name: who controls the engine, who trains an alias, which judges are present.

Owns: taking, renewing and releasing them by guarded statements on the database's clock. Refuses: what a name means.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import LeaseLost
from recorder.store import sql
from recorder.store.changes import quietly
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.store.schema import leases
from recorder.store.sql import now

CONTROLLER = "controller"


@dataclass(frozen=True, slots=True)
class Lease:
    """A name held by `owner` until `expires_at` (unix seconds). The epoch counts its holders."""

    project_id: str
    name: str
    owner: str
    epoch: int
    expires_at: float


def trainer(alias_name: str) -> str:
    """The lease that lets one process alone train an alias."""
    return f"trainer:{alias_name}"


async def acquire(project: Project, name: str, owner: str, lease_s: float) -> Lease | None:
    """Take a lease that is free, ran out, or is the owner's own already (a new epoch all the same). None: held."""
    free = or_(leases.c.lease_owner.is_(None), leases.c.lease_expires_at <= now(), leases.c.lease_owner == owner)
    others = (leases.c.project_id == project.id, leases.c.name == name, ~free)
    async with project.store.read() as conn:  # asking for one that is held must not cost the write lock
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


async def free_in(project: Project, name: str) -> float:
    """In how many seconds a lease runs out, if its holder does not renew it; 0 where it is free."""
    held = (leases.c.project_id == project.id, leases.c.name == name, leases.c.lease_owner.is_not(None))
    async with project.store.read() as conn:
        left_s = (await conn.execute(select(leases.c.lease_expires_at - now()).where(*held))).scalar_one_or_none()
    return max(0.0, float(left_s or 0.0))


async def renew(store: Store, lease: Lease, lease_s: float) -> Lease:
    """Hold a lease for longer, also one that ran out and that nobody took. Raises LeaseLost."""
    async with store.write() as conn:
        return replace(lease, expires_at=await _touch(conn, lease, lease_expires_at=now() + lease_s))


async def release(store: Store, lease: Lease) -> None:
    """Let a lease go; one that was lost already is left alone."""
    statement = update(leases).where(_held(lease)).values(lease_owner=None, lease_expires_at=None)
    async with store.write() as conn:
        await conn.execute(statement)


async def require(conn: AsyncConnection, lease: Lease) -> None:
    """Raise LeaseLost unless the lease is still its holder's: guards a write in the caller's transaction."""
    await _touch(conn, lease, lease_expires_at=leases.c.lease_expires_at)


async def holders(project: Project, prefix: str = "") -> list[Lease]:
    """The leases in force whose name begins with `prefix`, by name."""
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
    statement = quietly(statement)
    expires_at = (await conn.execute(statement)).scalar_one_or_none()
    if expires_at is None:
        raise LeaseLost(
            f"{lease.owner} no longer holds {lease.name!r} (epoch {lease.epoch}): its lease ran out and was taken. "
            "Drop the work and acquire it again."
        )
    return float(expires_at)

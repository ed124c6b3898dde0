"""Which of Hone's programs have a store open: nobody moves one that still changes.

Owns: that question. Refuses: stopping anybody.
"""

from __future__ import annotations

from sqlalchemy import select

from recorder.base.urls import shown_store
from recorder.errors import Conflict
from recorder.holding.holders import is_dead
from recorder.store.database import Store
from recorder.store.schema import leases
from recorder.store.sql import now


async def holders_of(store: Store) -> list[str]:
    """What is held in a store, of all projects, but by processes of this machine that are gone."""
    held = (leases.c.lease_owner.is_not(None), leases.c.lease_expires_at > now())
    query = select(leases.c.name, leases.c.lease_owner).where(*held).order_by(leases.c.name)
    async with store.read() as conn:
        return [name for name, owner in await conn.execute(query) if not is_dead(owner)]


async def refuse_in_use(store: Store) -> None:
    """Raise Conflict where a program of Hone's uses the store, or did so a moment ago on another machine."""
    held = await holders_of(store)
    if held:
        raise Conflict(
            f"programs of Hone use the store {shown_store(store.url)} ({', '.join(held)}): "
            "stop `hone up`, `hone serve`, `hone judge`, `hone learn` and `hone train` first. After one that died on "
            "another machine wait a minute."
        )

"""A named lease has one holder, and its epoch tells a holder that it no longer is."""

from __future__ import annotations

import pytest

from recorder.errors import LeaseLost
from recorder.queue import leases
from recorder.queue.leases import Lease
from recorder.store.database import Project, Store
from recorder.store.schema import leases as table
from recorder.store.sql import now
from tests.recorder.rows import PROJECT


async def acquire(store: Store, owner: str, name: str = "controller", lease_s: float = 60) -> Lease | None:
    return await leases.acquire_lease(Project(store, PROJECT), name, owner, lease_s)


async def held(store: Store, owner: str, name: str = "controller", lease_s: float = 60) -> Lease:
    lease = await acquire(store, owner, name, lease_s)
    assert lease is not None
    return lease


async def run_out(store: Store) -> None:
    async with store.write() as conn:
        await conn.execute(table.update().values(lease_expires_at=now() - 1))


async def test_a_held_lease_is_refused_to_others(store: Store) -> None:
    first = await held(store, "a")
    assert (first.owner, first.epoch) == ("a", 1)
    assert await acquire(store, "b") is None
    assert (await held(store, "b", "trainer:helpdesk")).epoch == 1


async def test_waiting_for_a_lease_does_not_need_the_write_lock(store: Store) -> None:
    await held(store, "a")
    async with store.write():
        assert await acquire(store, "b") is None


async def test_projects_do_not_share_leases(store: Store) -> None:
    await held(store, "a")
    async with store.write() as conn:
        await conn.exec_driver_sql(
            "insert into projects (id, node_key, created_at) select 'other', node_key, created_at from projects"
        )
    assert await leases.acquire_lease(Project(store, "other"), "controller", "b", 60) is not None


async def test_a_lease_that_ran_out_goes_to_the_next_with_a_new_epoch(store: Store) -> None:
    first = await held(store, "a")
    await run_out(store)
    second = await held(store, "b")
    assert second.epoch == first.epoch + 1
    with pytest.raises(LeaseLost, match="a no longer holds 'controller'"):
        await leases.renew_lease(store, first, 60)


async def test_a_lease_that_ran_out_and_that_nobody_took_may_be_renewed(store: Store) -> None:
    lease = await held(store, "a")
    await run_out(store)
    assert (await leases.renew_lease(store, lease, 60)).expires_at > lease.expires_at - 1
    assert await acquire(store, "b") is None


async def test_its_own_owner_takes_it_again_under_a_new_epoch(store: Store) -> None:
    first = await held(store, "a")
    second = await held(store, "a")
    assert second.epoch == first.epoch + 1
    with pytest.raises(LeaseLost):
        await leases.renew_lease(store, first, 60)


async def test_a_released_lease_is_free(store: Store) -> None:
    first = await held(store, "a")
    await leases.release_lease(store, first)
    second = await held(store, "b")
    await leases.release_lease(store, first)  # it is no longer a's to release
    assert await acquire(store, "c") is None
    assert second.epoch == 2


async def test_a_write_can_require_the_lease(store: Store) -> None:
    lease = await held(store, "a")
    async with store.write() as conn:
        await leases.require_lease(conn, lease)
    await run_out(store)
    await held(store, "b")
    async with store.write() as conn:
        with pytest.raises(LeaseLost):
            await leases.require_lease(conn, lease)


async def test_holders_are_those_in_force_by_prefix(store: Store) -> None:
    for owner in ("one", "two"):
        await held(store, owner, f"judge:{owner}")
    await held(store, "c")
    gone = await held(store, "three", "judge:three")
    await leases.release_lease(store, gone)
    assert [lease.name for lease in await leases.list_holders(Project(store, PROJECT), "judge:")] == [
        "judge:one",
        "judge:two",
    ]
    await held(store, "x", "judge%")
    assert [lease.name for lease in await leases.list_holders(Project(store, PROJECT), "judge%")] == ["judge%"]
    await run_out(store)
    assert await leases.list_holders(Project(store, PROJECT)) == []

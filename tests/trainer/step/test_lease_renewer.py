"""Leases are renewed while they are needed, and a loss is noticed."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import select

from recorder.queue import claims, leases
from recorder.store import schema
from recorder.store.database import Project
from tests.trainer.world import PROJECT, World
from trainer.step.lease_renewer import LeaseRenewer


async def test_leases_are_renewed_while_a_step_runs(world: World) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    lease = await leases.acquire_lease(Project(world.store, PROJECT), "trainer:x", "me", 0.5)
    assert lease is not None
    (claim,) = await claims.claim_for_training(world.store, world.alias.id, "me", 0.5, limit=1)
    keeper = LeaseRenewer(world.store, lease, 0.5)
    async with keeper.running():
        with keeper.keeping([claim]):
            query = select(schema.groups.c.lease_expires_at).where(schema.groups.c.id == group_id)
            renewed = (lease.expires_at, claim.expires_at)
            while min(renewed[0] - lease.expires_at, renewed[1] - claim.expires_at) < 0.5:
                await asyncio.sleep(0.01)
                async with world.store.read() as conn:
                    renewed = keeper.lease.expires_at, (await conn.execute(query)).scalar_one()
        assert not keeper.lost.is_set()
    assert await leases.list_holders(Project(world.store, PROJECT), "trainer:x") == []


async def test_a_claim_that_was_let_go_is_no_reason_to_give_up_the_alias(world: World) -> None:
    await world.group("g1", [1.0, 0.0])
    async with await world.trainer() as trainer:
        (claim,) = await world.claim(trainer)
        with trainer._keeper.keeping([claim]):
            await claims.return_claim(world.store, claim)
            await trainer._keeper.renew_now()
        assert (await trainer.train_once(await world.claim(trainer))).version is not None


async def test_a_lost_lease_is_noticed(world: World) -> None:
    lease = await leases.acquire_lease(Project(world.store, PROJECT), "trainer:x", "me", 0.1)
    assert lease is not None
    keeper = LeaseRenewer(world.store, lease, 0.1)
    await leases.release_lease(world.store, lease)
    assert await leases.acquire_lease(Project(world.store, PROJECT), "trainer:x", "other", 60) is not None
    async with keeper.running():
        assert await asyncio.to_thread(keeper.lost.wait, 60)
    assert [held.owner for held in await leases.list_holders(Project(world.store, PROJECT), "trainer:x")] == ["other"]


async def test_a_keeper_that_fails_keeps_nothing_and_does_not_hide_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    lease = await leases.acquire_lease(Project(world.store, PROJECT), "trainer:x", "me", 0.1)
    assert lease is not None
    keeper = LeaseRenewer(world.store, lease, 0.1)

    async def broken() -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(keeper, "renew_now", broken)
    with pytest.raises(ZeroDivisionError):
        async with keeper.running():
            assert await asyncio.to_thread(keeper.lost.wait, 60)
    assert await leases.list_holders(Project(world.store, PROJECT), "trainer:x") == []

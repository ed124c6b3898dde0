"""A process that runs is seen in the store, one that ended is not; and who waits for a lease hears when it is free."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest
from sqlalchemy import update

from recorder.queue import leases
from recorder.queue.leases import JUDGE, PROXY, keep_presence
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.store.schema import leases as table
from recorder.store.sql import now
from tests.recorder.rows import PROJECT


async def shown(store: Store, kind: str = PROXY) -> list[str]:
    return [lease.name for lease in await leases.list_holders(Project(store, PROJECT), kind)]


async def comes(store: Store, *names: str) -> None:
    with store.watch.on(Topic.LEASES) as news:
        while await shown(store) != list(names):
            await news.wait(
                0.1
            )  # of a lease that is renewed there is no news, and a slow machine may see it run out first


async def test_a_process_is_shown_while_it_runs(store: Store) -> None:
    async with (
        keep_presence(Project(store, PROJECT), PROXY, "me", 60),
        keep_presence(Project(store, PROJECT), JUDGE, "me", 60),
    ):
        await comes(store, "proxy:me")
    assert await shown(store) == await shown(store, JUDGE) == []


async def test_its_lease_is_renewed(store: Store) -> None:
    async with keep_presence(Project(store, PROJECT), PROXY, "me", 1.5):
        await comes(store, "proxy:me")
        (before,) = await leases.list_holders(Project(store, PROJECT), PROXY)
        while (await leases.list_holders(Project(store, PROJECT), PROXY))[0].expires_at == before.expires_at:
            await asyncio.sleep(0.01)
        (after,) = await leases.list_holders(Project(store, PROJECT), PROXY)
        assert after.epoch == before.epoch


async def test_it_is_shown_again_after_its_lease_was_lost(store: Store) -> None:
    async with keep_presence(Project(store, PROJECT), PROXY, "me", 1.5):
        await comes(store, "proxy:me")
        async with store.write() as conn:
            await conn.execute(update(table).values(lease_owner="thief", lease_expires_at=now() - 1))
        await comes(store, "proxy:me")


@pytest.mark.parametrize("how", ["let go", "ran out", "left behind"])
async def test_a_lease_is_waited_for_until_it_is_free(store: Store, how: str) -> None:
    host, _, random = leases.holder_name().split(":")
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    owner = f"{host}:{gone.pid}:{random}" if how == "left behind" else "another machine"
    held = await leases.acquire_lease(Project(store, PROJECT), "name", owner, 0.2 if how == "ran out" else 1000)
    assert held is not None
    waiting = asyncio.create_task(leases.wait_until_free(Project(store, PROJECT), "name"))
    if how == "let go":
        await asyncio.sleep(0)
        assert not waiting.done()
        await leases.release_lease(store, held)
    await waiting
    assert await leases.acquire_lease(Project(store, PROJECT), "name", "me", 1000) is not None


async def test_a_lease_tells_when_it_will_be_free(store: Store) -> None:
    assert await leases.seconds_until_free(Project(store, PROJECT), "name") == 0
    held = await leases.acquire_lease(Project(store, PROJECT), "name", "me", 50)
    assert held is not None
    assert await leases.seconds_until_free(Project(store, PROJECT), "name") == pytest.approx(50, abs=1)
    await leases.release_lease(store, held)
    assert await leases.seconds_until_free(Project(store, PROJECT), "name") == 0

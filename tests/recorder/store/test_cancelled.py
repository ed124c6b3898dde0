"""Tasks that are cancelled while they read or write leave the store as if they had never come."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from sqlalchemy import insert, literal, select

from recorder.queue import leases
from recorder.store import schema
from recorder.store.database import Project, Store
from recorder.store.sql import now
from recorder.store.sqlite import finish
from tests.recorder.rows import PROJECT

pytestmark = pytest.mark.slow

Work = Callable[[Store, str], Awaitable[object]]
_MOMENTS = 60
_LONGEST_S = 0.02  # a write takes some 3 ms, and others wait for it


async def writes(store: Store, name: str) -> None:
    while True:
        await leases.acquire_lease(Project(store, PROJECT), name, "somebody", 60)
        await asyncio.sleep(0)


async def reads(store: Store, name: str) -> None:
    while True:
        async with store.read() as conn:
            assert await conn.scalar(select(literal(name))) == name


@asynccontextmanager
async def a_neighbour(store: Store) -> AsyncIterator[Store]:
    """Another program on the same database."""
    made = Store(store.url)
    try:
        yield made
    finally:
        await made.close()


@pytest.mark.parametrize(
    ("work", "times"),
    [(writes, 2), (reads, 1), *(pytest.param(*case, marks=pytest.mark.long) for case in ((writes, 1), (reads, 2)))],
)
async def test_a_task_cancelled_at_any_moment_leaves_no_lock(store: Store, work: Work, times: int) -> None:
    moments = random.Random(times)
    async with a_neighbour(store) as neighbour:
        others = [asyncio.ensure_future(writes(one, name)) for one, name in ((store, "ours"), (neighbour, "theirs"))]
        for _ in range(_MOMENTS):
            tasks = [asyncio.ensure_future(work(store, f"cancelled {i}")) for i in range(moments.choice([1, 1, 2, 4]))]
            await asyncio.sleep(moments.uniform(0, _LONGEST_S))
            for time in range(times):  # whoever ends a program asks twice
                if time:
                    await asyncio.sleep(moments.choice([0, moments.uniform(0, 0.003)]))
                for task in tasks:
                    task.cancel()
            await asyncio.wait(tasks)
            assert all(task.cancelled() for task in tasks)
            # Both can write, and those that nobody cancelled were never refused: who finds a lock is, after 30 s.
            await leases.acquire_lease(Project(store, PROJECT), "ours too", "somebody", 60)
            await leases.acquire_lease(Project(neighbour, PROJECT), "theirs too", "somebody", 60)
            assert not [other for other in others if other.done()]
        for other in others:
            other.cancel()
        await asyncio.wait(others)


async def test_a_cancelled_write_is_wholly_there_or_not_at_all(store: Store) -> None:
    moments = random.Random(3)
    for number in range(_MOMENTS):
        names = [f"{number}.{part}" for part in range(3)]
        task = asyncio.ensure_future(_at_once(store, names))
        await asyncio.sleep(moments.uniform(0, _LONGEST_S / 2))
        task.cancel()
        await asyncio.wait([task])
        held = {lease.name for lease in await leases.list_holders(Project(store, PROJECT), f"{number}.")}
        assert held in (set(), set(names))
        assert held or task.cancelled()


async def _at_once(store: Store, names: list[str]) -> None:
    async with store.write() as conn:
        for name in names:
            values = {"project_id": PROJECT, "name": name, "lease_owner": "us", "lease_expires_at": now() + 60}
            await conn.execute(insert(schema.leases).values(values))


async def test_a_wait_to_the_end_is_cancelled_at_the_end() -> None:
    let_go = asyncio.Event()

    async def work() -> str:
        await let_go.wait()
        return "done"

    waiting = asyncio.ensure_future(finish(work()))
    await asyncio.sleep(0)
    for _ in range(3):
        waiting.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()
    let_go.set()
    await asyncio.wait([waiting])
    assert waiting.cancelled()


async def test_who_is_not_cancelled_hears_what_came_of_it() -> None:
    async def fail() -> None:
        raise LookupError("no")

    assert await finish(asyncio.sleep(0, "yes")) == "yes"
    with pytest.raises(LookupError, match="no"):
        await finish(fail())

"""Filling for as long as a process runs: what is recorded is found, by one process at a time, whoever died."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from recorder.errors import StoreUnavailable
from recorder.queue import leases
from recorder.search import indexer
from recorder.search.documents import count_queued
from recorder.search.indexer import LEASE, Indexer, index_calls
from recorder.store.database import Project, Store
from recorder.store.schema import unmerged
from tests.recorder.rows import Rows
from tests.recorder.search.conftest import Index
from tests.recorder.search.test_indexer import delete_run, holding
from tests.recorder.talk import PROJECT, Talk, user


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short pauses."""
    monkeypatch.setattr(indexer, "LOOK_S", 0.02)
    monkeypatch.setattr(indexer, "MERGE_EVERY_S", 0.02)


async def until(look: Callable[[], Awaitable[object]]) -> None:
    while not await look():
        await asyncio.sleep(0.01)


async def test_what_is_said_while_it_runs_is_found(store: Store, talk: Talk, index: Index) -> None:
    await talk.call([user("the first order")], "yes")
    async with Indexer(Project(store, PROJECT), "here").running():
        await until(lambda: index.saying("first order"))
        await talk.call([user("the second order")], "yes")
        await until(lambda: index.saying("second order"))
    assert await leases.list_holders(Project(store, PROJECT), LEASE) == []


async def test_one_of_several_fills_and_another_when_it_ends(store: Store, talk: Talk, index: Index) -> None:
    first, second = Indexer(Project(store, PROJECT), "first"), Indexer(Project(store, PROJECT), "second")

    async def held() -> list[str]:
        return [lease.owner for lease in await leases.list_holders(Project(store, PROJECT), LEASE)]

    async def is_second() -> bool:
        return await held() == ["second"]

    async with first.running():
        await until(held)
        async with second.running():
            await talk.call([user("the first order")], "yes")
            await until(lambda: index.saying("first order"))
            assert await held() == ["first"]
            first._loop.stop()  # it may index once more before it releases the lease
            await until(is_second)
            await talk.call([user("the second order")], "yes")
            await until(lambda: index.saying("second order"))
            assert await held() == ["second"]


async def test_a_dead_process_is_no_obstacle(store: Store, talk: Talk, index: Index) -> None:
    host = leases.holder_name().partition(":")[0]
    assert await leases.acquire_lease(Project(store, PROJECT), LEASE, f"{host}:999999999:dead", 1000)
    await talk.call([user("an order")], "yes")
    async with Indexer(Project(store, PROJECT), "here").running():
        await until(lambda: index.saying("order"))


async def test_it_goes_on_when_the_store_was_away(
    store: Store, talk: Talk, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    async def away(*args: Any) -> int:
        tries.append(args)
        if len(tries) < 3:
            raise (StoreUnavailable("away"), ValueError("a bug"))[len(tries) - 1]
        return await index_calls(*args)

    monkeypatch.setattr(indexer, "index_calls", away)
    await talk.call([user("an order")], "yes")
    async with Indexer(Project(store, PROJECT), "here").running():
        await until(lambda: index.saying("order"))


@pytest.mark.sqlite_only("its files' bytes")
async def test_what_the_sweep_deleted_leaves_the_file_behind_it(
    store: Store, talk: Talk, index: Index, rows: Rows
) -> None:
    turns = []
    for n in range(5):
        turns.append(await talk.call([user(f"zanzibar{n}x")], "yes"))
        await index.fill()
    await delete_run(store, talk, turns[0])
    assert await rows.all(unmerged)

    async def merged() -> bool:
        return not await rows.all(unmerged)

    async def emptied() -> bool:
        return not holding(store, "zanzibar0x")

    async with Indexer(Project(store, PROJECT), "here").running():
        await until(merged)
        await until(emptied)
    assert await count_queued(Project(store, PROJECT)) == 0
    assert len(await index.saying("zanzibar1x")) == 1

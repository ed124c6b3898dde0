"""Connections that only read, and not for long: what takes longer is ended, and nobody else has to wait for it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import select, text, update

from recorder.errors import StoreError, TooSlow
from recorder.store.database import Store
from recorder.store.schema import projects

ENDLESS = text("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT count(*) FROM n")
COUNT = select(projects.c.id)


@pytest.fixture
async def limited(store: Store) -> AsyncIterator[Store]:
    made = store.limited(0.2)
    yield made
    await made.close()


async def ask(store: Store) -> list[str]:
    async with store.read() as conn:
        return [str(row[0]) for row in await conn.execute(COUNT)]


async def never_ends(store: Store) -> None:
    async with store.read() as conn:
        await conn.execute(ENDLESS)


async def test_a_read_that_takes_longer_is_ended_and_says_why(limited: Store) -> None:
    with pytest.raises(TooSlow, match=r"a read of the store was cancelled after 0\.2 s"):
        await never_ends(limited)


async def test_its_connection_is_good_for_the_next_one(limited: Store) -> None:
    for _ in range(6):  # more than there are connections
        with pytest.raises(TooSlow):
            await never_ends(limited)
    assert await ask(limited) == ["default"]


async def test_who_finds_every_connection_taken_waits_no_longer_than_that_either(limited: Store) -> None:
    ends = await asyncio.gather(*(never_ends(limited) for _ in range(12)), return_exceptions=True)
    assert {type(end) for end in ends} == {TooSlow}


async def test_the_store_itself_reads_and_writes_meanwhile(store: Store, limited: Store) -> None:
    slow = [asyncio.ensure_future(never_ends(limited)) for _ in range(4)]
    async with store.write() as conn:
        await conn.execute(update(projects).values(created_at=7.0))
    assert await ask(store) == ["default"]
    ends = await asyncio.gather(*slow, return_exceptions=True)
    assert {type(end) for end in ends} == {TooSlow}


async def test_it_writes_nothing(store: Store, limited: Store) -> None:
    with pytest.raises(StoreError):
        async with limited.write() as conn:
            await conn.execute(update(projects).values(created_at=7.0))
    async with store.read() as conn:
        assert (await conn.execute(select(projects.c.created_at))).scalar_one() != 7.0

"""Work in batches that form by themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from trainer.agents.attempts import Batcher


async def test_what_comes_while_a_batch_is_worked_on_is_the_next() -> None:
    batches: list[list[int]] = []
    first = asyncio.Event()

    async def double(items: Sequence[int]) -> list[int]:
        batches.append(list(items))
        await first.wait()
        return [2 * item for item in items]

    batcher = Batcher(double)
    lone = asyncio.create_task(batcher.do(0))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    others = [asyncio.create_task(batcher.do(item)) for item in range(1, 5)]
    await asyncio.sleep(0)
    first.set()
    assert await asyncio.gather(lone, *others) == [0, 2, 4, 6, 8]
    assert batches == [[0], [1, 2, 3, 4]]
    assert await batcher.do(9) == 18


async def test_a_failed_batch_fails_each_of_its_items_and_no_other() -> None:
    async def refuse_odd(items: Sequence[int]) -> Sequence[int]:
        if any(item % 2 for item in items):
            raise ValueError("odd")
        return items

    batcher = Batcher(refuse_odd)
    failed = await asyncio.gather(batcher.do(1), batcher.do(2), return_exceptions=True)
    assert [str(e) for e in failed] == ["odd", "odd"]
    assert await batcher.do(4) == 4


async def test_one_who_stops_waiting_does_not_disturb_the_others() -> None:
    gate = asyncio.Event()

    async def work(items: Sequence[int]) -> Sequence[int]:
        await gate.wait()
        return items

    batcher = Batcher(work)
    gone, stays = asyncio.create_task(batcher.do(1)), asyncio.create_task(batcher.do(2))
    await asyncio.sleep(0)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    gate.set()
    assert await stays == 2
    await batcher.idle()

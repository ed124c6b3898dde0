"""A view that takes long: asked for once however many want it, shown as it was meanwhile, never when it is too old."""

from __future__ import annotations

import asyncio

import pytest

from proxy.api import status
from proxy.api.status import StaleWhileRevalidate


class View:
    """Counts how often it was asked for; an answer waits until it is let go."""

    def __init__(self) -> None:
        self.asked = 0
        self.free = asyncio.Event()
        self.free.set()
        self.fails = False

    async def ask(self) -> int:
        self.asked += 1
        number = self.asked
        await self.free.wait()
        if self.fails:
            raise LookupError("gone")
        return number


async def test_what_is_quick_is_always_as_it_is() -> None:
    view = View()
    one = StaleWhileRevalidate(view.ask)
    assert [await one.now() for _ in range(3)] == [1, 2, 3]


async def test_all_wait_for_the_first_and_for_none_after_it() -> None:
    view = View()
    one = StaleWhileRevalidate(view.ask)
    view.free.clear()
    first = asyncio.gather(*(one.now() for _ in range(3)))
    await asyncio.sleep(0)
    view.free.set()
    assert await first == [1, 1, 1]
    view.free.clear()
    assert await asyncio.gather(*(one.now() for _ in range(3))) == [1, 1, 1]
    assert view.asked == 2
    view.free.set()


async def test_what_takes_long_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View()
    one = StaleWhileRevalidate(view.ask)
    monkeypatch.setattr(status, "SLOW_S", -1.0)
    monkeypatch.setattr(status, "RESTS", float("inf"))
    assert [await one.now() for _ in range(3)] == [1, 1, 1]
    assert view.asked == 1


async def test_what_was_slow_twice_is_not_waited_for_and_is_loaded_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View()
    one = StaleWhileRevalidate(view.ask)
    monkeypatch.setattr(status, "PATIENCE_S", None)  # as long as it takes
    assert [await one.now() for _ in range(2)] == [1, 2]
    monkeypatch.setattr(status, "IN_VAIN_S", -1.0)
    view.free.clear()
    assert [await one.now() for _ in range(2)] == [2, 2]
    monkeypatch.undo()
    view.free.set()
    assert await one.now() == 3


async def test_what_is_too_old_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View()
    one = StaleWhileRevalidate(view.ask)
    assert await one.now() == 1
    monkeypatch.setattr(status, "STALE_S", -1.0)
    monkeypatch.setattr(status, "PATIENCE_S", 0.0)
    assert await one.now() == 2


async def test_an_error_is_told_to_who_waits_and_the_next_asks_again(monkeypatch: pytest.MonkeyPatch) -> None:
    view = View()
    one = StaleWhileRevalidate(view.ask)
    view.fails = True
    with pytest.raises(LookupError):
        await one.now()
    view.fails = False
    assert await one.now() == 2

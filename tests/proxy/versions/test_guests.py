"""A guest: an earlier version takes a slot that no version in service needs, and only while a gate asks for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from proxy.versions.guests import GuestVersions
from recorder.registry.versions import VersionView
from recorder.states import VersionState
from tests.proxy.versions.test_pins import version


def of(number: int) -> VersionView:
    return replace(version(number, VersionState.RETIRED), path=f"/adapters/{number}")


async def nothing() -> None:
    return None


def guests(max_loras: int = 3) -> GuestVersions:
    return GuestVersions(lambda: None, nothing, max_loras)


def names(versions: list[VersionView]) -> list[str]:
    return [one.name for one in versions]


async def held(all_guests: GuestVersions, number: int, until: asyncio.Event) -> str | None:
    async with all_guests.hold(of(number)) as guest:
        await until.wait()
        return guest.missing


async def test_a_guest_is_added_where_a_slot_is_left_and_the_next_version_waits_for_it() -> None:
    one, done = guests(), asyncio.Event()
    task = asyncio.create_task(held(one, 1, done))
    await asyncio.sleep(0)
    assert names(one.added([of(4), of(5)])) == ["a@4", "a@5", "a@1"]
    assert not one.has_room(one.added([of(4), of(5)]))
    assert one.has_room(one.added([of(4)]))
    assert names(one.added([of(3), of(4), of(5)])) == ["a@3", "a@4", "a@5"]
    assert names(one.added([of(1), of(4)])) == ["a@1", "a@4"], "it is kept in any case"
    assert one.current is not None
    one.current.settle([of(4), of(5), of(1)], [])
    done.set()
    assert await task is None
    assert names(one.added([of(4)])) == ["a@4"]
    assert one.has_room([of(3), of(4), of(5)])


async def test_a_guest_without_a_slot_hears_of_it_also_when_it_loses_its_slot() -> None:
    one, done = guests(), asyncio.Event()
    task = asyncio.create_task(held(one, 1, done))
    await asyncio.sleep(0)
    assert one.current is not None
    one.current.settle([of(4), of(1)], [])
    one.current.settle([of(3), of(4), of(5)], [])
    done.set()
    assert await task == "the engines have no free slot for a@1 (engine.max_loras)"


async def test_a_second_guest_waits_for_its_turn_and_the_base_for_none() -> None:
    one, done = guests(), asyncio.Event()
    tasks = [asyncio.create_task(held(one, number, done)) for number in (1, 2)]
    await asyncio.sleep(0)
    base = asyncio.create_task(held(one, 0, done))
    await asyncio.sleep(0)
    assert one.current is not None
    assert one.current.version.number == 1
    one.current.settle([of(1)], [])
    done.set()
    await tasks[0]
    await asyncio.sleep(0)
    assert one.current.version.number == 2
    one.current.settle([of(2)], [])
    assert set(await asyncio.gather(tasks[1], base)) == {None}


async def test_a_gate_that_gives_up_leaves_no_guest() -> None:
    one = guests()
    task = asyncio.create_task(held(one, 1, asyncio.Event()))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert one.current is None

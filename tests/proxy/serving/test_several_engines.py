"""Several engines: a trajectory's calls go to one of them, through every proxy, and move only if it cannot answer."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
from sqlalchemy import Column, select, update

from proxy.versions.affinity import max_in_flight, order_engines
from recorder.registry.replicas import ReplicaState, report_replica
from recorder.store.database import Project, Store
from recorder.store.schema import calls, trajectories
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import BASE, PROJECT, WITHOUT_PAGES, Proxy, serving

pytestmark = pytest.mark.slow

SAID = "It arrives on Monday"
TALK = ("Where?", SAID, "And now?", SAID, "And then?", SAID, "So?")


class Engines:
    """Two engines, by URL."""

    def __init__(self, *engines: FakeEngine) -> None:
        self.by_url = {engine.url: engine for engine in engines}
        for engine in engines:
            engine.default = Script([words(SAID)])

    async def report(self, *proxies: Proxy, down: str | None = None) -> None:
        """Write that all are up, but for one, and tell the proxies."""
        for url in self.by_url:
            state: ReplicaState = "up" if url != down else "down"
            await report_replica(
                Project(proxies[0].store, PROJECT), url, state=state, loaded=[BASE] if state == "up" else []
            )
        for proxy in proxies:
            await proxy.versions.refresh()

    def other(self, url: str) -> str:
        return next(one for one in self.by_url if one != url)


@pytest.fixture
async def engines() -> AsyncIterator[Engines]:
    async with FakeEngine() as one, FakeEngine() as two:
        yield Engines(one, two)


@pytest.fixture
async def proxy(store: Store, engines: Engines) -> AsyncIterator[Proxy]:
    async with before(store, engines) as running:
        await engines.report(running)
        yield running


def before(store: Store, engines: Engines) -> AbstractAsyncContextManager[Proxy]:
    return serving(store, next(iter(engines.by_url.values())), settings=WITHOUT_PAGES)


async def turn(proxy: Proxy, name: str, number: int) -> int:
    """Ask the trajectory's turn with this number, from 0; return the status."""
    return (await proxy.chat(*TALK[: 2 * number + 1], path=f"/t/{name}")).status_code


async def engines_of(proxy: Proxy, by: Column[str] = trajectories.c.external_id) -> dict[str, list[str]]:
    """Where the complete calls of each trajectory were answered, in order."""
    answered: defaultdict[str, list[str]] = defaultdict(list)
    query = select(by, calls.c.response_meta).join(trajectories, trajectories.c.id == calls.c.trajectory_id)
    async with proxy.store.read() as conn:
        for of, meta in await conn.execute(query.where(calls.c.state == "complete").order_by(calls.c.started_at)):
            answered[of].append(meta["engine"])
    return answered


async def stored(proxy: Proxy, name: str) -> str | None:
    async with proxy.store.read() as conn:
        query = select(trajectories.c.engine_url).where(trajectories.c.external_id == name)
        url: str | None = (await conn.execute(query)).scalar_one()
        return url


async def test_calls_of_trajectories_that_run_at_once_stay_on_their_engines(proxy: Proxy, engines: Engines) -> None:
    gate = asyncio.Event()
    for engine in engines.by_url.values():
        engine.default = Script([words(SAID)], gate=gate)

    async def talk(name: str) -> None:
        assert [await turn(proxy, name, number) for number in range(4)] == [200] * 4

    talks = asyncio.gather(*(talk(str(n)) for n in range(16)))
    one, two = engines.by_url.values()
    async with asyncio.timeout(20):
        while len(one.requests) + len(two.requests) < 16:
            await asyncio.sleep(0.01)
    assert max(len(one.requests), len(two.requests)) <= max_in_flight(15, 2)
    gate.set()
    await talks
    answered = await engines_of(proxy)
    assert {name: len(set(at)) for name, at in answered.items()} == {str(n): 1 for n in range(16)}
    assert Counter(at[0] for at in answered.values()).keys() == engines.by_url.keys()


async def test_a_group_that_is_named_shares_an_engine(proxy: Proxy, engines: Engines) -> None:
    for group in range(6):
        for member in range(3):
            assert (await proxy.chat("Where?", path=f"/g/{group}/t/{member}")).status_code == 200
    homes = await engines_of(proxy, trajectories.c.group_id)
    assert homes == {id_: [order_engines(id_, engines.by_url)[0]] * 3 for id_ in homes}
    assert len(homes) == 6


async def test_a_trajectory_moves_when_its_engine_dies_and_stays_where_it_was_answered(
    proxy: Proxy, engines: Engines
) -> None:
    for name in ("moves", "waits"):
        await turn(proxy, name, 0)
    home = await stored(proxy, "moves")
    assert home is not None
    await engines.by_url[home].stop()
    assert await turn(proxy, "moves", 1) == 200
    await engines.by_url[home].start()
    proxy.versions._avoid_until.clear()  # a second later
    for number in (2, 3):
        assert await turn(proxy, "moves", number) == 200
    other = engines.other(home)
    assert (await engines_of(proxy))["moves"] == [home, other, other, other]
    waited = await stored(proxy, "waits")
    await turn(proxy, "waits", 1)
    assert (await engines_of(proxy))["waits"] == [waited, waited]


async def test_a_failure_that_nobody_answered_moves_no_trajectory(proxy: Proxy, engines: Engines) -> None:
    await turn(proxy, "run", 0)
    home = await stored(proxy, "run")
    for engine in engines.by_url.values():
        await engine.stop()
    assert await turn(proxy, "run", 1) == 503
    for engine in engines.by_url.values():
        await engine.start()
    proxy.versions._avoid_until.clear()
    assert await stored(proxy, "run") == home
    await turn(proxy, "run", 1)
    assert (await engines_of(proxy))["run"] == [home, home]


async def test_a_restarted_proxy_finds_a_trajectorys_engine_in_the_store(store: Store, engines: Engines) -> None:
    async with before(store, engines) as first:
        await engines.report(first)
        await turn(first, "run", 0)
    async with store.write() as conn:  # not the one that its key decides
        home = engines.other(str((await conn.execute(select(trajectories.c.engine_url))).scalar_one()))
        await conn.execute(update(trajectories).values(engine_url=home))
    async with before(store, engines) as again:
        await engines.report(again)
        await turn(again, "run", 1)
        assert (await engines_of(again))["run"][1] == home


async def test_two_proxies_agree_although_a_trajectory_moves_through_one_of_them(
    store: Store, engines: Engines
) -> None:
    async with before(store, engines) as one, before(store, engines) as two:
        await engines.report(one, two)
        await turn(one, "run", 0)
        home = await stored(one, "run")
        assert home is not None
        await turn(two, "run", 1)
        await engines.report(one, two, down=home)
        await turn(two, "run", 2)
        await engines.report(one, two)
        await turn(one, "run", 3)
        other = engines.other(home)
        assert (await engines_of(one))["run"] == [home, home, other, other]

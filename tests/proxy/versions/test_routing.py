"""The snapshot that requests are routed by follows the store, and routing needs no I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass

import pytest
from sqlalchemy import select

from proxy.errors import NoReplica
from proxy.settings.sections import ProxySettings
from proxy.versions.affinity import order_engines
from proxy.versions.routing import Route, ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address, RecordedRequest, SamplingParameters, TrajectoryRef
from recorder.registry import replicas
from recorder.registry.alias_moves import rollback, set_canary, set_live
from recorder.registry.aliases import AliasView, Holdback, ensure_alias, get_alias
from recorder.registry.replicas import ReplicaState
from recorder.registry.versions import VersionView, allocate_version, mark_version
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.database import Project, Store
from recorder.store.schema import trajectories
from tests.proxy.until import until

E1, E2 = "http://e1:1", "http://e2:2"


@dataclass
class World:
    """A store with alias helpdesk, and a proxy's view of it."""

    store: Store
    versions: ServiceRouter

    async def alias(self) -> AliasView:
        return await get_alias(Project(self.store, "default"), "helpdesk")

    async def gated(self) -> VersionView:
        """A new version that has passed its gate, from the live one."""
        alias = await self.alias()
        assert alias.live_version_id is not None
        version = await allocate_version(self.store, alias.id, alias.live_version_id)
        for state in (VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED):
            version = await mark_version(self.store, version.id, state)
        return version

    async def replica(self, *versions: VersionView, url: str = E1, state: ReplicaState = "up") -> None:
        loaded = ["base", *(v.engine_name for v in versions)] if state in ("up", "asleep") else []
        await replicas.report_replica(Project(self.store, "default"), url, state=state, loaded=loaded)
        await self.versions.refresh()

    @contextmanager
    def held(self, route: Route) -> Iterator[str]:
        """A request in flight, and the URL of its engine."""
        with self.versions.hold(route):
            yield route.replica_url

    async def live(self, version: VersionView) -> None:
        await set_live(self.store, version.alias_id, version.id, why="gate")
        await self.versions.refresh()


@pytest.fixture
async def world(store: Store) -> World:
    await ensure_alias(Project(store, "default"), "helpdesk", "base", "fp")
    versions = ServiceRouter(Project(store, "default"), ProxySettings(), proxy_url="http://p:1", engine_key="k")
    await versions.refresh()
    return World(store, versions)


async def test_names_resolve_to_aliases_and_versions(world: World) -> None:
    version = await world.gated()
    await world.replica(version)
    target = world.versions.resolve("helpdesk")
    assert target is not None
    assert (target.alias.name, target.version) == ("helpdesk", None)
    exact = world.versions.resolve("helpdesk@1")
    assert exact is not None
    assert exact.version is not None
    assert exact.version.id == version.id
    base = world.versions.resolve("helpdesk@0")
    assert base is not None
    assert base.version is not None
    for unknown in ("other", "other@1", "helpdesk@2", "helpdesk@", "helpdesk@x", "@1", ""):
        assert world.versions.resolve(unknown) is None


async def test_an_alias_may_carry_a_slash_and_a_dot(world: World) -> None:
    await ensure_alias(Project(world.store, "default"), "Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", None)
    await world.versions.refresh()
    assert world.versions.resolve("Qwen/Qwen3-0.6B@0") is not None


async def test_a_version_that_no_engine_holds_cannot_be_asked_for(world: World) -> None:
    for _ in range(2):
        await world.live(await world.gated())
    await world.replica()
    assert world.versions.resolve("helpdesk@1") is None
    assert [card["id"] for card in world.versions.models()] == ["helpdesk", "helpdesk@0"]


async def test_a_version_that_engines_are_loading_is_not_unknown(world: World) -> None:
    version, waiting = await world.gated(), await world.gated()
    await world.live(version)
    for name in ("helpdesk@1", "helpdesk@2"):
        with pytest.raises(NoReplica, match=f"no engine is known yet that could serve {name}: retry"):
            world.versions.resolve(name)
    await world.replica()
    with pytest.raises(NoReplica, match="no engine holds helpdesk@1 now"):
        world.versions.resolve("helpdesk@1")
    await world.replica(version, waiting)
    assert [world.versions.resolve(name) is None for name in ("helpdesk@1", "helpdesk@2", "helpdesk@3")] == [0, 0, 1]


async def test_a_declared_alias_is_not_unknown_before_the_store_has_it(store: Store) -> None:
    project = Project(store, "default")
    versions = ServiceRouter(project, ProxySettings(), declared=["helpdesk", "Qwen/Qwen3-0.6B"])
    await versions.refresh()
    for name in ("helpdesk", "helpdesk@0", "helpdesk@7", "Qwen/Qwen3-0.6B"):
        with pytest.raises(NoReplica, match=f"the alias '{name}' is not in service yet"):
            versions.resolve(name)
    assert versions.resolve("nobody") is None
    assert [card["id"] for card in versions.models()] == ["helpdesk", "Qwen/Qwen3-0.6B"]
    await ensure_alias(project, "helpdesk", "base", None)
    await versions.refresh()
    assert versions.resolve("helpdesk") is not None
    assert versions.resolve("helpdesk@7") is None
    assert [card["id"] for card in versions.models()] == ["helpdesk", "Qwen/Qwen3-0.6B", "helpdesk@0"]


async def test_models_lists_aliases_and_versions(world: World) -> None:
    await world.replica(await world.gated())
    cards = world.versions.models()
    assert [card["id"] for card in cards] == ["helpdesk", "helpdesk@0", "helpdesk@1"]
    assert {card["object"] for card in cards} == {"model"}


async def test_a_request_goes_to_the_live_version(world: World) -> None:
    version = await world.gated()
    await world.replica(version)
    route = world.versions.route(await world.alias())
    assert (route.engine_model, route.replica_url, route.engine_key) == ("base", E1, "k")
    assert route.base_fingerprint == "fp"
    await world.live(version)
    route = world.versions.route(await world.alias())
    assert (route.version.name, route.engine_model, route.moved) == ("helpdesk@1", version.engine_name, False)


async def test_a_pinned_run_stays_while_its_version_is_held(world: World) -> None:
    one, two = await world.gated(), None
    await world.replica(one)
    await world.live(one)
    two = await world.gated()
    await world.replica(one, two)
    await world.live(two)
    alias = await world.alias()
    route = world.versions.route(alias, pinned=one.id)
    assert (route.version.name, route.moved) == ("helpdesk@1", False)
    await world.replica(two)  # the controller takes it off offer: its slot is needed
    route = world.versions.route(alias, pinned=one.id)
    assert (route.version.name, route.moved) == ("helpdesk@2", True)


async def test_a_pin_outlives_an_engines_restart(world: World) -> None:
    one = await world.gated()
    await world.replica(one)
    await world.live(one)
    two = await world.gated()
    await world.replica(one, two)
    await world.live(two)
    alias = await world.alias()
    await world.replica(state="starting")
    with pytest.raises(NoReplica, match="starting"):
        world.versions.route(alias, pinned=one.id)
    await world.replica(one, two)
    assert not world.versions.route(alias, pinned=one.id).moved


async def test_rollback_moves_pinned_runs_at_once(world: World) -> None:
    one = await world.gated()
    await world.replica(one)
    await world.live(one)
    two = await world.gated()
    await world.replica(one, two)
    await world.live(two)
    alias = await rollback(world.store, one.alias_id)
    await world.versions.refresh()
    route = world.versions.route(alias, pinned=two.id)
    assert (route.version.name, route.moved) == ("helpdesk@1", True)


async def test_a_pin_too_old_moves_to_live(world: World) -> None:
    versions = ServiceRouter(Project(world.store, "default"), ProxySettings(pin_max_age_versions=1))
    held: list[VersionView] = []
    for _ in range(3):
        held.append(await world.gated())
        await world.replica(*held)
        await world.live(held[-1])
    await versions.refresh()
    alias = await world.alias()
    assert versions.route(alias, pinned=held[0].id).moved
    assert not versions.route(alias, pinned=held[1].id).moved


async def test_a_run_that_asks_for_a_second_alias_keeps_its_pin_on_the_first(world: World) -> None:
    await ensure_alias(Project(world.store, "default"), "searcher", "base", "fingerprint")
    one = await world.gated()
    await world.replica(one)
    await world.live(one)
    searcher, helpdesk = world.versions.resolve("searcher"), world.versions.resolve("helpdesk")
    assert searcher is not None
    assert helpdesk is not None
    other = world.versions.route(searcher.alias, pinned=one.id)
    assert (other.version.name, other.moved) == ("searcher@0", False)
    assert not world.versions.route(helpdesk.alias, pinned=one.id).moved
    assert not world.versions.route(helpdesk.alias, pinned=other.version.id).moved


async def test_the_named_version_wins_over_the_pin_and_never_moves(world: World) -> None:
    one = await world.gated()
    await world.replica(one)
    alias = await world.alias()
    target = world.versions.resolve("helpdesk@1")
    assert target is not None
    route = world.versions.route(alias, pinned=alias.live_version_id, exact=target.version)
    assert (route.version.name, route.moved) == ("helpdesk@1", False)
    await world.replica()
    with pytest.raises(NoReplica):
        world.versions.route(alias, exact=target.version)


async def test_without_an_engine_it_says_which_is_down_and_why(world: World) -> None:
    alias = await world.alias()
    with pytest.raises(NoReplica, match="no engine is known"):
        world.versions.route(alias)
    await replicas.report_replica(Project(world.store, "default"), E1, state="down", detail="connection refused")
    await world.versions.refresh()
    with pytest.raises(NoReplica, match=r"e1:1 down \(connection refused\)"):
        world.versions.route(alias)
    await replicas.report_replica(Project(world.store, "default"), E1, state="up", loaded=[])
    await world.versions.refresh()
    with pytest.raises(NoReplica, match=r"e1:1 up \(serves nothing\)"):
        world.versions.route(alias)


async def test_an_older_live_version_serves_until_the_promoted_one_is_loaded(world: World) -> None:
    one = await world.gated()
    await world.replica(one)
    await world.live(one)
    two = await world.gated()
    await world.live(two)  # promoted from the command line before any engine holds it
    assert world.versions.route(await world.alias()).version.name == "helpdesk@1"
    await world.replica(one, two)
    assert world.versions.route(await world.alias()).version.name == "helpdesk@2"


async def test_the_less_busy_replica_is_chosen_and_one_that_failed_is_avoided(world: World) -> None:
    await world.replica(url=E1)
    await world.replica(url=E2)
    alias = await world.alias()
    first = world.versions.route(alias)
    with world.versions.hold(first):
        second = world.versions.route(alias)
        assert {first.replica_url, second.replica_url} == {E1, E2}
        world.versions.failed(second)
        assert world.versions.route(alias).replica_url == first.replica_url
    await world.replica(url=first.replica_url, state="down")
    assert world.versions.route(alias).replica_url == second.replica_url  # avoided, but better than none


def first_of(key: str, *urls: str) -> str:
    return order_engines(key, urls or (E1, E2))[0]


async def test_a_trajectory_goes_to_the_engine_of_its_key_on_every_proxy(world: World) -> None:
    for url in (E1, E2):
        await world.replica(url=url)
    other = ServiceRouter(Project(world.store, "default"), ProxySettings())
    await other.refresh()
    alias, keys = await world.alias(), [str(n) for n in range(30)]
    chosen = [world.versions.route(alias, key=key).replica_url for key in keys]
    assert chosen == [first_of(key) for key in keys] == [other.route(alias, key=key).replica_url for key in keys]
    assert set(chosen) == {E1, E2}


async def test_a_full_engine_gets_no_new_trajectory_and_keeps_the_ones_it_has(world: World) -> None:
    for url in (E1, E2):
        await world.replica(url=url)
    alias, first = await world.alias(), first_of("g")
    with ExitStack() as held:
        begun = [held.enter_context(world.held(world.versions.route(alias, key="g"))) for _ in range(16)]
        assert Counter(begun)[first] == 10  # ceil(1.25 * 16 / 2)
        assert world.versions.route(alias, key="g").replica_url == first  # one more may begin: ceil(1.25 * 17 / 2) = 11
        for _ in range(20):
            route = world.versions.route(alias, key="new", engine_url=E1)
            assert (held.enter_context(world.held(route)), route.stays) == (E1, True)
        assert (
            world.versions.route(alias, key=next(k for k in map(str, range(99)) if first_of(k) == E1)).replica_url == E2
        )


@pytest.mark.parametrize("state", ["down", "starting", "asleep"])
async def test_a_trajectory_leaves_an_engine_that_cannot_answer_now(world: World, state: ReplicaState) -> None:
    for url in (E1, E2, "http://e3:3"):
        await world.replica(url=url)
    alias, key = await world.alias(), "traj"
    order = order_engines(key, (E1, E2, "http://e3:3"))
    for gone in (0, 2):  # the last in order would not be the next one
        await world.replica(url=order[gone], state=state)
        route = world.versions.route(alias, key=key, engine_url=order[gone])
        assert (route.replica_url, route.stays) == (order[1], True)
    await world.replica(url=order[0])
    assert world.versions.route(alias, key=key, engine_url=order[1]).replica_url == order[1], "it does not go back"


async def test_a_trajectory_stays_on_an_engine_that_sleeps_while_no_other_is_awake(world: World) -> None:
    project = Project(world.store, "default")
    for url in (E1, E2):
        await replicas.report_replica(project, url, state="asleep", loaded=["base"])
    await world.versions.refresh()
    for url in (E1, E2):
        assert world.versions.route(await world.alias(), key="k", engine_url=url).replica_url == url


async def test_a_trajectory_leaves_an_engine_that_lacks_its_version(world: World) -> None:
    one = await world.gated()
    await world.replica(one, url=E1)
    await world.replica(url=E2)
    await world.live(one)
    route = world.versions.route(await world.alias(), pinned=one.id, key="k", engine_url=E2)
    assert (route.version.id, route.replica_url, route.stays) == (one.id, E1, True)


async def test_an_engine_that_just_failed_is_left_for_a_moment_and_no_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in (E1, E2):
        await world.replica(url=url)
    alias = await world.alias()
    route = world.versions.route(alias, key="k", engine_url=E1)
    world.versions.failed(route)
    assert world.versions.route(alias, key="k", engine_url=E1).replica_url == E2
    monkeypatch.setattr("proxy.versions.routing.AVOID_S", -1.0)
    world.versions.failed(route)
    assert world.versions.route(alias, key="k", engine_url=E1).replica_url == E1


async def test_a_second_alias_of_a_trajectory_has_no_engine_of_its_own(world: World) -> None:
    await ensure_alias(Project(world.store, "default"), "searcher", "base", "fingerprint")
    for url in (E1, E2):
        await world.replica(url=url)
    searcher, helpdesk = world.versions.resolve("searcher"), world.versions.resolve("helpdesk")
    assert searcher is not None
    assert helpdesk is not None
    pinned = helpdesk.alias.live_version_id
    for url in (E1, E2):
        other = world.versions.route(searcher.alias, pinned, key="k", engine_url=url)
        assert (other.replica_url, other.stays) == (first_of("k"), False)
        own = world.versions.route(helpdesk.alias, pinned, key="k", engine_url=url)
        assert (own.replica_url, own.stays) == (url, True)


async def test_a_named_version_is_asked_on_the_trajectorys_engine(world: World) -> None:
    one = await world.gated()
    for url in (E1, E2):
        await world.replica(one, url=url)
    target = world.versions.resolve("helpdesk@1")
    assert target is not None
    for url in (E1, E2):
        ref = TrajectoryRef("traj", None, version_id=target.alias.live_version_id, engine_url=url)
        route = world.versions.route_trajectory(target, ref)
        assert (route.version.id, route.replica_url, route.stays) == (one.id, url, True)
    new = world.versions.route_trajectory(target, TrajectoryRef("traj", "group", "t", "named"))
    assert new.replica_url == first_of("group")


async def test_requests_in_flight_are_counted_and_reported(world: World) -> None:
    one = await world.gated()
    await world.replica(one)
    await world.live(one)
    route = world.versions.route(await world.alias())
    with world.versions.hold(route), world.versions.hold(route):
        assert world.versions.holding()[one.id] == 2
        await world.replica()  # off offer: only requests in flight hold it now
        (row,) = await replicas.list_live_proxies(Project(world.store, "default"), 10)
        assert (row.id, row.url) == (world.versions.proxy_id, "http://p:1")
        assert one.id in row.in_flight
    await world.versions.refresh()
    (row,) = await replicas.list_live_proxies(Project(world.store, "default"), 10)
    assert one.id not in row.in_flight
    assert row.generations == {one.alias_id: (await world.alias()).generation}


async def test_what_may_still_be_asked_for_is_held_with_no_request(world: World) -> None:
    one = await world.gated()
    await world.replica(one)
    assert world.versions.holding()[one.id] == 0
    await world.replica()
    assert one.id not in world.versions.holding()


@asynccontextmanager
async def following(store: Store) -> AsyncIterator[ServiceRouter]:
    versions = ServiceRouter(Project(store, "default"), ProxySettings())
    await versions.start()
    yield versions
    await versions.stop()


async def test_another_process_sees_a_move(world: World) -> None:
    one = await world.gated()
    await world.replica(one)
    async with following(world.store) as other:
        await set_canary(world.store, one.alias_id, one.id, 1.0)
        alias = await world.alias()
        await until(lambda: other.offer(alias, "g") == one.id)
        await set_live(world.store, one.alias_id, one.id, why="promote")
        await until(lambda: other.route(alias).version.id == one.id)
        assert len(await replicas.list_live_proxies(Project(world.store, "default"), 10)) == 2
    assert [p.id for p in await replicas.list_live_proxies(Project(world.store, "default"), 10)] == [
        world.versions.proxy_id
    ]


async def test_runs_are_held_back_on_every_proxy_alike_while_the_version_before_can_be_served(world: World) -> None:
    await ensure_alias(Project(world.store, "default"), "helpdesk", "base", "fp", held=Holdback(0.1, 3600.0))
    first = await world.gated()
    await world.replica(first)
    await world.live(first)
    second = await world.gated()
    await world.replica(first, second)
    keys = [str(n) for n in range(300)]
    async with following(world.store) as other:
        await set_live(world.store, first.alias_id, second.id, why="gate")
        alias = await world.alias()
        await until(lambda: other.offer(alias, "g") == second.id)
        await world.versions.refresh()
        drawn = [world.versions.offer(alias, key, may_hold=True) for key in keys]
        assert set(drawn) == {first.id, second.id}
        assert drawn == [other.offer(alias, key, may_hold=True) for key in keys]
        assert {other.offer(alias, key) for key in keys} == {second.id}, "what may not be held goes to the live one"
    assert world.versions.route(alias, pinned=first.id).version.id == first.id
    await world.replica(second)
    assert {world.versions.offer(alias, key, may_hold=True) for key in keys} == {second.id}, "no engine holds it"


async def test_a_watch_that_is_over_holds_no_run_back_though_nobody_ended_it(world: World) -> None:
    await ensure_alias(Project(world.store, "default"), "helpdesk", "base", "fp", held=Holdback(0.5, 1e-6))
    one = await world.gated()
    await world.replica(one)
    await world.live(one)
    alias = await world.alias()
    assert alias.watched_until is not None
    assert {world.versions.offer(alias, str(n), may_hold=True) for n in range(100)} == {one.id}


async def test_a_run_that_left_its_pin_is_recorded_as_mixed(world: World) -> None:
    recorder = Recorder(world.store, RecorderSettings())
    await recorder.start()
    alias = await world.alias()
    one = await world.gated()
    request = RecordedRequest(
        "chat", "/v1/chat/completions", "helpdesk", False, [], None, None, {}, b"0" * 16, SamplingParameters()
    )
    run = await recorder.trajectory_at("default", alias.id, Address(trajectory="t"), request, alias.live_version_id)
    assert run.version_id == alias.live_version_id
    await world.versions.moved_away(run.id, one.id)
    await recorder.stop()
    async with world.store.read() as conn:
        row = (await conn.execute(select(trajectories.c.version_id, trajectories.c.mixed))).one()
    assert tuple(row) == (one.id, True)

"""The controller takes versions out of service when nobody holds them, and keeps engines that come and go loaded."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from proxy.errors import NoReplica
from proxy.settings.sections import AliasSettings
from proxy.versions.fleet import Member
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.queue import leases
from recorder.registry import replicas
from recorder.registry.alias_moves import rollback
from recorder.registry.aliases import ensure_alias, get_alias
from recorder.registry.fingerprint import base_fingerprint
from recorder.registry.versions import VersionView
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.database import Project, Store
from tests.proxy import adapters
from tests.proxy.adapters import make_adapter
from tests.proxy.controlled import PROXY, World, controlled, hurry, served, up
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until

pytestmark = pytest.mark.slow  # faults, and processes that end: left out of `make check`


def local_base(folder: Path) -> Path:
    """A base in a folder, of one weight."""
    base = folder / "base"
    base.mkdir()
    save_file({"model.layers.0.self_attn.q_proj.weight": np.ones((8, 16), np.float32)}, base / "model.safetensors")
    (base / "config.json").write_text("{}")
    return base


class Told:
    """What the controller reported of its engine: each state with its detail, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rows: list[tuple[str, str | None]] = []
        report = replicas.report_replica

        async def told(*arguments: Any, **fields: Any) -> None:
            self.rows.append((fields["state"], fields["detail"]))
            await report(*arguments, **fields)

        monkeypatch.setattr("recorder.registry.replicas.report_replica", told)

    def states(self) -> list[str]:
        """The states, each that equals the one before left out."""
        return [state for state, _ in groupby(state for state, _ in self.rows)]


# --- pins, rollback, drain


async def test_rollback_overrides_pins_at_once(world: World) -> None:
    one, two = await world.live(), await world.live()
    alias = await world.alias()
    await until(lambda: served(world) == two.name)
    assert world.versions.route(alias, pinned=two.id).version.id == two.id
    await rollback(world.store, one.alias_id)
    await until(lambda: served(world) == one.name)
    route = world.versions.route(alias, pinned=two.id)
    assert (route.version.id, route.moved) == (one.id, True)
    assert world.engine.loads().count(one.engine_name) == 1  # it was kept for exactly this


async def test_what_nobody_holds_is_unloaded_and_its_folder_stays(world: World) -> None:
    first = await world.live()
    await world.live()
    third = await world.live()
    await until(lambda: first.engine_name not in world.engine.adapters)
    assert third.engine_name in world.engine.adapters
    assert first.path is not None
    assert Path(first.path).is_dir()


async def test_a_pinned_version_is_kept_until_its_run_ends(world: World) -> None:
    first = await world.live()
    await until(lambda: served(world) == first.name)
    run = await world.run_pinned_to(first)
    await world.live()
    third = await world.live()
    await until(lambda: served(world) == third.name)
    alias = await world.alias()
    assert not world.versions.route(alias, pinned=first.id).moved
    assert first.engine_name not in world.engine.unloads()
    recorder = Recorder(world.store, RecorderSettings())
    await recorder.start()
    await recorder.close("default", run)
    await recorder.stop()
    await until(lambda: first.engine_name in world.engine.unloads())


async def test_past_the_slots_the_oldest_pin_moves_to_live(make_world: Callable[..., Any]) -> None:
    async with make_world(max_loras=3) as world:
        first = await world.live()
        await world.run_pinned_to(first)
        await world.live()
        third = await world.live()
        await until(lambda: first.engine_name not in world.engine.adapters)
        await until(lambda: served(world) == third.name)
        route = world.versions.route(await world.alias(), pinned=first.id)
        assert (route.version.id, route.moved) == (third.id, True)


async def test_unloading_waits_for_requests_in_flight_here_and_in_another_proxy(world: World) -> None:
    first = await world.live()
    other = ServiceRouter(Project(world.store, "default"), PROXY)
    await other.start()
    alias = await world.alias()
    await until(lambda: served(world) == first.name)
    await until(lambda: other.route(alias).version.id == first.id)
    async with AsyncExitStack() as there:
        with world.versions.hold(world.versions.route(alias)):
            there.enter_context(other.hold(other.route(alias)))
            await world.live()
            third = await world.live()
            # off offer everywhere, so that no new request can reach it …
            await until(lambda: first.id not in {v.id for v in _routable(world.versions)})
            await until(lambda: first.id not in {v.id for v in _routable(other)})
        # … and still loaded, because one request of the other proxy is on its way
        await world.rounds()
        assert first.engine_name in world.engine.adapters
        assert third.engine_name in world.engine.adapters
    await until(lambda: first.engine_name not in world.engine.adapters)
    await other.stop()


def _routable(versions: ServiceRouter) -> list[VersionView]:
    snapshot = versions.snapshot
    return [v for v in snapshot.versions.values() if snapshot.has(v)]


async def test_an_adapter_that_is_not_ours_is_left_alone(world: World) -> None:
    world.engine.adapters["theirs"] = "/their/folder"
    await world.live()
    await world.rounds()
    assert "theirs" in world.engine.adapters
    assert world.engine.unloads() == []


# --- engines that come and go


async def test_a_restarted_engine_gets_its_versions_back_before_it_takes_requests(world: World) -> None:
    first = await world.live()
    await world.run_pinned_to(first)
    second = await world.live()
    await until(lambda: served(world) == second.name)
    await world.engine.stop()
    await until(lambda: up(world, 0))
    world.engine.calls.clear()
    await world.engine.start()
    await until(lambda: up(world))
    assert set(world.engine.loads()) == {first.engine_name, second.engine_name}
    alias = await world.alias()
    assert world.versions.route(alias).version.id == second.id
    assert not world.versions.route(alias, pinned=first.id).moved


async def test_a_request_that_meets_an_engines_death_tells_of_it_at_once(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.versions.fleet.WATCH_UP_S", 3600.0)
    async with make_world() as world:
        await until(lambda: up(world))
        route = world.versions.route(await world.alias())
        await world.engine.stop()
        world.versions.failed(route)
        await until(lambda: up(world, 0))


async def test_a_second_replica_gets_every_version_too(
    store: Store, tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    second = ScriptedEngine(key=engine.key)
    await second.start()
    async with controlled(store, tmp_path, engine, second) as world:
        await until(lambda: up(world, 2))
        version = await world.live()
        assert engine.adapters == second.adapters == {version.engine_name: version.path}
        await second.stop()
        await until(lambda: up(world))
        third = await world.live()
        await second.start()
        await until(lambda: third.engine_name in second.adapters)
    await second.stop()


async def test_a_stale_adapter_on_one_replica_rejects(store: Store, tmp_path: Path, engine: ScriptedEngine) -> None:
    second = ScriptedEngine(key=engine.key)
    second.stale = True
    await second.start()
    async with controlled(store, tmp_path, engine, second) as world:
        await until(lambda: up(world, 2))
        await world.becomes(await world.write(), VersionState.REJECTED)
        assert engine.adapters == second.adapters == {}
    await second.stop()


async def test_a_wrong_key_is_named(
    store: Store, tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: up(world))
        engine.key = "another"
        await until(lambda: up(world, 0))
        (row,) = await replicas.list_replicas(Project(store, "default"))
        assert row.detail is not None
        assert "engine.api_key" in row.detail


async def test_an_engine_that_serves_another_base_than_trained_on_is_down_for_that_reason_and_stays_so(
    store: Store, tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: up(world))
        await world.live()
    engine.base_root, right = "/another/base", engine.base_root
    told = Told(monkeypatch)
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: told.states() and told.states()[-1] == "down")
        await world.rounds(20)
        with pytest.raises(NoReplica, match="were trained on the base base"):
            world.versions.route(await get_alias(Project(store, "default"), "helpdesk"))
        assert told.states().count("down") == 1
        assert re.search(r"base base \(fingerprint .*\), not on base \(.*\)\. Restore the old", told.rows[-1][1] or "")
        await engine.stop()
        engine.base_root = right
        await engine.start()
        await until(lambda: up(world))
        (row,) = await replicas.list_replicas(Project(store, "default"))
        assert row.detail is None


async def test_a_second_engine_of_another_base_takes_no_requests(
    store: Store, tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    monkeypatch.setattr("proxy.versions.controller.UNFIT_S", 0.05)
    second = ScriptedEngine(key=engine.key)
    second.base_root = "/models/another"
    await second.start()  # which gives it its port
    await second.stop()
    async with controlled(store, tmp_path, engine, second) as world:
        await until(lambda: up(world))
        await world.rounds(5)
        (used,) = world.versions.snapshot.up()
        fingerprint = (await world.alias()).base_fingerprint
        await second.start()  # it comes later: the base of the one that is in use stays
        try:
            await until_row(store, second.url, "from /models/another")
            assert [one.url for one in world.versions.snapshot.up()] == [used.url] == [engine.url]
            assert (await world.alias()).base_fingerprint == fingerprint
            await engine.stop()
            await until(lambda: [one.url for one in world.versions.snapshot.up()] == [second.url])
            await engine.start()
            await until_row(store, engine.url, "from /base")
            assert [one.url for one in world.versions.snapshot.up()] == [second.url]
        finally:
            await second.stop()


async def until_row(store: Store, url: str, words: str) -> None:
    """Wait until an engine's row says so."""

    async def says() -> bool:
        rows = await replicas.list_replicas(Project(store, "default"))
        return any(row.url == url and words in (row.detail or "") for row in rows)

    await until(says)


async def test_a_local_base_that_was_not_trained_on_takes_its_engine_down_for_that_reason(
    store: Store, tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry(monkeypatch)
    base = local_base(tmp_path)
    async with controlled(store, tmp_path, engine, base=str(base)) as world:
        await until(lambda: up(world))
        await world.live()
    (base / "config.json").write_text('{"changed": true}')
    told = Told(monkeypatch)
    async with controlled(store, tmp_path, engine, base=str(base)) as world:
        await until(lambda: told.states() and told.states()[-1] == "down")
        await world.rounds(5)
        assert "were trained on the base" in str(told.rows[-1][1])
        assert told.states().count("down") == 1


async def test_a_local_base_is_known_by_its_files(store: Store, tmp_path: Path, engine: ScriptedEngine) -> None:
    base = local_base(tmp_path)
    async with controlled(store, tmp_path, engine, base=str(base)) as world:
        await until(lambda: up(world))
        alias = await get_alias(Project(store, "default"), "helpdesk")
        assert alias.base_fingerprint == base_fingerprint(base, "float32")
        await world.live()
        wrong = make_adapter(world.folder, "helpdesk@2", tensors=adapters.weights(width=17))
        rejected = await world.becomes(await world.write(wrong), VersionState.REJECTED)
        assert rejected.reason is not None
        assert "the base's is [8, 16]" in rejected.reason


async def test_a_base_served_elsewhere_has_a_fingerprint_that_says_so(world: World) -> None:
    fingerprint = (await world.alias()).base_fingerprint
    assert fingerprint is not None
    assert fingerprint.startswith("engine-")


async def test_an_engine_behind_a_router_without_its_version_is_served(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    engine.routed = True
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: up(world))
        fingerprint = (await world.alias()).base_fingerprint
        assert fingerprint is not None
        assert fingerprint.startswith("engine-unversioned-")


async def test_an_alias_whose_base_is_an_adapter_is_refused_and_the_adapter_stays(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    engine.adapters["theirs"] = "/their/adapter"
    async with controlled(store, tmp_path, engine, policy=AliasSettings(base_model="theirs")) as world:
        await until(lambda: any("'theirs' is an adapter" in (r.detail or "") for r in world.versions.snapshot.replicas))
        assert not up(world)
    assert engine.adapters == {"theirs": "/their/adapter"}


# --- one proxy leads


async def test_only_the_holder_of_the_lease_leads_and_another_takes_over(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    async with controlled(store, tmp_path, engine) as first:
        await until(lambda: up(first))
        async with controlled(store, tmp_path, engine) as second:
            (lease,) = await leases.list_holders(Project(store, "default"), leases.CONTROLLER)
            assert lease.owner == first.versions.proxy_id
            await until(lambda: up(second))
            version = await second.live()
            assert engine.loads() == [version.engine_name]
            await until(lambda: served(second) == version.name)
            assert second.controller.rounds == 0
    async with controlled(store, tmp_path, engine) as third:
        await third.live()
        assert third.controller.rounds > 0


async def test_a_killed_leader_of_this_machine_is_succeeded_at_once(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    host, _, random = leases.holder_name().split(":")
    with subprocess.Popen([sys.executable, "-c", ""]) as gone:
        gone.wait()
    await leases.acquire_lease(Project(store, "default"), leases.CONTROLLER, f"{host}:{gone.pid}:{random}", 3600)
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: up(world))


async def test_a_new_leader_leaves_an_engine_in_service_until_it_has_looked_at_it(
    store: Store, tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A killed proxy's engine serves on: it was up, and nothing was seen that says otherwise."""
    async with controlled(store, tmp_path, engine) as first:
        await until(lambda: up(first))
        await first.live()
        rows = await replicas.list_replicas(Project(store, "default"))
    told = Told(monkeypatch)
    seen, look = asyncio.Event(), Member.look

    async def late(member: Member) -> None:
        await seen.wait()
        await look(member)

    monkeypatch.setattr(Member, "look", late)
    async with controlled(store, tmp_path, engine) as second:
        await second.rounds()
        assert await replicas.list_replicas(Project(store, "default")) == rows
        seen.set()
        await until(lambda: bool(told.rows))
        assert set(told.states()) == {"up"}


async def test_a_new_leader_offers_nothing_that_an_engine_has_lost(
    store: Store, tmp_path: Path, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with controlled(store, tmp_path, engine) as first:
        await until(lambda: up(first))
        version = await first.live()
    engine.adapters.clear()  # it was started anew
    engine.load_gate.clear()
    told = Told(monkeypatch)
    async with controlled(store, tmp_path, engine) as second:
        await until(lambda: bool(told.rows))
        assert told.states() == ["starting"]
        await until(lambda: up(second, 0))
        engine.load_gate.set()
        await until(lambda: up(second))
        assert served(second) == version.name


async def test_a_leader_for_the_second_time_writes_what_it_sees_over_another_leaders_row(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    project = Project(store, "default")
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: up(world))
        (lease,) = await leases.list_holders(project, leases.CONTROLLER)
        await leases.release_lease(store, lease)  # another leads for a moment, and cannot reach the engine
        await replicas.report_replica(project, engine.url, state="down", detail="cannot be reached from there")

        async def is_up() -> bool:
            return [row.state for row in await replicas.list_replicas(project)] == ["up"]

        await until(is_up)


async def test_engines_that_are_no_longer_configured_are_forgotten(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    await replicas.report_replica(Project(store, "default"), "http://gone:1", state="up", loaded=["base"])
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: [r.url for r in world.versions.snapshot.replicas] == [engine.url])


async def test_an_alias_that_is_new_in_the_settings_is_made(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    await ensure_alias(Project(store, "default"), "older", "base", None)
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: set(world.versions.snapshot.aliases) == {"helpdesk", "older"})
        await until(lambda: up(world))
        assert world.versions.route(world.versions.snapshot.aliases["older"]).engine_model == "base"


async def test_the_lease_is_kept_while_an_engine_takes_its_time(world: World) -> None:
    (before,) = await leases.list_holders(Project(world.store, "default"), leases.CONTROLLER)
    world.engine.load_gate.clear()
    await world.write()
    await until(lambda: bool(world.engine.loads()))

    async def renewed() -> bool:
        (now,) = await leases.list_holders(Project(world.store, "default"), leases.CONTROLLER)
        return now.epoch == before.epoch and now.expires_at > before.expires_at

    await until(renewed)
    world.engine.load_gate.set()
    await until(lambda: served(world) == "helpdesk@1")


async def test_of_two_versions_of_one_parent_one_alone_goes_live(make_world: Callable[..., Any]) -> None:
    """No trainer makes two at once; should there be two, the second would drop what the first learned."""
    async with make_world() as world:
        await world.engine.stop()
        await until(lambda: up(world, 0))
        both = [await world.write(), await world.write()]
        await world.engine.start()

        async def decided() -> bool:
            return {await world.state(version) for version in both} == {VersionState.LIVE, VersionState.REJECTED}

        await until(decided)
        [live] = [version for version in both if await world.state(version) is VersionState.LIVE]
        await until(lambda: served(world) == live.name)

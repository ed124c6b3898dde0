"""The controller brings versions into service, or rejects them, and takes them out when nobody holds them.

Against a scripted engine that keeps vLLM's rules, with a real store. tests/e2e does the same with a real vLLM.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from proxy.controller import Controller
from proxy.errors import NoReplica
from proxy.sections import AliasSettings, EngineSettings, ProxySettings
from proxy.versions import InService
from recorder import leases, ledger, replicas
from recorder.aliases import AliasView, ensure_alias, get_alias, rollback, set_live
from recorder.fingerprint import base_fingerprint
from recorder.recorder import Recorder
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store import Store
from recorder.turns import Address, Request, Sampling
from recorder.versions import VersionView, allocate, get_version, mark
from tests.proxy import adapters
from tests.proxy.adapters import Made, make_adapter, seal
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until

POLL = ProxySettings(poll_s=0.02)


@pytest.fixture(autouse=True)
def _in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look more often than a real engine would like to be asked."""
    monkeypatch.setattr("proxy.fleet.WATCH_UP_S", 0.05)
    monkeypatch.setattr("proxy.fleet.WATCH_DOWN_S", 0.02)
    monkeypatch.setattr("proxy.controller.PINS_EVERY_S", 0.05)
    monkeypatch.setattr("proxy.controller.RENEW_EVERY_S", 0.1)


@dataclass
class World:
    """A store, an engine, and one proxy's controller beside it."""

    store: Store
    folder: Path
    engine: ScriptedEngine
    versions: InService
    controller: Controller
    made: list[VersionView] = field(default_factory=list)

    async def alias(self) -> AliasView:
        return await get_alias(self.store, "default", "helpdesk")

    async def write(self, made: Made | None = None, *, parent: VersionView | None = None) -> VersionView:
        """A written version from the live one, as a trainer leaves it."""
        alias = await self.alias()
        assert alias.live_version_id is not None
        version = await allocate(self.store, alias.id, parent.id if parent else alias.live_version_id)
        made = made or make_adapter(self.folder, f"helpdesk@{version.number}")
        version = await mark(
            self.store,
            version.id,
            VersionState.WRITTEN,
            path=str(made.path),
            engine_name=made.engine_name,
            manifest_sha256=made.manifest_sha256,
        )
        self.made.append(version)
        return version

    async def state(self, version: VersionView) -> VersionState:
        return (await get_version(self.store, version.id)).state

    async def becomes(self, version: VersionView, state: VersionState) -> VersionView:
        """Wait until a version is in a state, and return it."""

        async def there() -> bool:
            now = await self.state(version)
            assert now not in {VersionState.REJECTED, state} or now is state, await get_version(self.store, version.id)
            return now is state

        await until(there)
        return await get_version(self.store, version.id)

    async def live(self) -> VersionView:
        """A new version, in service."""
        return await self.becomes(await self.write(), VersionState.LIVE)

    async def run_pinned_to(self, version: VersionView) -> str:
        """An open trajectory on a version; its id."""
        recorder = Recorder(self.store, RecorderSettings())
        await recorder.start()
        request = Request("chat", "/v1/chat/completions", "helpdesk", False, [], None, None, {}, b"0" * 16, Sampling())
        address = Address(trajectory=f"run-{version.number}")
        run = await recorder.trajectory_at("default", version.alias_id, address, request, version.id)
        await recorder.stop()
        return run.id


@asynccontextmanager
async def controlled(
    store: Store, folder: Path, *engines: ScriptedEngine, policy: AliasSettings | None = None, **engine_fields: Any
) -> AsyncIterator[World]:
    """A proxy's two parts, the one that follows the store and the one that leads, running."""
    versions = InService(store, "default", POLL)
    controller = Controller(
        store,
        "default",
        versions,
        engine=EngineSettings(urls=[e.url for e in engines], dtype="float32", **engine_fields),
        proxy=POLL,
        aliases={"helpdesk": policy or AliasSettings(base_model="base")},
        default_base=None,
        engine_key=engines[0].key,
    )
    async with controller.running():
        await versions.start()
        try:
            yield World(store, folder / "adapters", engines[0], versions, controller)
        finally:
            await versions.stop()


def up(world: World, count: int = 1) -> bool:
    """Whether so many engines take requests, as a request sees it."""
    return len(world.versions.snapshot.up()) == count


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine(key="engine-key")
    await engine.start()
    yield engine
    await engine.stop()


@pytest.fixture
def make_world(store: Store, tmp_path: Path, engine: ScriptedEngine) -> Callable[..., Any]:
    @asynccontextmanager
    async def make(policy: AliasSettings | None = None, **fields: Any) -> AsyncIterator[World]:
        async with controlled(store, tmp_path, engine, policy=policy, **fields) as world:
            await until(lambda: up(world))
            yield world

    return make


@pytest.fixture
async def world(make_world: Callable[..., Any]) -> AsyncIterator[World]:
    async with make_world() as made:
        yield made


def served(world: World) -> str:
    alias = world.versions.snapshot.aliases["helpdesk"]
    return world.versions.route(alias).version.name


# --- into service


async def test_a_written_version_is_loaded_probed_and_made_live(world: World) -> None:
    assert served(world) == "helpdesk@0"
    version = await world.live()
    assert version.verified == "logprobs"
    assert version.metrics["probe_to_new"] == pytest.approx(0.0)
    assert version.metrics["probe_to_parent"] == pytest.approx(0.5)
    assert world.engine.calls == [("load", version.engine_name), *[("probe", version.engine_name)] * 2]
    await until(lambda: served(world) == "helpdesk@1")


async def test_at_no_moment_of_a_swap_is_a_request_without_an_engine(world: World) -> None:
    alias = await world.alias()
    routed: list[str] = []

    async def ask() -> None:
        while True:
            routed.append(world.versions.route(alias).version.name)
            await asyncio.sleep(0)

    asking = asyncio.create_task(ask())
    for _ in range(3):
        await world.live()
    await until(lambda: routed[-1] == "helpdesk@3" or asking.done())
    assert not asking.done(), asking.result()
    asking.cancel()
    assert [name for name, _ in groupby(routed)] == [f"helpdesk@{n}" for n in range(4)]


async def test_versions_apart_by_less_than_the_noise_are_accepted_by_identity(make_world: Callable[..., Any]) -> None:
    async with make_world() as world:
        made = make_adapter(world.folder, "helpdesk@1", asked=adapters.probe(gap=1e-9))
        version = await world.becomes(await world.write(made), VersionState.LIVE)
        assert version.verified == "identity"
        assert ("probe", version.engine_name) not in world.engine.calls


async def test_manual_promotion_waits_for_a_person(make_world: Callable[..., Any]) -> None:
    async with make_world(AliasSettings(base_model="base", promote="manual")) as world:
        version = await world.becomes(await world.write(), VersionState.GATED)
        assert served(world) == "helpdesk@0"
        target = await until(lambda: world.versions.resolve("helpdesk@1"))
        assert world.versions.route(target.alias, exact=target.version).version.id == version.id
        await set_live(world.store, version.alias_id, version.id, why="promote")
        await until(lambda: served(world) == "helpdesk@1")


async def test_a_canary_gets_its_share_of_new_runs(make_world: Callable[..., Any]) -> None:
    async with make_world(AliasSettings(base_model="base", canary_share=0.5)) as world:
        version = await world.becomes(await world.write(), VersionState.CANARY)
        alias = await world.alias()
        await until(lambda: version.id in {world.versions.offer(alias, str(n)) for n in range(50)})
        assert alias.live_version_id in {world.versions.offer(alias, str(n)) for n in range(50)}
        assert world.versions.route(alias, pinned=version.id).version.id == version.id
        second = await world.becomes(await world.write(), VersionState.CANARY)
        assert await world.state(version) is VersionState.RETIRED
        assert second.id != version.id


async def test_a_version_written_while_no_engine_answers_waits_for_one(world: World) -> None:
    await world.engine.stop()
    await until(lambda: up(world, 0))
    version = await world.write()
    with pytest.raises(NoReplica, match="down"):
        served(world)
    await world.engine.start()
    await world.becomes(version, VersionState.LIVE)


# --- rejected, while the old one serves


def with_nan(folder: Path) -> Made:
    tensors = adapters.weights()
    next(iter(tensors.values()))[0, 0] = np.nan
    return make_adapter(folder, "helpdesk@1", tensors=tensors)


def of_wrong_rank(folder: Path) -> Made:
    return make_adapter(folder, "helpdesk@1", tensors=adapters.weights(rank=5), rank=4)


def without_its_weights(folder: Path) -> Made:
    made = make_adapter(folder, "helpdesk@1")
    (made.path / "adapter_model.safetensors").unlink()
    return made


def changed_afterwards(folder: Path) -> Made:
    made = make_adapter(folder, "helpdesk@1")
    (made.path / "adapter_config.json").write_text('{"r": 4, "lora_alpha": 800}')
    return made


def with_another_manifest(folder: Path) -> Made:
    made = make_adapter(folder, "helpdesk@1")
    return Made(made.path, "0" * 64)


def without_its_folder(folder: Path) -> Made:
    return Made(folder / "nowhere", "0" * 64)


def with_a_broken_probe(folder: Path) -> Made:
    made = make_adapter(folder, "helpdesk@1")
    (made.path / "probe.json").write_text('{"contexts": [{}]}')
    return seal(made.path, "helpdesk@1")


@pytest.mark.parametrize(
    ("make", "code"),
    [
        (with_nan, "not_finite"),
        (of_wrong_rank, "shape"),
        (without_its_weights, "file_missing"),
        (changed_afterwards, "manifest_mismatch"),
        (with_another_manifest, "manifest_mismatch"),
        (without_its_folder, "file_missing"),
        (with_a_broken_probe, "probe_unreadable"),
    ],
)
async def test_a_broken_adapter_is_rejected(world: World, make: Callable[[Path], Made], code: str) -> None:
    good = await world.live()
    version = await world.write(make(world.folder / "broken"))
    rejected = await world.becomes(version, VersionState.REJECTED)
    assert rejected.reason is not None
    assert rejected.reason.startswith(f"{code}: ")
    assert served(world) == good.name
    assert version.engine_name not in world.engine.adapters
    (entry,) = await ledger.of(world.store, "version", version.id)
    assert entry.code == "rejected"
    following = await world.live()  # and the next one is not held up
    assert following.number == version.number + 1


async def test_a_broken_adapter_is_never_shown_to_the_engine(world: World) -> None:
    await world.becomes(await world.write(with_nan(world.folder)), VersionState.REJECTED)
    assert world.engine.calls == []


async def test_what_the_engine_refuses_is_rejected_with_its_words(world: World) -> None:
    world.engine.refuse_load = (500, "unexpected module in the adapter")
    rejected = await world.becomes(await world.write(), VersionState.REJECTED)
    assert rejected.reason is not None
    assert rejected.reason.startswith("load_refused")
    assert "unexpected module in the adapter" in rejected.reason
    assert served(world) == "helpdesk@0"


async def test_a_stale_adapter_is_rejected(world: World) -> None:
    """The engine loads the new folder but answers as the parent: a cache that was not keyed by the version."""
    world.engine.stale = True
    rejected = await world.becomes(await world.write(), VersionState.REJECTED)
    assert rejected.reason is not None
    assert rejected.reason.startswith("probe_mismatch")
    assert world.engine.adapters == {}
    world.engine.stale = False
    await world.live()


async def test_an_engine_that_cannot_be_probed_rejects(world: World) -> None:
    world.engine.probe_status = 500
    rejected = await world.becomes(await world.write(), VersionState.REJECTED)
    assert rejected.reason is not None
    assert rejected.reason.startswith("probe_failed")


async def test_a_name_that_is_loaded_from_another_folder_is_rejected(world: World) -> None:
    """An engine that outlived its data folder would serve the old version under the new name."""
    made = make_adapter(world.folder, "helpdesk@1")
    world.engine.adapters[made.engine_name] = "/old/data/helpdesk@1"
    rejected = await world.becomes(await world.write(made), VersionState.REJECTED)
    assert rejected.reason is not None
    assert rejected.reason.startswith("name_taken")
    assert "/old/data" in rejected.reason


async def test_a_name_that_is_loaded_from_our_folder_is_fine(world: World) -> None:
    made = make_adapter(world.folder, "helpdesk@1")
    world.engine.adapters[made.engine_name] = str(made.path)
    await world.becomes(await world.write(made), VersionState.LIVE)


async def test_an_engine_without_runtime_loading_is_named(world: World) -> None:
    await world.engine.stop()
    world.engine.runtime_lora = False
    await world.engine.start()
    rejected = await world.becomes(await world.write(), VersionState.REJECTED)
    assert rejected.reason is not None
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING" in rejected.reason


async def test_a_version_that_kills_its_engine_twice_is_rejected(world: World) -> None:
    world.engine.die_on_load = True
    rejected = await world.becomes(await world.write(), VersionState.REJECTED)
    assert rejected.reason is not None
    assert rejected.reason.startswith("engine_died")
    world.engine.die_on_load = False
    await world.live()


async def test_a_version_of_another_base_is_rejected(world: World) -> None:
    version = await world.write(make_adapter(world.folder, "helpdesk@1"))
    await mark(world.store, version.id, VersionState.ABANDONED)
    alias = await world.alias()
    assert alias.live_version_id is not None
    other = await allocate(world.store, alias.id, alias.live_version_id)
    made = make_adapter(world.folder, "helpdesk@2")
    await mark(
        world.store,
        other.id,
        VersionState.WRITTEN,
        path=str(made.path),
        engine_name=made.engine_name,
        manifest_sha256=made.manifest_sha256,
        base_fingerprint="another base",
    )
    rejected = await world.becomes(other, VersionState.REJECTED)
    assert rejected.reason is not None
    assert rejected.reason.startswith("base_mismatch")


async def test_a_version_whose_parent_was_rolled_back_meanwhile_is_rejected(world: World) -> None:
    one = await world.live()
    two = await world.live()
    await rollback(world.store, one.alias_id)
    rejected = await world.becomes(await world.write(parent=two), VersionState.REJECTED)
    assert rejected.reason is not None
    assert rejected.reason.startswith("parent_left")
    assert await world.state(one) is VersionState.LIVE


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
    other = InService(world.store, "default", POLL)
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
        rounds = world.controller.rounds
        await until(lambda: world.controller.rounds > rounds + 3)
        assert first.engine_name in world.engine.adapters
        assert third.engine_name in world.engine.adapters
    await until(lambda: first.engine_name not in world.engine.adapters)
    await other.stop()


def _routable(versions: InService) -> list[VersionView]:
    snapshot = versions.snapshot
    return [v for v in snapshot.versions.values() if snapshot.has(v)]


async def test_an_adapter_that_is_not_ours_is_left_alone(world: World) -> None:
    world.engine.adapters["theirs"] = "/their/folder"
    rounds = world.controller.rounds
    await world.live()
    await until(lambda: world.controller.rounds > rounds + 3)
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


async def test_a_second_replica_gets_every_version_too(store: Store, tmp_path: Path, engine: ScriptedEngine) -> None:
    second = ScriptedEngine(key=engine.key)
    await second.start()
    async with controlled(store, tmp_path, engine, second) as world:
        await until(lambda: up(world, 2))
        version = await world.live()
        assert engine.adapters == second.adapters == {version.engine_name: version.path}
        await second.stop()
        await until(lambda: up(world))
        third = await world.live()
        assert served(world) == third.name
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


async def test_a_wrong_key_is_named(store: Store, tmp_path: Path, engine: ScriptedEngine) -> None:
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: up(world))
        engine.key = "another"
        await until(lambda: up(world, 0))
        (row,) = await replicas.list_replicas(store, "default")
        assert row.detail is not None
        assert "engine.api_key" in row.detail


async def test_an_engine_that_serves_another_base_than_trained_on_takes_no_requests(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: up(world))
        await world.live()
    engine.base_root = "/another/base"
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: [r for r in world.versions.snapshot.replicas if r.detail and "another base" in r.detail])
        with pytest.raises(NoReplica):
            world.versions.route(await get_alias(store, "default", "helpdesk"))


async def test_a_local_base_is_known_by_its_files(store: Store, tmp_path: Path, engine: ScriptedEngine) -> None:
    base = tmp_path / "base"
    base.mkdir()
    save_file({"model.layers.0.self_attn.q_proj.weight": np.ones((8, 16), np.float32)}, base / "model.safetensors")
    (base / "config.json").write_text("{}")
    async with controlled(store, tmp_path, engine, base=str(base)) as world:
        await until(lambda: up(world))
        alias = await get_alias(store, "default", "helpdesk")
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


# --- one proxy leads


async def test_only_the_holder_of_the_lease_leads_and_another_takes_over(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    async with controlled(store, tmp_path, engine) as first:
        await until(lambda: up(first))
        async with controlled(store, tmp_path, engine) as second:
            (lease,) = await leases.holders(store, "default", leases.CONTROLLER)
            assert lease.owner == first.versions.proxy_id
            await until(lambda: up(second))
            version = await second.live()
            assert engine.loads() == [version.engine_name]
            await until(lambda: served(second) == version.name)
            assert second.controller.rounds == 0
    async with controlled(store, tmp_path, engine) as third:
        await third.live()
        assert third.controller.rounds > 0


async def test_engines_that_are_no_longer_configured_are_forgotten(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    await replicas.report_replica(store, "default", "http://gone:1", state="up", loaded=["base"])
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: [r.url for r in world.versions.snapshot.replicas] == [engine.url])


async def test_an_alias_that_is_new_in_the_settings_is_made(
    store: Store, tmp_path: Path, engine: ScriptedEngine
) -> None:
    await ensure_alias(store, "default", "older", "base", None)
    async with controlled(store, tmp_path, engine) as world:
        await until(lambda: set(world.versions.snapshot.aliases) == {"helpdesk", "older"})
        await until(lambda: up(world))
        assert world.versions.route(world.versions.snapshot.aliases["older"]).engine_model == "base"


async def test_the_lease_is_kept_while_an_engine_takes_its_time(world: World) -> None:
    (before,) = await leases.holders(world.store, "default", leases.CONTROLLER)
    world.engine.load_gate.clear()
    await world.write()
    await until(lambda: bool(world.engine.loads()))

    async def renewed() -> bool:
        (now,) = await leases.holders(world.store, "default", leases.CONTROLLER)
        return now.epoch == before.epoch and now.expires_at > before.expires_at

    await until(renewed)
    world.engine.load_gate.set()
    await until(lambda: served(world) == "helpdesk@1")


async def test_of_two_versions_written_at_once_the_newer_stays_live(make_world: Callable[..., Any]) -> None:
    async with make_world() as world:
        await world.engine.stop()
        await until(lambda: up(world, 0))
        one, two = await world.write(), await world.write()
        await world.engine.start()
        await world.becomes(two, VersionState.LIVE)
        rounds = world.controller.rounds
        await until(lambda: world.controller.rounds > rounds + 3)
        assert await world.state(one) is VersionState.RETIRED
        assert served(world) == two.name

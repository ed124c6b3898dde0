"""Versions whose adapters are at `adapters.url`: proxy and engines' hosts have disks of their own."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from proxy.versions import adapter_files
from proxy.versions.adapter_files import AdapterFiles
from recorder.adapters.storage import AdapterStorage
from recorder.adapters.sync import AdapterSync
from recorder.queue.training import adapter_trials
from recorder.registry.replicas import list_replicas
from recorder.registry.versions import VersionView, get_version
from recorder.settings import AdapterSettings
from recorder.states import VersionState
from recorder.store.database import Project, Store
from recorder.views.status.project import load_status
from recorder.views.status.stages import LoopSettings
from tests.proxy.adapters import Made, make_adapter
from tests.proxy.controlled import World, controlled, hurry, served, up
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until

pytestmark = pytest.mark.slow


@dataclass
class Cluster:
    """A learner, a proxy and engines, each with a disk of its own, and the storage between them."""

    world: World
    storage: AdapterStorage
    learner: Path
    proxy: Path
    engines: list[ScriptedEngine]
    syncs: list[AdapterSync] = field(default_factory=list)

    def publish(self, name: str) -> Made:
        """Write an adapter as a learner does; it is nowhere else yet."""
        made = make_adapter(self.learner, name)
        self.storage.publish(made.path)
        return replace(made, path=self.proxy / made.path.name)

    async def write(self, name: str = "helpdesk@1") -> VersionView:
        return await self.world.write(self.publish(name))

    def sync(self, *numbers: int) -> None:
        """Let these engines' hosts fetch what is there."""
        for number in numbers:
            assert self.syncs[number].run_pass().failed == []

    async def detail(self, number: int) -> str | None:
        """What the store says about an engine."""
        rows = await list_replicas(Project(self.world.store, "default"))
        return {row.url: row.detail for row in rows}[self.engines[number].url]


Clusters = Callable[..., AbstractAsyncContextManager[Cluster]]


@pytest.fixture
def cluster(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clusters:
    hurry(monkeypatch)
    monkeypatch.setattr(adapter_files, "AWAY_S", 0.05)

    @asynccontextmanager
    async def make(wait_s: float = 1000.0, engines: int = 2) -> AsyncIterator[Cluster]:
        url, proxy = str(tmp_path / "shared"), tmp_path / "adapters"
        started = [ScriptedEngine() for _ in range(engines)]
        for number, engine in enumerate(started):
            engine.disk = tmp_path / f"host-{number}"
            await engine.start()
        files = AdapterFiles(AdapterSettings(url=url, wait_s=wait_s), proxy)
        async with controlled(store, tmp_path, *started, files=files) as world:
            await until(lambda: up(world, engines))
            storage = AdapterStorage(url)
            syncs = [AdapterSync(storage, engine.disk) for engine in started if engine.disk is not None]
            yield Cluster(world, storage, tmp_path / "learner", proxy, started, syncs)
        for engine in started:
            await engine.stop()

    return make


async def test_a_version_waits_until_each_host_has_fetched_it(cluster: Clusters) -> None:
    async with cluster() as made:
        version = await made.write()
        made.sync(0)
        await until(lambda: version.engine_name in made.engines[0].adapters)
        detail = await until(lambda: made.detail(1))
        assert f"does not see {version.path}" in detail
        assert "hone adapters sync" in detail
        await made.world.rounds()
        assert await made.world.state(version) is VersionState.WRITTEN
        assert served(made.world) == "helpdesk@0"
        made.sync(1)
        done = await made.world.becomes(version, VersionState.LIVE)
        assert done.verified == "logprobs"
        await until(lambda: served(made.world) == "helpdesk@1")
        assert all(version.engine_name in engine.adapters for engine in made.engines)
        assert (made.proxy / version.engine_name).is_dir()

        async def is_silent() -> bool:
            return await made.detail(1) is None

        await until(is_silent)


async def test_status_names_a_host_that_has_not_fetched(cluster: Clusters) -> None:
    async with cluster() as made:
        await made.write()
        made.sync(0)
        await until(lambda: made.detail(1))
        status = await load_status(Project(made.world.store, "default"), LoopSettings())
        [alarm] = [one for one in status.alarms if made.engines[1].url in one]
        assert alarm.startswith(f"engine {made.engines[1].url} is up: the engine {made.engines[1].url} does not see ")


async def test_after_its_wait_a_version_goes_on_with_the_hosts_that_have_it(cluster: Clusters) -> None:
    async with cluster(wait_s=0.0) as made:
        version = await made.write()
        made.sync(1)
        await made.world.becomes(version, VersionState.LIVE)
        await until(lambda: served(made.world) == "helpdesk@1")
        alias = await made.world.alias()
        assert {made.world.versions.route(alias).replica_url for _ in range(4)} == {made.engines[1].url}
        made.sync(0)

        def both() -> bool:
            snapshot = made.world.versions.snapshot
            return len(snapshot.has(snapshot.versions[version.id])) == 2

        await until(both)


async def test_a_version_that_no_host_has_waits_on(cluster: Clusters) -> None:
    async with cluster(wait_s=0.0, engines=1) as made:
        version = await made.write()
        await until(lambda: made.detail(0))
        await made.world.rounds()
        assert await made.world.state(version) is VersionState.WRITTEN
        made.sync(0)
        await made.world.becomes(version, VersionState.LIVE)


async def test_an_engine_with_a_new_disk_is_not_asked_for_what_it_lacks(cluster: Clusters) -> None:
    async with cluster() as made:
        version = await made.write()
        made.sync(0, 1)
        await made.world.becomes(version, VersionState.LIVE)
        engine = made.engines[0]
        assert engine.disk is not None
        await engine.stop()
        shutil.rmtree(engine.disk)
        await engine.start()

        async def lacks_it() -> bool:
            return "does not see" in (await made.detail(0) or "")

        await until(lacks_it)
        await until(lambda: up(made.world, 2))
        alias = await made.world.alias()
        assert {made.world.versions.route(alias).replica_url for _ in range(4)} == {made.engines[1].url}
        made.sync(0)
        await until(lambda: version.engine_name in engine.adapters)


async def test_what_is_damaged_at_the_url_is_rejected(cluster: Clusters) -> None:
    async with cluster(engines=1) as made:
        adapter = made.publish("helpdesk@1")
        (Path(made.storage.url) / "versions" / adapter.engine_name / "adapter_model.safetensors").write_bytes(b"cut")
        version = await made.world.becomes(await made.world.write(adapter), VersionState.REJECTED)
        assert version.reason is not None
        assert version.reason.startswith("manifest_mismatch: ")
        assert "adapter_model.safetensors does not match its manifest" in version.reason
        assert made.engines[0].loads() == []


async def test_what_is_not_at_the_url_is_rejected(cluster: Clusters) -> None:
    async with cluster(engines=1) as made:
        adapter = make_adapter(made.learner, "helpdesk@1")
        missing = replace(adapter, path=made.proxy / adapter.engine_name)
        version = await made.world.becomes(await made.world.write(missing), VersionState.REJECTED)
        assert version.reason is not None
        assert version.reason.startswith("file_missing: ")
        assert "with adapters.url set for the learner?" in version.reason


async def test_a_learner_with_another_data_folder_is_named(cluster: Clusters) -> None:
    async with cluster(engines=1) as made:
        adapter = make_adapter(made.learner, "helpdesk@1")
        made.storage.publish(adapter.path)
        shutil.rmtree(adapter.path)
        version = await made.world.becomes(await made.world.write(adapter), VersionState.REJECTED)
        assert version.reason is not None
        assert f"was written into {made.learner}, and this proxy's adapters are in {made.proxy}" in version.reason


async def test_a_storage_that_is_away_holds_a_version_up_and_no_more(
    cluster: Clusters, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with cluster(engines=1) as made:
        adapter = made.publish("helpdesk@1")
        shared = Path(made.storage.url)
        shared.rename(shared.with_name("away"))
        shared.write_text("no folder")
        version = await made.world.write(adapter)
        await until(lambda: f"could not give {adapter.engine_name}" in caplog.text)
        assert await made.world.state(version) is VersionState.WRITTEN
        assert served(made.world) == "helpdesk@0"
        shared.unlink()
        shared.with_name("away").rename(shared)
        made.sync(0)
        await made.world.becomes(version, VersionState.LIVE)


async def test_a_trial_waits_for_the_hosts(cluster: Clusters) -> None:
    async with cluster() as made:
        adapter = made.publish("helpdesk@trial")
        alias, store = await made.world.alias(), made.world.store
        id_ = await adapter_trials.begin_trial(Project(store, "default"), alias.id)
        await adapter_trials.offer_trial(
            store,
            id_,
            engine_name=adapter.engine_name,
            path=str(adapter.path),
            manifest_sha256=adapter.manifest_sha256,
        )
        await until(lambda: made.engines[0].loads())
        await made.world.rounds()
        found = await adapter_trials.find_trial(store, alias.id)
        assert found is not None
        assert found.answered_at is None
        made.sync(0, 1)

        async def answered() -> bool:
            trial = await adapter_trials.find_trial(store, alias.id)
            return trial is not None and trial.answered_at is not None and trial.refusal is None

        await until(answered)


async def test_the_proxys_copies_go_with_what_they_are_copies_of(cluster: Clusters) -> None:
    async with cluster(engines=1) as made:
        first = await made.write()
        made.sync(0)
        await made.world.becomes(first, VersionState.LIVE)
        made.storage.remove(first.engine_name)  # as the learner does when nothing needs it any more
        second = await made.write("helpdesk@2")
        made.sync(0)
        await made.world.becomes(second, VersionState.LIVE)
        assert [one.name for one in made.proxy.iterdir()] == [second.engine_name]
        assert (await get_version(made.world.store, second.id)).verified == "logprobs"

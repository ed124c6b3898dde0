"""One proxy's controller beside a scripted engine, with a real store: what the controller's tests stand on."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings, EngineSettings, ProxySettings
from proxy.versions.adapter_files import AdapterFiles
from proxy.versions.controller import Controller
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address, RecordedRequest, SamplingParameters
from recorder.registry.aliases import AliasView, get_alias
from recorder.registry.versions import VersionView, allocate_version, get_version, mark_version
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.database import Project, Store
from tests.proxy.adapters import Made, make_adapter
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until

PROXY = ProxySettings()


def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look more often than a real engine would like to be asked."""
    monkeypatch.setattr("proxy.versions.fleet.WATCH_UP_S", 0.05)
    monkeypatch.setattr("proxy.versions.fleet.WATCH_DOWN_S", 0.02)
    monkeypatch.setattr("proxy.versions.controller.PINS_EVERY_S", 0.05)
    monkeypatch.setattr("proxy.versions.controller.BREATH_S", 0.01)
    monkeypatch.setattr("proxy.versions.controller.RETRY_S", 0.05)
    monkeypatch.setattr("proxy.versions.promotion.RETRY_S", 0.05)
    monkeypatch.setattr("proxy.versions.pauses.LOOK_S", 0.05)
    monkeypatch.setattr("proxy.versions.pauses.RETRY_S", 0.05)
    monkeypatch.setattr("proxy.versions.controller.DRAIN_S", 0.02)
    monkeypatch.setattr("proxy.versions.promotion.EVERY_S", 0.05)
    monkeypatch.setattr("proxy.versions.promotion.SHARE_OF_TIME", 1.0)
    monkeypatch.setattr("proxy.versions.controller.RENEW_EVERY_S", 0.1)


@dataclass
class World:
    """A store, an engine, and one proxy's controller beside it."""

    store: Store
    folder: Path
    engine: ScriptedEngine
    versions: ServiceRouter
    controller: Controller
    made: list[VersionView] = field(default_factory=list)

    async def rounds(self, count: int = 3) -> None:
        """So many rounds of the controller, begun and ended from now on."""
        for done in range(self.controller.rounds, self.controller.rounds + count + 1):
            self.controller.wake()
            await until(lambda done=done: self.controller.rounds > done)  # type: ignore[misc]  # bound in the loop

    async def alias(self) -> AliasView:
        return await get_alias(Project(self.store, "default"), "helpdesk")

    async def write(self, made: Made | None = None, *, parent: VersionView | None = None) -> VersionView:
        """A written version from the live one, as a trainer leaves it."""
        alias = await self.alias()
        assert alias.live_version_id is not None
        version = await allocate_version(self.store, alias.id, parent.id if parent else alias.live_version_id)
        made = made or make_adapter(self.folder, f"helpdesk@{version.number}")
        version = await mark_version(
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
        """A new version, in service, and known to the proxy, which follows the store by polling."""
        version = await self.becomes(await self.write(), VersionState.LIVE)
        await until(lambda: served(self) == version.name)
        return version

    async def run_pinned_to(self, version: VersionView) -> str:
        """An open trajectory on a version; its id."""
        recorder = Recorder(self.store, RecorderSettings())
        await recorder.start()
        request = RecordedRequest(
            "chat", "/v1/chat/completions", "helpdesk", False, [], None, None, {}, b"0" * 16, SamplingParameters()
        )
        address = Address(trajectory=f"run-{version.number}")
        run = await recorder.trajectory_at("default", version.alias_id, address, request, version.id)
        await recorder.stop()
        return run.id


@asynccontextmanager
async def controlled(
    store: Store,
    folder: Path,
    *engines: ScriptedEngine,
    policy: AliasSettings | None = None,
    files: AdapterFiles | None = None,
    **engine_fields: Any,
) -> AsyncIterator[World]:
    """A proxy's two parts, the one that follows the store and the one that leads, running."""
    versions = ServiceRouter(Project(store, "default"), PROXY)
    recorder = Recorder(store, RecorderSettings())
    given = HoneSettings(aliases={"helpdesk": policy or AliasSettings(base_model="base")})
    follower = SettingsFollower(Project(store, "default"), given)
    controller = Controller(
        Project(store, "default"),
        versions,
        recorder,
        engine=EngineSettings(urls=[e.url for e in engines], dtype="float32", **engine_fields),
        proxy=PROXY,
        follower=follower,
        default_base=None,
        engine_key=engines[0].key,
        files=files,
    )
    await recorder.start()
    async with follower.running(), controller.running():
        await versions.start()
        try:
            yield World(store, folder / "adapters", engines[0], versions, controller)
        finally:
            await versions.stop()
    await recorder.stop()


def up(world: World, count: int = 1) -> bool:
    """Whether so many engines take requests, as a request sees it."""
    return len(world.versions.snapshot.up()) == count


def served(world: World) -> str:
    alias = world.versions.snapshot.aliases["helpdesk"]
    return world.versions.route(alias).version.name

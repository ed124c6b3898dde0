"""A learner whose engines are elsewhere: a version is at `adapters.url` before the store knows it, and goes with it."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from recorder.adapters.storage import AdapterStorage
from recorder.adapters.sync import AdapterSync
from recorder.errors import AdaptersUnavailable
from recorder.states import GroupState
from tests.trainer.step.left import folders, group_state
from tests.trainer.world import World
from trainer.errors import VersionNotWritten
from trainer.settings import TrainerSettings
from trainer.step.alias_trainer import AliasTrainer
from trainer.step.state.engine_facts import EngineFacts

pytestmark = pytest.mark.slow

SMALL: dict[str, Any] = {"device": "cpu", "rank": 4, "alpha": 8.0, "lr": 1e-2, "token_budget": 256}


@pytest.fixture
def storage(tmp_path: Path) -> AdapterStorage:
    return AdapterStorage(str(tmp_path / "shared"))


async def trainer(world: World, storage: AdapterStorage, **settings: Any) -> AliasTrainer:
    given = TrainerSettings(base=str(world.base), **SMALL, **settings)
    return await AliasTrainer.open(world.store, world.alias, given, world.data, EngineFacts(adapters_url=storage.url))


async def test_an_engines_host_follows_a_learner(world: World, storage: AdapterStorage, tmp_path: Path) -> None:
    sync, made = AdapterSync(storage, tmp_path / "host"), []
    async with await trainer(world, storage, keep_versions=1) as opened:
        assert storage.names() == set()  # the adapter that was tried is gone
        for number in range(3):
            await world.group(f"g{number}", [1.0, 0.0], seed=number)
            version = (await opened.train_once(await world.claim(opened))).version
            assert version is not None
            assert version.engine_name in storage.names()
            sync.run_pass()
            await world.promote(version)
            made.append(version.engine_name)
    async with await trainer(world, storage, keep_versions=1):
        kept = folders(world)
    assert made[0] not in kept
    assert storage.names() == set(kept)
    assert sync.run_pass().removed == [name for name in made if name not in kept]
    assert sorted(path.name for path in (tmp_path / "host").iterdir()) == kept


async def test_a_version_that_cannot_be_shared_costs_no_try_and_leaves_nothing(
    world: World, storage: AdapterStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    group_id = await world.group("g1", [1.0, 0.0])

    def away(*_: Any) -> None:
        raise AdaptersUnavailable("s3://b could not take it: nothing listens at its address.")

    async with await trainer(world, storage, max_tries=1) as opened:
        with monkeypatch.context() as patched:
            patched.setattr(AdapterStorage, "publish", away)
            with pytest.raises(VersionNotWritten, match="s3://b could not take it: nothing listens"):
                await opened.train_once(await world.claim(opened))
        assert (await group_state(world, group_id))[0] == GroupState.SCORED
        assert folders(world) == folders(world, "checkpoints") == []
        version = (await opened.train_once(await world.claim(opened))).version
        assert version is not None
        assert storage.names() == {version.engine_name}


async def test_what_could_not_be_removed_there_stays_here_until_it_can(
    world: World, storage: AdapterStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    orphan = world.data / "adapters" / "org-helpdesk@9-0123456789ab"
    orphan.mkdir(parents=True)

    def away(*_: Any) -> None:
        raise AdaptersUnavailable("s3://b could not remove it: nothing listens at its address.")

    with monkeypatch.context() as patched:
        patched.setattr(AdapterStorage, "remove", away)
        async with await trainer(world, storage):
            assert orphan.name in folders(world)
    assert "It is tried again" in caplog.text
    async with await trainer(world, storage):
        assert folders(world) == []


async def test_versions_from_before_the_setting_are_shared_and_a_lost_disk_is_filled(
    world: World, storage: AdapterStorage
) -> None:
    await world.group("g1", [1.0, 0.0], seed=1)
    async with await world.trainer() as opened:
        first = (await opened.train_once(await world.claim(opened))).version
    assert first is not None
    await world.promote(first)
    async with await trainer(world, storage):
        assert storage.names() == {first.engine_name}
    await world.group("g2", [1.0, 0.0], seed=2)
    shutil.rmtree(world.data / "adapters")
    async with await trainer(world, storage) as opened:
        second = (await opened.train_once(await world.claim(opened))).version
    assert second is not None
    assert storage.names() == {first.engine_name, second.engine_name}
    assert folders(world) == sorted([first.engine_name, second.engine_name])

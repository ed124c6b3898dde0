"""The controller brings versions into service, or rejects them, and takes them out when nobody holds them.

Against a scripted engine that keeps vLLM's rules, with a real store. tests/e2e does the same with a real vLLM.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from proxy.errors import NoReplica
from proxy.settings.sections import AliasSettings
from recorder.registry.alias_moves import rollback, set_canary, set_live
from recorder.registry.versions import allocate_version, mark_version
from recorder.setting_changes import actions as setting_actions
from recorder.setting_changes.follower import SettingsFollower
from recorder.states import VersionState
from recorder.store import ledger
from tests.proxy import adapters
from tests.proxy.adapters import Made, make_adapter, seal
from tests.proxy.controlled import World, served, up
from tests.proxy.until import until

pytestmark = pytest.mark.slow

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
    async with make_world(AliasSettings(base_model="base", promote="canary", canary_share=0.5)) as world:
        version = await world.becomes(await world.write(), VersionState.CANARY)
        alias = await world.alias()
        await until(lambda: version.id in {world.versions.offer(alias, str(n)) for n in range(50)})
        assert alias.live_version_id in {world.versions.offer(alias, str(n)) for n in range(50)}
        assert world.versions.route(alias, pinned=version.id).version.id == version.id
        second = await world.becomes(await world.write(), VersionState.CANARY)
        assert await world.state(version) is VersionState.RETIRED
        assert second.id != version.id


async def changed(world: World, leaf: str, value: object) -> None:
    """A setting of the alias, changed by another program."""
    page = SettingsFollower(world.controller.follower.project, world.controller.follower.started_with)
    await setting_actions.set_value(page, f"aliases.helpdesk.{leaf}", value, "somebody")


async def test_a_policy_that_is_changed_at_run_time_decides_the_version_that_waits(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(AliasSettings(base_model="base", promote="manual")) as world:
        version = await world.becomes(await world.write(), VersionState.GATED)
        await changed(world, "promote", "gate")
        await world.becomes(version, VersionState.LIVE)


async def test_a_running_canary_gets_the_share_that_is_set_at_run_time_unless_a_person_gave_it_one(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(AliasSettings(base_model="base", promote="canary", canary_share=0.5)) as world:
        version = await world.becomes(await world.write(), VersionState.CANARY)

        def has(share: float) -> Callable[[], Awaitable[bool]]:
            async def there() -> bool:
                return bool((await world.alias()).canary_share == share)

            return there

        await changed(world, "canary_share", 0.25)
        await until(has(0.25))
        await set_canary(world.store, version.alias_id, version.id, 0.75, who="hand")
        await changed(world, "canary_share", 0.3)
        await until(lambda: world.controller.follower.aliases()["helpdesk"].canary_share == 0.3)
        await world.rounds()
        assert await has(0.75)()


async def test_what_is_held_back_of_a_promotion_follows_the_setting(make_world: Callable[..., Any]) -> None:
    async with make_world(AliasSettings(base_model="base", holdback_share=0.5)) as world:
        await world.becomes(await world.write(), VersionState.LIVE)
        assert (await world.alias()).holdback_share == 0.5
        await changed(world, "holdback_share", 0)

        async def ended() -> bool:
            return bool((await world.alias()).holdback_share == 0)

        await until(ended)


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
    assert world.engine.adapters.get(version.engine_name) != version.path
    assert world.engine.adapters.get(good.engine_name) == good.path, "also where both have one name"
    (entry,) = await ledger.object_entries(world.store, "version", version.id)
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
    assert world.engine.adapters[made.engine_name] == "/old/data/helpdesk@1", "it is somebody else's, and stays"
    assert world.engine.unloads() == []


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
    await mark_version(world.store, version.id, VersionState.ABANDONED)
    alias = await world.alias()
    assert alias.live_version_id is not None
    other = await allocate_version(world.store, alias.id, alias.live_version_id)
    made = make_adapter(world.folder, "helpdesk@2")
    await mark_version(
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

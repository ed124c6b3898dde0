"""A trainer is opened for an alias that nobody holds and on the alias's own base, and on no other."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import update

from recorder.queue import leases
from recorder.states import GroupState
from recorder.store import schema
from recorder.store.database import Project
from tests.trainer.step.left import folders, group_state
from tests.trainer.world import PROJECT, World
from trainer.errors import AliasBusy, BaseMismatch, TrainerError, UnsupportedModel
from trainer.settings import TrainerSettings
from trainer.step.alias_trainer import AliasTrainer


async def test_one_trainer_holds_an_alias(world: World) -> None:
    async with await world.trainer() as first:
        with pytest.raises(AliasBusy, match="org/helpdesk"):
            await world.trainer()
        (held,) = await leases.list_holders(Project(world.store, PROJECT), "trainer:")
        assert held.owner == first.owner
    assert await leases.list_holders(Project(world.store, PROJECT), "trainer:") == []
    async with await world.trainer():
        pass


async def test_a_base_that_is_not_the_aliass_is_refused(world: World, tiny_base: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    for path in tiny_base.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    config = json.loads((other / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | {"rope_theta": 123.0}))
    with pytest.raises(BaseMismatch, match=r"another base .* trainer\.dtype"):
        await world.trainer(base=str(other))
    with pytest.raises(BaseMismatch, match="bfloat16"):
        await world.trainer(dtype="bfloat16")
    assert await leases.list_holders(Project(world.store, PROJECT), "trainer:") == []


async def test_a_base_that_nobody_vouches_for_may_still_start_but_nothing_is_trained_on_it(world: World) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    known = world.alias.base_fingerprint

    async def vouch(fingerprint: str | None) -> None:
        async with world.store.write() as conn:
            await conn.execute(update(schema.aliases).values(base_fingerprint=fingerprint))

    await vouch(None)
    world.alias = replace(world.alias, base_fingerprint=None)
    async with await world.trainer() as trainer:
        for unknown, message in ((None, r"is not recorded yet.*engine\.base"), ("other", "another base")):
            await vouch(unknown)
            with pytest.raises(BaseMismatch, match=message):
                await trainer.train_once(await world.claim(trainer))
            assert (await group_state(world, group_id))[0] == GroupState.SCORED
        await vouch(known)
        assert (await trainer.train_once(await world.claim(trainer))).version is not None


async def test_a_base_must_be_known(world: World) -> None:
    with pytest.raises(TrainerError, match=r"trainer\.base"):
        await AliasTrainer.open(world.store, world.alias, TrainerSettings(), world.data)


async def test_settings_whose_adapters_no_engine_loads_are_refused_before_anything_is_claimed(world: World) -> None:
    group_id = await world.group("g1", [1.0, 0.0])
    with pytest.raises(UnsupportedModel, match=r'selects embed_tokens.*trainer\.target = \["q_proj"\]'):
        await world.trainer(target=["q_proj", "embed_tokens"])
    with pytest.raises(UnsupportedModel, match=r"selects embed_tokens.*Set trainer\.target to linear layers"):
        await world.trainer(target=["embed_tokens"])
    assert (await group_state(world, group_id))[0] == GroupState.SCORED
    assert await leases.list_holders(Project(world.store, PROJECT), "trainer:") == []


async def test_opening_leaves_no_adapter_behind_and_removes_what_a_killed_trainer_left(world: World) -> None:
    async with await world.trainer() as trainer:
        assert folders(world) == []
        adapters = trainer._folders.adapters
    slug = "org-helpdesk"
    adapters.mkdir(exist_ok=True)
    left, other = adapters / f"{slug}@trial-0123456789ab", adapters / "other@trial-0123456789ab"
    left.mkdir()
    other.mkdir()
    async with await world.trainer():
        assert [folder.name for folder in adapters.iterdir()] == [other.name]


async def test_an_adapter_that_fails_a_check_ends_the_opening(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from trainer.policy.startup_check import random_state as stock

    monkeypatch.setattr(
        "trainer.step.state.files.random_state",
        lambda policy: {name: tensor[..., :-1].contiguous() for name, tensor in stock(policy).items()},
    )
    with pytest.raises(UnsupportedModel, match=r"cannot be served: .* has shape"):
        await world.trainer()

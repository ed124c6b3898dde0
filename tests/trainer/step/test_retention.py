"""Folders that no version needs are removed as an alias learns, and those that a dead trainer left."""

from __future__ import annotations

import pytest

from tests.trainer.step.left import folders
from tests.trainer.world import World

pytestmark = pytest.mark.slow


async def test_an_alias_that_learns_for_long_keeps_few_folders(world: World) -> None:
    async with await world.trainer(keep_versions=2, dpo={"reference": "org/helpdesk@1"}) as trainer:
        made = []
        for number in range(4):
            await world.group(f"g{number}", [1.0, 0.0], seed=number)
            version = (await trainer.train_once(await world.claim(trainer))).version
            assert version is not None
            await world.promote(version)
            made.append(version.engine_name)
    # one was live when the last was made, and the first is what pairs are compared with
    assert folders(world) == folders(world, "checkpoints") == sorted([made[0], *made[-3:]])
    async with await world.trainer(keep_versions=2):
        assert folders(world) == sorted(made[-2:])


async def test_what_a_trainer_left_that_died_before_its_commit_goes_and_others_stay(world: World) -> None:
    adapters = world.data / "adapters"
    orphan, foreign = "org-helpdesk@9-0123456789ab", "another@9-0123456789ab"
    for name in (orphan, foreign, "org-helpdesk@mine"):
        (adapters / name).mkdir(parents=True)
    async with await world.trainer():
        assert folders(world) == sorted([foreign, "org-helpdesk@mine"])

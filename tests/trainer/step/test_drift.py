"""The drift set of an alias: it is drawn before a step, and no step trains on it."""

from __future__ import annotations

import pytest

from recorder.queue.training import drift_set
from recorder.queue.training.drift_set import DRIFT_SET, SHARE
from recorder.store.schema import step_trajectories
from tests.recorder.rows import Rows
from tests.trainer.step.left import codes
from tests.trainer.world import World

pytestmark = pytest.mark.slow


async def members(world: World) -> list[str]:
    assert world.alias.base_fingerprint is not None
    return await drift_set.list_members(world.store, world.alias.id, world.alias.base_fingerprint, 100)


async def test_the_set_is_drawn_before_a_step_and_not_trained_on(world: World) -> None:
    for number in range(SHARE):
        await world.group(f"g{number}", [1.0, 0.0], seed=number)
    async with await world.trainer(drift_trajectories=1) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
    [member] = await members(world)
    assert report.left_out == {DRIFT_SET: 1}
    assert report.trained == 2 * SHARE - 1
    taught = {row.trajectory_id for row in await Rows(world.store).all(step_trajectories)}
    assert len(taught) == 2 * SHARE - 1
    assert member not in taught
    assert set(await codes(world, "trajectory", member)) == {DRIFT_SET}

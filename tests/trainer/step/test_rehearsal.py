"""A step that repeats earlier trajectories beside its groups, on a real store."""

from __future__ import annotations

import pytest

from recorder.queue.training import uses
from recorder.queue.training.earlier_groups import draw_trained_groups
from recorder.views.trajectories import transcripts
from tests.trainer.world import World
from trainer.step.summary import StepReport

pytestmark = pytest.mark.slow


async def best_of(world: World, group_id: str) -> str:
    """The first member, which the groups here reward most."""
    return (await transcripts.load_group(world.store, group_id)).members[0].id


async def repeated(world: World, report: StepReport, ids: list[str]) -> dict[str, int]:
    assert report.version is not None
    return await uses.count_uses(world.store, "rehearsal", ids, report.version.id)


async def test_steps_repeat_the_best_of_earlier_groups_and_may_do_so_again(world: World) -> None:
    first = await world.group("g1", [1.0, 0.0, 0.2], seed=1)
    best = await best_of(world, first)
    async with await world.trainer(rehearsal=0.25) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.metrics["rehearsal"] == 0  # nothing came before
        assert await repeated(world, report, [best]) == {}
        for number in (2, 3):
            assert report.version is not None
            await world.promote(report.version)
            await world.group(f"g{number}", [1.0, 0.0, 0.2], seed=number)
            report = await trainer.train_once(await world.claim(trainer))
            assert report.metrics["rehearsal"] == 1
            assert report.metrics["objective.rehearsal.tokens"] == 12
            assert report.metrics["objective.group.tokens"] == 3 * 12
    assert report.version is not None
    drawn = await draw_trained_groups(world.store, report.version.id, 10, "any")
    assert len(drawn) == 3
    older = [await best_of(world, id_) for id_ in drawn]
    counted = await repeated(world, report, older)
    assert sum(counted.values()) == 2
    assert counted.get(best, 0) >= 1  # the second step had no other


async def test_groups_of_a_version_that_was_taken_back_are_not_repeated(world: World) -> None:
    await world.group("g1", [1.0, 0.0], seed=1)
    parent = await world.live()
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    assert report.version is not None
    assert len(await draw_trained_groups(world.store, report.version.id, 5, "any")) == 1
    assert await draw_trained_groups(world.store, parent.id, 5, "any") == []


async def test_the_same_seed_draws_the_same_groups_and_another_one_others(world: World) -> None:
    for number in range(12):
        await world.group(f"g{number}", [1.0, 0.0], seed=number)
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    assert report.version is not None
    one, again, other = [await draw_trained_groups(world.store, report.version.id, 4, seed) for seed in ("a", "a", "b")]
    assert one == again
    assert one != other
    assert len(set(one)) == 4

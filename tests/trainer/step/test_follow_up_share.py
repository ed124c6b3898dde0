"""A step in which one key's follow-ups are at most their share: the others wait, scored, and say so."""

from __future__ import annotations

from sqlalchemy import update

from recorder.states import GroupState
from recorder.store import ledger
from recorder.store.schema import scores, trajectories
from tests.trainer.step.left import group_state
from tests.trainer.world import World


async def followed_up(world: World, name: str, key: str, seed: int) -> str:
    """A group whose rewards come from what the users of a key wrote next."""
    group = await world.group(name, [1.0, 0.0], seed, turns=1)
    async with world.store.write() as conn:
        await conn.execute(update(scores).where(scores.c.group_id == group).values(follow_up=True))
        await conn.execute(update(trajectories).where(trajectories.c.group_id == group).values(made_by=key))
    return group


async def waiting_rows(world: World, group: str) -> list[object]:
    entries = await ledger.object_entries(world.store, "group", group)
    return [one.detail for one in entries if one.code == "follow_up_share"]


async def test_follow_ups_beyond_the_share_wait_for_a_later_step(world: World) -> None:
    other = await world.group("a task", [1.0, 0.0], turns=1)
    of_ann = [await followed_up(world, f"ann writes {number}", "ann", 10 + number) for number in range(3)]
    of_bob = await followed_up(world, "bob writes", "bob", 20)
    async with await world.trainer(follow_up_share=0.2) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert (report.trained, report.metrics["follow_up_share"], report.metrics["follow_ups_waiting"]) == (8, 0.5, 2)
        assert report.version is not None
        trained = [other, *of_ann[:2], of_bob]
        assert [(await group_state(world, one))[0] for one in trained] == [GroupState.TRIED] * 4
        assert await group_state(world, of_ann[2]) == (GroupState.SCORED, None)
        assert await waiting_rows(world, of_ann[2]) == [{"share": 0.2}]
        assert "follow_up_share" not in report.left_out
        await world.promote(report.version)
        alone = await trainer.train_once(await world.claim(trainer))
        assert (alone.trained, alone.metrics["follow_up_share"], alone.metrics["follow_ups_waiting"]) == (2, 1.0, 0)
        assert (await group_state(world, of_ann[2]))[0] == GroupState.TRIED


async def test_without_a_share_nothing_waits_and_nothing_is_told(world: World) -> None:
    for number, key in enumerate(("ann", "ann", "bob")):
        await followed_up(world, f"{key} writes {number}", key, number)
    async with await world.trainer(follow_up_share=1.0) as trainer:
        whole = await trainer.train_once(await world.claim(trainer))
        assert whole.trained == 6
        assert "follow_up_share" not in whole.metrics

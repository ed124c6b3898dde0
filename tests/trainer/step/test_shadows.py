"""Turns that were answered again, in a step: that turn alone, with its weight, and once."""

from __future__ import annotations

import numpy as np
import pytest
from sqlalchemy import update

from recorder.queue.judging import scores
from recorder.states import GroupState
from recorder.store import ledger, schema
from recorder.store.database import Project
from recorder.views.trajectories import transcripts
from recorder.views.trajectories.shapes import GroupView
from tests.trainer.step.left import codes, group_state
from tests.trainer.world import World
from trainer.batch.rows import IN_OWN_GROUP, RowBasis
from trainer.objectives.group import weigh_groups
from trainer.objectives.group_rows import GroupRows, group_rows
from trainer.settings import TrainerSettings

LIVE, AGAIN = 6, 5  # tokens of a live answer and of a further one, in this world


async def read(world: World, group_id: str) -> GroupView:
    return await transcripts.load_group(world.store, group_id, with_tokens=True)


async def second_call(world: World, group_id: str) -> str:
    """The second of the two turns of a group's first run."""
    return (await read(world, group_id)).members[0].calls[1].id


async def leave_out(world: World, group_id: str) -> None:
    async with world.store.write() as conn:
        own = update(schema.groups).where(schema.groups.c.id == group_id)
        await conn.execute(own.values(state=GroupState.LEFT_OUT, reason="too_few"))


async def rows_of(world: World, group_id: str) -> GroupRows:
    view = await read(world, group_id)
    rewards = await scores.score_rewards(world.store, str(view.current_score_id))
    live = await world.live()
    return group_rows(view, rewards, RowBasis(world.alias.base_fingerprint, [live.id], 4, 1000))


async def test_rows_hold_that_turn_alone_after_one_prompt(world: World) -> None:
    own = await world.group("g1", [1.0, 0.0], seed=1)
    turn = await second_call(world, own)
    shadow = await rows_of(world, await world.shadow(turn, [1.0, 0.0, 0.5]))
    whole = await rows_of(world, own)
    assert sorted(row.trained_tokens for row in shadow.rows) == [AGAIN, AGAIN, LIVE]
    assert [row.trained_tokens for row in whole.rows] == [2 * LIVE] * 2
    fork = next(row for row in shadow.rows if row.calls == ((turn, 0),))
    run = next(row for row in whole.rows if (turn, 0) in row.calls)
    assert fork.token_ids.tolist() == run.token_ids.tolist()  # the same turn, and what came before it as context
    assert fork.trained.nonzero()[0].tolist() == run.trained.nonzero()[0].tolist()[-LIVE:]
    prompts = {tuple(row.token_ids[: -row.trained_tokens].tolist()) for row in shadow.rows}
    assert len(prompts) == 1
    shares: dict[str, float] = {}
    for one in weigh_groups([whole, shadow], TrainerSettings()):
        shares[one.row.trajectory_id] = float(np.mean(one.rl_weight)) * one.row.trained_tokens
    assert sorted(shares.values()) == pytest.approx([0.5 / 3.5] * 3 + [1 / 3.5] * 2)


async def test_a_step_trains_on_them_with_the_engines_own_logprobs(world: World) -> None:
    own = await world.group("g1", [1.0, 0.0], seed=1)
    shadow = await world.shadow(await second_call(world, own), [1.0, 0.0, 0.5])
    await leave_out(world, own)
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    assert report.version is not None
    assert (report.trained, report.left_out) == (3, {})
    assert report.metrics["trained_tokens"] == LIVE + 2 * AGAIN
    assert report.metrics["logprob_gap_max"] <= 1e-5
    assert (await group_state(world, shadow))[0] != GroupState.SCORED


async def test_where_the_runs_own_group_trains_the_turn_counts_there_alone(world: World) -> None:
    own = await world.group("g1", [1.0, 0.0], seed=1)
    shadow = await world.shadow(await second_call(world, own), [1.0, 0.0, 0.5])
    fork = (await read(world, shadow)).members[0].id
    async with await world.trainer() as trainer:
        held = await world.claim(trainer)
        assert {claim.group_id for claim in held} == {own, shadow}
        report = await trainer.train_once(held)
    assert report.trained == 2 + 2
    assert report.metrics["trained_tokens"] == 2 * 2 * LIVE + 2 * AGAIN
    assert await codes(world, "trajectory", fork) == [IN_OWN_GROUP]
    assert IN_OWN_GROUP in await ledger.count_codes(Project(world.store, "default"), "trajectory")


async def test_a_shadow_group_waits_until_its_runs_own_group_is_decided(world: World) -> None:
    own = await world.group("g1", [1.0, 0.0], seed=1)
    shadow = await world.shadow(await second_call(world, own), [1.0, 0.0])
    async with world.store.write() as conn:
        await conn.execute(update(schema.groups).where(schema.groups.c.id == own).values(state=GroupState.JUDGING))
    async with await world.trainer() as trainer:
        assert await world.claim(trainer) == []
        await leave_out(world, own)
        assert [claim.group_id for claim in await world.claim(trainer)] == [shadow]

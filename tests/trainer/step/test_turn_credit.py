"""Values of turns in a step, on a real store: from the score that a group was claimed with."""

from __future__ import annotations

import pytest

from recorder.states import GroupState
from recorder.views.comparison.loader import load_rank
from recorder.views.trajectories import transcripts
from tests.trainer.step.left import group_state
from tests.trainer.world import World

pytestmark = pytest.mark.slow


async def test_a_step_trains_on_what_turns_differ_by_if_a_weight_says_so(world: World) -> None:
    equal = await world.group("equal", [1.0, 1.0], seed=1, rated=[[1.0, 0.5], [0.0]])
    async with await world.trainer() as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert (report.version, report.left_out) == (None, {"zero_variance": 2})
    assert await group_state(world, equal) == (GroupState.LEFT_OUT, "zero_variance")

    clear = await world.group("clear", [1.0, 0.0], seed=2, rated=[[0.5], [0.5]])
    again = await world.group("again", [1.0, 1.0], seed=3, rated=[[1.0, 0.5], [0.0]])
    async with await world.trainer(turn_weight=0.5) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        assert report.metrics["groups_trained"] == 2
        assert report.metrics["credited_turns"] == 2
        assert report.metrics["part.checked.turn.1"] == 0.5
    assert {await group_state(world, id_) for id_ in (clear, again)} == {(GroupState.TRIED, None)}
    first = (await transcripts.load_group(world.store, again)).members[0]
    rank = await load_rank(world.store, again, first.id)
    assert rank is not None
    shown = [(one.number, one.value, one.difference) for one in rank.attempt.turns]
    assert shown == [(1, 1.0, 0.5), (2, 0.5, None)]

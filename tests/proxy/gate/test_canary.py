"""A canary that agents' runs show to be worse is taken away by itself; one that is as good stays."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from proxy.settings.sections import AliasSettings
from recorder.capture.recorder import Recorder
from recorder.content.turns import Address
from recorder.registry.aliases import AliasView
from recorder.registry.moves import list_moves
from recorder.registry.versions import VersionView
from recorder.settings import RecorderSettings
from recorder.states import GroupState, VersionState
from recorder.store.schema import groups, trajectories
from recorder.work.claims import claim_for_judging
from recorder.work.scores import NewPart, NewScore, record_score
from tests.proxy.controlled import World
from tests.recorder.rows import Rows
from tests.recorder.talk import assistant, choice, request, turn, user

TASKS = 30


@pytest.fixture
async def world(make_world: Callable[..., Any]) -> AsyncIterator[World]:
    async with make_world(AliasSettings(base_model="base", promote="canary", canary_share=0.5)) as world:
        yield world


async def run(recorder: Recorder, alias: AliasView, group: str, version_id: str) -> str:
    """One run of a task on a version; its id."""
    asked = request([user(f"Where is {group}?")])
    address = Address(trajectory=f"{group}-{version_id}", group=group, group_size=2, done=True)
    ref = await recorder.trajectory_at("default", alias.id, address, asked, version_id)
    said = turn(ref, asked, [choice(assistant("On its way."))], address=address, alias_id=alias.id)
    await recorder.commit(said)
    return ref.id


async def judged(world: World, canary: VersionView, reward: float) -> None:
    """Tasks that both versions tried; the live one's runs are all right, the canary's are worth `reward`."""
    recorder, rows, alias = Recorder(world.store, RecorderSettings()), Rows(world.store), await world.alias()
    await recorder.start()
    assert alias.live_version_id is not None
    for n in range(TASKS):
        new = await run(recorder, alias, f"task-{n}", canary.id)
        old = await run(recorder, alias, f"task-{n}", alias.live_version_id)
        await rows.set(trajectories, old, version_id=alias.live_version_id)  # a declared group pins all to one
        claim = await claim_for_judging(world.store, "default", "judge", 60)
        assert claim is not None
        parts = [NewPart(new, "reward", reward), NewPart(old, "reward", 1.0)]
        await record_score(world.store, claim, NewScore("recipe", parts=parts))
    await recorder.stop()
    assert {row["state"] for row in await rows.all(groups)} == {GroupState.SCORED}


async def test_a_canary_whose_runs_are_worse_is_taken_away_and_the_row_says_by_what(world: World) -> None:
    canary = await world.becomes(await world.write(), VersionState.CANARY)
    await judged(world, canary, reward=0.0)
    await world.becomes(canary, VersionState.RETIRED)
    ended = (await list_moves(world.store, "default"))[0]
    assert (ended.move, ended.who) == ("canary_ended", "controller")
    assert ended.figures["worse_by"] == ["reward"]
    assert ended.figures["reward"]["value"] == 0.0


async def test_a_canary_that_is_as_good_stays(world: World) -> None:
    canary = await world.becomes(await world.write(), VersionState.CANARY)
    await judged(world, canary, reward=1.0)
    await world.rounds(10)
    assert await world.state(canary) is VersionState.CANARY

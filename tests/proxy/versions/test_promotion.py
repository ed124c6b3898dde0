"""Versions on trial: what agents' runs show lets a canary pass or end, and takes a promoted version back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import pytest

from proxy.settings.sections import AliasSettings
from proxy.versions import promotion
from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address
from recorder.queue.claims import claim_for_judging
from recorder.queue.judging.scores import NewPart, record_score
from recorder.registry.alias_moves import ROLLED_BACK, rollback
from recorder.registry.aliases import AliasView
from recorder.registry.moves import VersionMove, list_moves
from recorder.registry.versions import VersionView
from recorder.settings import RecorderSettings
from recorder.states import GroupState, VersionState
from recorder.store.database import Project
from recorder.store.schema import groups, trajectories
from tests.proxy.controlled import World, served
from tests.proxy.until import until
from tests.recorder.rows import Rows
from tests.recorder.score_rows import new_score
from tests.recorder.talk import assistant, choice, request, turn, user

pytestmark = pytest.mark.slow

CANARY = AliasSettings(base_model="base", promote="canary", canary_share=0.5)
WATCHED = AliasSettings(base_model="base")
TASKS = 12  # more than the tests need where one side is always better, less than where both are alike


@pytest.fixture
async def world(make_world: Callable[..., Any]) -> AsyncIterator[World]:
    async with make_world(CANARY) as world:
        yield world


async def run(recorder: Recorder, alias: AliasView, group: str, version_id: str) -> str:
    """One run of a task on a version; its id."""
    asked = request([user(f"Where is {group}?")])
    address = Address(trajectory=f"{group}-{version_id}", group=group, group_size=2, done=True)
    ref = await recorder.trajectory_at("default", alias.id, address, asked, version_id)
    said = turn(ref, asked, [choice(assistant("On its way."))], address=address, alias_id=alias.id)
    await recorder.commit(said)
    return ref.id


async def judged(world: World, new: VersionView, old_id: str, *rewards: float) -> None:
    """Tasks that both versions tried, with the rewards of the new one's runs and the old one's."""
    recorder, rows, alias = Recorder(world.store, RecorderSettings()), Rows(world.store), await world.alias()
    await recorder.start()
    for n in range(TASKS):
        ids = [await run(recorder, alias, f"task-{n}", version_id) for version_id in (new.id, old_id)]
        await rows.set(trajectories, ids[1], version_id=old_id)  # a declared group pins all to one
        claim = await claim_for_judging(Project(world.store, "default"), "judge", 60)
        assert claim is not None
        parts = [NewPart(id_, "reward", reward) for id_, reward in zip(ids, rewards, strict=True)]
        await record_score(world.store, claim, new_score("recipe", parts=parts))
    await recorder.stop()
    assert {row["state"] for row in await rows.all(groups)} == {GroupState.SCORED}


async def tried(world: World, *rewards: float) -> VersionView:
    """A canary, with judged runs of it and of the live version."""
    canary = await world.becomes(await world.write(), VersionState.CANARY)
    live = (await world.alias()).live_version_id
    assert live is not None
    await judged(world, canary, live, *rewards)
    return canary


async def newest(world: World) -> VersionMove:
    return (await list_moves(Project(world.store, "default")))[0]


async def test_a_canary_whose_runs_are_worse_is_taken_away_and_the_row_says_by_what(world: World) -> None:
    await world.becomes(await tried(world, 0.0, 1.0), VersionState.RETIRED)
    ended = await newest(world)
    assert (ended.move, ended.who, ended.why) == ("canary_ended", "controller", "its trajectories are worse by reward")
    assert ended.figures["worse_by"] == ["reward"]
    assert ended.figures["reward"]["value"] == 0.0


async def test_a_canary_about_which_nothing_is_shown_stays_one(world: World) -> None:
    canary = await tried(world, 1.0, 1.0)
    await world.rounds(10)
    assert await world.state(canary) is VersionState.CANARY


async def test_a_round_that_comes_before_its_time_asks_for_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await tried(world, 1.0, 1.0)
    monkeypatch.setattr(promotion, "EVERY_S", 5.0)
    asked: list[float] = []
    look = promotion.TrialMonitor(replace(world.controller._deciding, again=asked.append)).look
    await look()
    await look()
    assert len(asked) == 2
    assert 0 < asked[1] <= asked[0] <= 5.0


async def test_a_canary_whose_reward_is_shown_to_be_no_worse_is_live(world: World) -> None:
    await world.becomes(await tried(world, 1.0, 0.0), VersionState.LIVE)
    passed = await newest(world)
    assert (passed.version, passed.move, passed.who) == ("helpdesk@1", "gate", "controller")
    assert (passed.why or "").startswith("not_worse:")
    assert passed.figures["reward"]["value"] == 1.0


async def test_a_canary_is_live_once_enough_tasks_were_compared(make_world: Callable[..., Any]) -> None:
    async with make_world(CANARY.model_copy(update={"canary_max_tasks": TASKS})) as world:
        await world.becomes(await tried(world, 1.0, 1.0), VersionState.LIVE)
        passed = await newest(world)
        assert (passed.why or "").startswith("enough_tasks:")
        assert passed.figures["reward"]["tasks"] == TASKS


async def test_a_canary_that_met_nobody_never_passes_by_its_age(make_world: Callable[..., Any]) -> None:
    async with make_world(CANARY.model_copy(update={"canary_max_age_s": 0.001, "canary_max_tasks": 1})) as world:
        version = await world.becomes(await world.write(), VersionState.REJECTED)
        assert (version.reason or "").startswith("not_promoted: its reward was compared on 0 tasks")
        assert (await world.alias()).canary_version_id is None


# --- after a promotion


async def promoted(world: World, *rewards: float) -> VersionView:
    """A version that is live and watched, with judged runs of it and of the one before."""
    before = (await world.alias()).live_version_id
    version = await world.live()
    assert before is not None
    await judged(world, version, before, *rewards)
    return version


async def test_a_promoted_version_whose_runs_are_worse_is_taken_back_and_the_row_says_by_what(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(WATCHED) as world:
        version = await promoted(world, 0.0, 1.0)
        left = await world.becomes(version, VersionState.RETIRED)
        assert left.reason == ROLLED_BACK
        await until(lambda: served(world) == "helpdesk@0")
        back = await newest(world)
        assert (back.version, back.move, back.who) == ("helpdesk@0", "rollback", "controller")
        assert back.why == "the trajectories of helpdesk@1 are worse by reward"
        assert back.figures["reward"]["value"] == 0.0
        assert (await world.alias()).watched_until is None


async def test_a_promoted_version_whose_runs_are_as_good_stays_and_the_watch_ends(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(WATCHED.model_copy(update={"rollback_watch_s": 1.0})) as world:
        version = await promoted(world, 1.0, 1.0)

        async def over() -> bool:
            return (await world.alias()).watched_until is None

        await until(over)
        assert await world.state(version) is VersionState.LIVE
        ended = await newest(world)
        assert (ended.version, ended.move, ended.who) == ("helpdesk@1", "watch_ended", "controller")


async def test_a_person_may_roll_back_while_a_version_is_watched_and_its_runs_decide_nothing_any_more(
    make_world: Callable[..., Any],
) -> None:
    async with make_world(WATCHED) as world:
        version = await world.live()
        before = (await rollback(world.store, version.alias_id)).live_version_id
        assert before is not None
        await judged(world, version, before, 1.0, 0.0)
        await world.rounds(5)
        assert [move.who for move in await list_moves(Project(world.store, "default")) if move.move == "rollback"] == [
            "hand"
        ]
        assert served(world) == "helpdesk@0"

"""Pairs as rows: what a judge is given of two versions' answers, and how it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.engine.answers import EngineAnswer, EngineQuestion
from proxy.engine.replica import Replica
from proxy.gate import behaviour
from proxy.gate.behaviour import BATCH, BehaviourArms, PairWins
from proxy.gate.sanity import AnswerPair
from recorder.capture.recorder import Recorder
from recorder.queue.leases import JUDGE, list_holders
from recorder.registry.versions import get_version
from recorder.settings import LearnSettings, RecorderSettings
from recorder.store.database import Project
from recorder.views.lists.groups import list_groups
from recorder.views.trajectories.transcripts import load_groups
from tests.proxy.controlled import World
from tests.proxy.gate.test_budget import judging
from tests.proxy.until import until

pytestmark = pytest.mark.slow


def answer_of(words: str) -> EngineAnswer:
    return EngineAnswer({"role": "assistant", "content": words}, [1, 2, 3], [7, 8], [-0.5, -0.1], "stop")


def pair(number: int) -> AnswerPair:
    return AnswerPair(
        EngineQuestion([{"role": "user", "content": f"Where is order {number}?"}]), answer_of("New."), answer_of("Old.")
    )


@asynccontextmanager
async def compared(world: World) -> AsyncIterator[BehaviourArms]:
    """A new version beside the base, and a judge that finds all equal."""
    version = await world.live()
    base = await get_version(world.store, version.parent_id or "")
    recorder, replica = Recorder(world.store, RecorderSettings()), Replica(world.engine.url, world.engine.key)
    await recorder.start()
    async with judging(world, LearnSettings()):
        await until(lambda: list_holders(Project(world.store, "default"), JUDGE))
        yield BehaviourArms(world.store, recorder, replica, await world.alias(), version, base)
    await recorder.stop()
    await replica.close()


async def test_a_batch_is_written_at_once_and_each_pair_twice(world: World) -> None:
    won = PairWins(0.4)
    async with compared(world) as arms:
        assert await behaviour.ask_first_turns(arms, [pair(n) for n in range(BATCH)], [], BATCH, won) == ""
        commits = arms.recorder.stats().commits
    assert won.values == [pytest.approx(0.5)] * BATCH
    if world.store.is_sqlite:  # PostgreSQL's look-ups end one after another, and a turn does not wait for the next
        assert commits <= 3, "the first placed alone while the project's key is read, then the others, then all answers"
    assert commits < 2 * BATCH
    ids = [line.id for line in (await list_groups(Project(world.store, "default"), limit=100)).lines]
    groups = await load_groups(world.store, ids)
    assert len(groups) == 2 * BATCH
    words = [[str(run.messages[-1]["content"]) for run in group.members] for group in groups]
    assert all(sorted(pair) == ["New.", "Old."] for pair in words)
    assert {group.version_id for group in groups} == {arms.version.id}, "a judge takes first what is pinned to it"


async def test_pairs_at_hand_are_judged_first_and_no_more_than_wanted_in_all(world: World) -> None:
    at_hand = [pair(n) for n in range(3)]
    async with compared(world) as arms:
        for most, asked in ((2, 0), (5, 2)):
            won, before = PairWins(0.4), len(world.engine.calls)
            await behaviour.ask_first_turns(arms, at_hand, [p.question for p in at_hand], most, won)
            assert len(won.values) == most
            assert len(world.engine.calls) - before == 2 * asked


async def test_further_answers_to_one_first_turn_share_a_batch_after_each_was_asked_once(world: World) -> None:
    asked = [pair(n).question for n in range(8)]
    async with compared(world) as arms:
        before, chats = len(world.engine.calls), world.engine.chats
        await behaviour.ask_first_turns(arms, [], asked, 2 * BATCH, PairWins(0.499))
        assert len(world.engine.calls) - before == 2 * 2 * BATCH
        assert world.engine.chats - chats == 2 * (8 + 3)  # three times two of them, and twice another

"""A thousand rubric verdicts: how many requests are open at once, and that a judge that stumbles loses no run."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiohttp import web
from sqlalchemy import select

from judge.scoring.bench import open_bench
from judge.scoring.worker import JudgeWorker
from judge.settings import JudgeSettings
from recorder.settings import RecorderSettings
from recorder.states import GroupState
from recorder.store.changes import Topic
from recorder.store.database import Store
from recorder.store.schema import groups
from recorder.work import campaigns, scores
from recorder.work.campaigns import Binding, NewScenario
from tests.judge.judge_server import Behaviour, JudgeServer, completion, fails
from tests.judge.recorded import PROJECT, Recorded
from tests.judge.rubric_replies import checked

RUNS, SIZE, AT_ONCE = 1_000, 8, 8
RUBRIC = ["has apple", {"text": "has pear", "weight": 2}, {"text": "has worm", "weight": -1}]
WORDS = ("apple", "pear", "worm", "apple pear", "pear worm", "none", "apple worm", "apple pear worm")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


async def bound_groups(store: Store, recorded: Recorded, count: int) -> list[str]:
    """Groups of a campaign whose one scenario has criteria; no two answers are equal."""
    campaign = await campaigns.create(store, PROJECT, recorded.alias_id, "many", {})
    await campaigns.add_scenarios(store, campaign.id, "train", [NewScenario("task", "Where?", None, RUBRIC)])
    (scenario,) = await campaigns.list_scenarios(store, campaign.id, "train")
    names = [f"g{number}" for number in range(count)]
    bindings = [Binding(name, scenario.id, SIZE) for name in names]
    await campaigns.bind_groups(store, PROJECT, campaign.id, recorded.alias_id, bindings)
    made = [await recorded.group(name, [f"{name} {n}: {word}" for n, word in enumerate(WORDS)]) for name in names]
    return [group_id for group_id, _ in made]


class Counted:
    """A behaviour that counts how many requests are open at once."""

    def __init__(self, then: Behaviour) -> None:
        self._then = then
        self._open = 0
        self.most = 0

    async def __call__(self, body: Any) -> web.StreamResponse:
        self._open += 1
        self.most = max(self.most, self._open)
        for _ in range(20):  # all that would come beside it does
            await asyncio.sleep(0)
        try:
            return await self._then(body)
        finally:
            self._open -= 1


async def judge_all(store: Store, settings: JudgeSettings, group_ids: Sequence[str]) -> float:
    """Run a worker until every group is scored; the seconds that it took, told with those of this processor."""
    stop, began, busy = asyncio.Event(), time.monotonic(), time.process_time()
    async with open_bench(settings, store, PROJECT) as bench:
        working = asyncio.create_task(JudgeWorker(store, PROJECT, bench, RecorderSettings()).run(stop))
        with store.watch.on(Topic.GROUPS) as news:
            while not await _all_scored(store, group_ids):
                await news.wait()
        took_s = time.monotonic() - began
        print(f"{time.process_time() - busy:.1f} s of one processor, the judge's own among them")
        stop.set()
        await working
    return took_s


async def _all_scored(store: Store, group_ids: Sequence[str]) -> bool:
    async with store.read() as conn:
        states = (await conn.execute(select(groups.c.state).where(groups.c.id.in_(group_ids)))).scalars()
        return set(states) == {GroupState.SCORED}


async def given(store: Store, group_ids: Sequence[str]) -> list[scores.NewPart]:
    """The rewards that the runs of the groups were given."""
    written = [(await scores.of_group(store, group_id))[-1] for group_id in group_ids]
    return [part for score in written for part in score.parts if part.part == scores.REWARD]


async def test_a_thousand_verdicts_are_asked_for_eight_at_a_time(
    store: Store, recorded: Recorded, settings: Callable[..., JudgeSettings], server: JudgeServer
) -> None:
    counted = Counted(checked())
    server.behave(counted)
    group_ids = await bound_groups(store, recorded, RUNS // SIZE)
    took_s = await judge_all(store, settings(rewards=[{"kind": "rubric"}], concurrency=AT_ONCE), group_ids)
    print(f"{RUNS} verdicts in {took_s:.1f} s, at most {counted.most} requests at once")
    assert len(server.requests) == RUNS
    assert counted.most == AT_ONCE
    assert all(part.value is not None for part in await given(store, group_ids))


async def test_every_run_is_scored_or_says_why_though_the_judge_stumbles(
    store: Store, recorded: Recorded, settings: Callable[..., JudgeSettings], server: JudgeServer
) -> None:
    draw = random.Random(7)

    async def stumbling(body: Any) -> web.StreamResponse:
        fate = draw.random()
        if fate < 0.2:
            return await fails(429)(body)
        return completion("garbage {") if fate < 0.25 else await checked()(body)

    counted = Counted(stumbling)
    server.behave(counted)
    group_ids = await bound_groups(store, recorded, RUNS // SIZE)
    patient = settings(rewards=[{"kind": "rubric"}], concurrency=AT_ONCE, retries=3)
    took_s = await judge_all(store, patient, group_ids)
    rewards = await given(store, group_ids)
    named = [part for part in rewards if part.value is None]
    print(f"{RUNS} verdicts of a judge that stumbles in {took_s:.1f} s, {len(named)} without one")
    assert len(rewards) == RUNS
    assert counted.most <= AT_ONCE
    assert all("could not be read" in str(part.explanation) for part in named)
    assert len(named) < RUNS / 20

"""Many rubric verdicts: how many requests are open at once, and that a judge that stumbles loses no run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from aiohttp import web

from judge.settings import JudgeSettings
from recorder.queue.judging import scores
from recorder.store.database import Store
from tests.judge.judge_server import Behaviour, JudgeServer, completion, fails
from tests.judge.many import SIZE, bound_groups, judge_all
from tests.judge.recorded import Recorded
from tests.judge.rubric_replies import checked

AT_ONCE = 8

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.parametrize("runs", [80, *(pytest.param(runs, marks=pytest.mark.long) for runs in (200, 1_000))]),
]


class RequestGauge:
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


async def given(store: Store, group_ids: Sequence[str]) -> list[scores.NewPart]:
    """The rewards that the runs of the groups were given."""
    written = [(await scores.list_scores(store, group_id))[-1] for group_id in group_ids]
    return [part for score in written for part in score.parts if part.part == scores.REWARD]


async def test_verdicts_are_asked_for_eight_at_a_time(
    runs: int, store: Store, recorded: Recorded, settings: Callable[..., JudgeSettings], server: JudgeServer
) -> None:
    counted = RequestGauge(checked())
    server.behave(counted)
    group_ids = await bound_groups(store, recorded, runs // SIZE)
    took = await judge_all(store, settings(rewards=[{"kind": "rubric"}], concurrency=AT_ONCE), group_ids)
    print(f"{runs} verdicts in {took.wall_s:.1f} s, {took.cpu_s:.1f} s of a processor, the judge's own among them")
    assert len(server.requests) == runs
    assert counted.most == AT_ONCE
    assert all(part.value is not None for part in await given(store, group_ids))


async def test_every_run_is_scored_or_says_why_though_the_judge_stumbles(
    runs: int, store: Store, recorded: Recorded, settings: Callable[..., JudgeSettings], server: JudgeServer
) -> None:
    draw = random.Random(7)

    async def stumbling(body: Any) -> web.StreamResponse:
        fate = draw.random()
        if fate < 0.2:
            return await fails(429)(body)
        return completion("garbage {") if fate < 0.25 else await checked()(body)

    counted = RequestGauge(stumbling)
    server.behave(counted)
    group_ids = await bound_groups(store, recorded, runs // SIZE)
    patient = settings(rewards=[{"kind": "rubric"}], concurrency=AT_ONCE, retries=3)
    took = await judge_all(store, patient, group_ids)
    rewards = await given(store, group_ids)
    named = [part for part in rewards if part.value is None]
    print(f"{runs} verdicts of a judge that stumbles in {took.wall_s:.1f} s, {len(named)} without one")
    assert len(rewards) == runs
    assert counted.most <= AT_ONCE
    assert all("could not be read" in str(part.explanation) for part in named)
    assert len(named) < runs / 20

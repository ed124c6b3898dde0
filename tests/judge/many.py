"""Many groups with rubrics, and a worker that judges them: what a thousand verdicts are tested and measured with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from judge.scoring.setup import open_judge_context
from judge.scoring.worker import JudgeWorker
from judge.settings import JudgeSettings
from recorder.queue import campaigns
from recorder.queue.campaigns import GroupBinding, NewScenario
from recorder.settings import RecorderSettings
from recorder.states import GroupState
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.store.schema import groups
from tests.judge.recorded import PROJECT, Recorded

RUBRIC = ["has apple", {"text": "has pear", "weight": 2}, {"text": "has worm", "weight": -1}]
WORDS = ("apple", "pear", "worm", "apple pear", "pear worm", "none", "apple worm", "apple pear worm")
SIZE = len(WORDS)  # of a group


@dataclass(frozen=True, slots=True)
class Took:
    """How long it took: by the clock, and of this process's share of the processors."""

    wall_s: float
    cpu_s: float


async def bound_groups(store: Store, recorded: Recorded, count: int) -> list[str]:
    """Groups of a campaign whose one scenario has criteria; no two answers are equal."""
    campaign = await campaigns.create_campaign(Project(store, PROJECT), recorded.alias_id, "many", {})
    await campaigns.add_scenarios(store, campaign.id, "train", [NewScenario("task", "Where?", None, RUBRIC)])
    (scenario,) = await campaigns.list_scenarios(store, campaign.id, "train")
    names = [f"g{number}" for number in range(count)]
    bindings = [GroupBinding(name, scenario.id, SIZE) for name in names]
    await campaigns.bind_groups(Project(store, PROJECT), campaign.id, recorded.alias_id, bindings)
    made = [await recorded.group(name, [f"{name} {n}: {word}" for n, word in enumerate(WORDS)]) for name in names]
    return [group_id for group_id, _ in made]


async def judge_all(store: Store, settings: JudgeSettings, group_ids: Sequence[str]) -> Took:
    """Run a worker until every group is scored. What the judge model needs is imported before the clock runs."""
    stop = asyncio.Event()
    async with open_judge_context(settings, Project(store, PROJECT)) as context:
        began, busy = time.monotonic(), time.process_time()
        working = asyncio.create_task(JudgeWorker(Project(store, PROJECT), context, RecorderSettings()).run(stop))
        with store.watch.on(Topic.GROUPS) as news:
            while not await _all_scored(store, group_ids):
                await news.wait()
        took = Took(time.monotonic() - began, time.process_time() - busy)
        stop.set()
        await working
    return took


async def _all_scored(store: Store, group_ids: Sequence[str]) -> bool:
    async with store.read() as conn:
        states = (await conn.execute(select(groups.c.state).where(groups.c.id.in_(group_ids)))).scalars()
        return set(states) == {GroupState.SCORED}

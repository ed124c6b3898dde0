"""A campaign whose judge goes astray: the strong one beside it notices, scores in its place, and hands back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from itertools import groupby
from pathlib import Path

import pytest
from aiohttp import web
from sqlalchemy import select

from judge.settings import JudgeSettings
from recorder.queue import campaigns, leases
from recorder.queue.judging import switches
from recorder.store.database import Project
from recorder.store.schema import groups, scores
from recorder.views.campaigns.events import Alarm, SettingChanged, StepDone
from recorder.views.campaigns.history import read_history
from tests.judge.judge_server import Json, JudgeServer, last_text, serve, verdicts
from tests.trainer.campaign.conftest import RingOf
from tests.trainer.ring import PROJECT, RecordedProgress, Ring, Script, write_user_folder
from trainer.progress import Event

pytestmark = pytest.mark.slow

CHEAP, STRONG = "openai/cheap", "openai/strong"
ASTRAY_AFTER, BACK_AFTER, STEPS = 2, 6, 12  # steps
GROUPS_A_STEP, WINDOW = 4, 10


class Judges(RecordedProgress):
    """Two judge models in one server. After some steps the cheap one pays for the worse answers, for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.astray = False

    def tell(self, event: Event) -> None:
        super().tell(event)
        if isinstance(event, StepDone):
            self.astray = ASTRAY_AFTER <= len(self.steps()) < BACK_AFTER

    async def __call__(self, body: Json) -> web.StreamResponse:
        opposite = self.astray and body["model"] == "cheap"
        return await verdicts(lambda document: float(last_text(document).startswith("answer") != opposite))(body)


@pytest.fixture
async def server() -> AsyncIterator[JudgeServer]:
    async with serve() as running:
        yield running


async def scored_by(ring: Ring) -> list[str]:
    """Whose scores the campaign's groups have, in the order of their scoring."""
    query = select(scores.c.judge_model).select_from(groups.join(scores, groups.c.current_score_id == scores.c.id))
    async with ring.store.read() as conn:
        return list((await conn.execute(query.order_by(scores.c.created_at, scores.c.id))).scalars())


async def present(ring: Ring) -> None:
    """Wait for the judge: what it asks models with takes seconds to load, and a campaign would start another one."""
    while not await leases.list_holders(Project(ring.store, PROJECT), "judge:"):
        await asyncio.sleep(0.05)


async def test_a_judge_that_goes_astray_is_replaced_and_comes_back(
    ring_of: RingOf, server: JudgeServer, tmp_path: Path
) -> None:
    user = write_user_folder(tmp_path / "user", train=GROUPS_A_STEP * STEPS)  # none twice: a judge's reply is kept
    told = Judges()
    server.behave(told)
    strong = {"model": STRONG, "api_base": server.url, "every": 1, "min_agreement": 0.2, "window": WINDOW}
    judge = JudgeSettings.model_validate({"model": CHEAP, "api_base": server.url, "strong": strong})
    async with ring_of(Script(worker=judge, skill=lambda number: 0.5)) as ring:
        await present(ring)
        settings = user | {"scenarios_per_step": GROUPS_A_STEP, "steps": STEPS, "val_scenarios": None, "name": "mine"}
        ended = await ring.train(settings, told, judge=judge)
        assert (ended.reason, ended.steps) == ("steps", STEPS)
        by = [(model, len(list(some))) for model, some in groupby(await scored_by(ring))]
        (campaign,) = await campaigns.list_campaigns(Project(ring.store, PROJECT))
        history = await read_history(ring.store, campaign)
        newest = await switches.current_switch(Project(ring.store, PROJECT), "helpdesk", "default")
    assert [model for model, _ in by] == [CHEAP, STRONG, CHEAP]
    assert sum(count for _, count in by) == GROUPS_A_STEP * STEPS
    # Nine of ten groups about which both differ are enough, and all that were in hand by then had their judge already.
    wrong = by[0][1] - GROUPS_A_STEP * ASTRAY_AFTER
    assert WINDOW - 1 <= wrong <= WINDOW - 1 + GROUPS_A_STEP
    assert newest is not None
    assert (newest.number, newest.reason) == (2, switches.AGREES)
    away, back = [event for event in told.events if isinstance(event, SettingChanged) and event.what == "judge_changed"]
    assert away.step == 5
    assert back.step == 9
    assert history.one_judge_from == back.step + 1  # no figure of before is averaged with one of after
    alarms = [event for event in told.events if isinstance(event, Alarm) and event.rule == "judge_drift"]
    assert alarms
    assert {event.then for event in alarms} == {"note"}
    assert all("the strong judge scores" in event.detail for event in alarms)
    in_place = [step.metrics["health.strong_scores"] for step in history.steps]
    assert [share for share, _ in groupby(in_place)] == [0, 1, 0]

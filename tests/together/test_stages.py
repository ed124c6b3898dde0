"""What learning waits for is one sentence on every face, and what the learner goes by is what they show."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from rich.console import Console

from proxy.settings.hone import HoneSettings
from proxy.supervision.console import EventPrinter, choose_output
from recorder.queue import leases
from recorder.queue.training import steps
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import LearnSettings, RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.views.status.stage_facts import read_stages
from recorder.views.status.stages import LoopSettings, Stage
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.hone_command import hone
from tests.proxy.running import PROJECT, serving
from tests.proxy.until import until
from tests.recorder.rows import Rows
from tests.trainer.ring import ScriptedTrainer
from trainer.progress import LineProgress
from trainer.runtime.learner import Learner, StepSchedule
from trainer.settings import TrainerSettings

pytestmark = pytest.mark.slow


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "data", RecorderSettings(), migrate=True)
    yield opened
    await opened.close()


async def test_closed_hours_are_told_with_the_same_sentence_everywhere(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("proxy.supervision.console.BATCH_S", 0.01)
    begin, end = (f"{datetime.now() + timedelta(hours=hours):%H:%M}" for hours in (2, 3))
    (tmp_path / "hone.toml").write_text(f'[learn]\nhours = "{begin}-{end}"\n')
    learn = LearnSettings(hours=f"{begin}-{end}")
    text = f"Learning is paused: [learn] hours allow it from {begin} to {end}. It resumes at {begin}."
    rows, out = Rows(store), io.StringIO()
    async with FakeEngine() as engine, serving(store, engine, learn=learn) as proxy:
        await rows.scored_group(alias_id=proxy.alias.id, version_id=proxy.alias.live_version_id)
        assert text in (await proxy.http.get("/hone/")).text
        assert text in (await proxy.http.get("/hone/training")).text
        for path in ("status", "training"):
            stages = (await proxy.http.get(f"/hone/v1/{path}")).json()["stages"]
            [learning] = [one for one in stages if one["stage"] == "learning"]
            assert (learning["code"], learning["text"], learning["alias"]) == ("hours", text, "helpdesk")
            assert learning["until"] is not None
    status = await asyncio.to_thread(hone, "status", "--data", str(tmp_path / "data"))
    assert text in " ".join(status[1].split())
    as_json = await asyncio.to_thread(hone, "status", "--json", "--data", str(tmp_path / "data"))
    assert text in [one["text"] for one in json.loads(as_json[1])["stages"]]

    console = Console(file=out, width=400, soft_wrap=True)
    follower = SettingsFollower(Project(store, PROJECT), HoneSettings(learn=learn))
    patience = StepSchedule(store, proxy.alias, TrainerSettings(), follower)
    trainer = ScriptedTrainer(store, proxy.alias)
    learner = Learner(store, proxy.alias, TrainerSettings(), trainer, LineProgress(console), patience)
    up = EventPrinter(Project(store, PROJECT), follower, choose_output(console, as_json=False))
    tasks = [asyncio.create_task(learner.run()), asyncio.create_task(up.run())]
    await until(lambda: out.getvalue().count(text) == 2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert text in out.getvalue().splitlines()


@pytest.mark.parametrize("hours", [None, "closed"])
@pytest.mark.parametrize("steps_per_hour", [None, 1])
async def test_the_learner_goes_by_what_is_shown(hours: str | None, steps_per_hour: int | None, store: Store) -> None:
    begin, end = (f"{datetime.now() + timedelta(hours=hours):%H:%M}" for hours in (2, 3))
    learn = LearnSettings(hours=f"{begin}-{end}" if hours else None, steps_per_hour=steps_per_hour)
    trainer, recorder, rows = TrainerSettings(min_groups=2), RecorderSettings(), Rows(store)
    alias = await rows.alias()
    assert await leases.acquire_lease(Project(store, PROJECT), leases.trainer_lease(alias.name), "here", 60)
    assert alias.live_version_id is not None
    follower = SettingsFollower(Project(store, PROJECT), HoneSettings(learn=learn))
    patience = StepSchedule(store, alias, trainer, follower)
    due = []
    for _ in range(3):
        shown = await read_stages(Project(store, PROJECT), LoopSettings(recorder, learn, trainer))
        [stage] = [one for one in shown if one.stage is Stage.LEARNING]
        looked = await patience.look()
        assert (looked.status.code, looked.status.text) == (stage.code, stage.text)
        assert (looked.due_in_s == 0) == (stage.code == "step_due") == looked.is_step_due
        due.append(looked.is_step_due)
        await rows.scored_group(alias_id=alias.id)
    assert due == [False, False, hours is None]
    await steps.begin_step(store, alias.id, alias.live_version_id)  # counts within the hour from now on
    assert (await patience.look()).is_step_due == (hours is None and steps_per_hour is None)

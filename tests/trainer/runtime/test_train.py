"""What `hone train` puts together: the trainer, which is opened by name, and trackers of the campaign."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from proxy.settings.hone import HoneSettings
from proxy.settings.sections import EngineSettings
from recorder.queue import leases
from recorder.store.database import Project
from recorder.views.campaigns.events import CampaignEnded
from tests.trainer.ring import RecordedProgress, Ring, Script, write_user_folder
from tests.trainer.runtime.test_learner import until
from tests.trainer.world import PROJECT, World
from trainer.runtime.resolved_settings import trainer_settings
from trainer.runtime.train import open_trainer
from trainer.settings import TrainerSettings
from trainer.step.alias_trainer import AliasTrainer
from trainer.track_settings import TrackSettings


def test_the_trainer_has_the_context_of_the_engine() -> None:
    engine = EngineSettings(base="base", max_model_len=100)
    assert trainer_settings(HoneSettings(engine=engine)).max_model_len == 100
    engine = engine.model_copy(update={"args": ["--max-model-len", "200"]})
    assert trainer_settings(HoneSettings(engine=engine)).max_model_len == 200
    own = TrainerSettings(max_model_len=300)
    assert trainer_settings(HoneSettings(engine=engine, trainer=own)).max_model_len == 300


async def test_the_trainer_is_opened_on_the_engines_base(tmp_path: Path, tiny_base: Path) -> None:
    engine = EngineSettings(base=str(tiny_base), dtype="float32")
    settings = HoneSettings(data=tmp_path / "data", engine=engine, trainer=TrainerSettings(rank=4))
    async with World.opened(settings.data, tiny_base) as world:
        opened = await open_trainer(world.store, world.alias, settings)
        assert isinstance(opened, AliasTrainer)
        (held,) = await leases.list_holders(Project(world.store, PROJECT), "trainer:")
        assert held.owner == opened.owner
        await opened.close()


def figures(folder: Path, name: str) -> list[int]:
    (run,) = folder.iterdir()
    found = EventAccumulator(str(run), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return [one.step for one in found.Scalars(name)]


@pytest.mark.slow
async def test_a_tracked_campaign_that_is_gone_on_with_is_one_run_with_every_step_once(tmp_path: Path) -> None:
    data, user = tmp_path / "data", write_user_folder(tmp_path / "user") | {"steps": 4}
    track = TrackSettings(tensorboard=tmp_path / "runs")
    async with Ring.running(data, Script()) as ring:
        first = RecordedProgress()
        running = asyncio.create_task(ring.train(user, first, track=track))
        await until(lambda: _steps_or_the_end(first, 2, running))
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await ring.train(user, RecordedProgress(), track=track)
    assert figures(tmp_path / "runs", "step/reward") == [1, 2, 3, 4]
    assert figures(tmp_path / "runs", "val/reward") == [0, 4]
    assert figures(tmp_path / "runs", "end/trained") == [4]
    assert b"sample/" not in b"".join(file.read_bytes() for file in (tmp_path / "runs").glob("*/*"))


@pytest.mark.slow
async def test_transcripts_are_sent_where_that_is_asked_for(tmp_path: Path) -> None:
    data, user = tmp_path / "data", write_user_folder(tmp_path / "user") | {"steps": 1}
    track = TrackSettings(tensorboard=tmp_path / "runs", samples=True)
    async with Ring.running(data, Script()) as ring:
        await ring.train(user, RecordedProgress(), track=track)
    (run,) = (tmp_path / "runs").iterdir()
    found = EventAccumulator(str(run))
    found.Reload()
    (highest,) = found.Tensors("sample/highest")
    assert highest.step == 1
    assert b"user: train " in highest.tensor_proto.string_val[0]


async def _steps_or_the_end(told: RecordedProgress, count: int, running: asyncio.Task[CampaignEnded]) -> bool:
    return len(told.steps()) >= count or running.done()

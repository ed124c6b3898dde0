"""What `hone train` and `hone learn` open by name: the trainer, which no import shows."""

from __future__ import annotations

from pathlib import Path

from proxy.settings.hone import HoneSettings
from proxy.settings.sections import EngineSettings
from recorder.holding import leases
from tests.trainer.world import PROJECT, World
from trainer.programs.train import open_trainer
from trainer.settings import TrainerSettings
from trainer.step.alias_trainer import AliasTrainer


async def test_the_trainer_is_opened_on_the_engines_base(tmp_path: Path, tiny_base: Path) -> None:
    engine = EngineSettings(base=str(tiny_base), dtype="float32")
    settings = HoneSettings(data=tmp_path / "data", engine=engine, trainer=TrainerSettings(rank=4))
    async with World.opened(settings.data, tiny_base) as world:
        opened = await open_trainer(world.store, world.alias, settings)
        assert isinstance(opened, AliasTrainer)
        (held,) = await leases.holders(world.store, PROJECT, "trainer:")
        assert held.owner == opened.owner
        await opened.close()

"""Every example's settings for a real model on one GPU: the trainer has room beside the engine, and adapters fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.running import seeds
from examples.running.table import EXAMPLES
from proxy.settings.loader import load_settings


@pytest.mark.parametrize("name", seeds.named())
def test_engine_and_trainer_fit_one_gpu(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONE_MCP__SERVER__URL", "http://127.0.0.1:9000/mcp")
    config = EXAMPLES / name / "gpu.toml"
    settings, small = (load_settings(file, {}).settings for file in (config, config.with_name("hone.toml")))
    share = settings.engine.gpu_memory_utilization
    assert share is not None, "vLLM would take 92 % of the GPU, and leave nothing to the trainer"
    assert share <= 0.6
    assert settings.trainer.rank <= settings.engine.max_lora_rank
    assert settings.trainer.lr < small.trainer.lr / 10  # a tiny model takes a hundred times the rate of a large one
    assert settings.engine.base
    assert not Path(settings.engine.base).exists()
    assert settings.campaign.agent == small.campaign.agent
    assert settings.campaign.success == small.campaign.success
    assert list(settings.aliases) == list(small.aliases)

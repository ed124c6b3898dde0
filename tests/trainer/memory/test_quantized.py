"""Plans with `trainer.quantize`: the bytes of the copy, what fits with it and without, and the settings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from benchmarks.gpu_step import _QWEN, BASES
from proxy.cli import cli
from recorder.models.base_model import ModelProfile, read_base_model
from trainer.errors import UnsupportedModel
from trainer.memory.cards import Card
from trainer.memory.needs import GIB, EngineFacts
from trainer.memory.plan import Plan
from trainer.memory.planner import make_plan, plan_without_quantize
from trainer.memory.step_memory import measure_step
from trainer.quantization.layers import quantize_layers
from trainer.quantization.nf4 import Nf4Linear
from trainer.settings import TrainerSettings

VALUES = _QWEN | BASES["small"] | {"num_hidden_layers": 3, "vocab_size": 4096}
WIDE = VALUES | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 24}


@pytest.fixture
def wide(tmp_path: Path) -> ModelProfile:
    """A base whose linear layers are most of it, known by its config.json alone."""
    (tmp_path / "config.json").write_text(json.dumps(WIDE))
    return read_base_model(tmp_path, needs_weights=False)


def planned(profile: ModelProfile, gib: float, quantize: str | None, tokens: int = 2048) -> Plan:
    settings = TrainerSettings.model_validate({"token_budget": tokens, "quantize": quantize})
    return make_plan(profile, Card(f"{gib:g} GiB", gib), settings, EngineFacts())


def tensors(model: nn.Module) -> Iterator[torch.Tensor]:
    yield from model.parameters()
    yield from model.buffers()


def test_the_plans_bytes_of_the_base_are_those_of_a_loaded_copy() -> None:
    found = measure_step(VALUES, TrainerSettings(quantize="nf4"), 256)
    with torch.device("meta"):
        empty = AutoModelForCausalLM.from_config(AutoConfig.for_model(**VALUES), dtype=torch.bfloat16)
    model = empty.to_empty(device="cpu")
    model.tie_weights()
    nn.init.normal_(model.get_input_embeddings().weight)
    for layer in model.modules():
        if isinstance(layer, nn.Linear):
            nn.init.normal_(layer.weight, std=0.02)
    quantize_layers(model, torch.device("cpu"))
    assert found.base == sum({id(one): one.numel() * one.itemsize for one in tensors(model)}.values())
    assert any(isinstance(module, Nf4Linear) for module in model.modules())


def test_with_a_copy_the_engine_still_serves_the_base() -> None:
    copy, plain = (measure_step(VALUES, TrainerSettings(quantize=one), 256) for one in ("nf4", None))
    assert copy.plain_base == plain.plain_base == plain.base
    assert copy.base < plain.base
    assert (copy.lora, copy.optimizer, copy.flops) == (plain.lora, plain.optimizer, plain.flops)
    # what both hold beside the base differs at most by the plain weights of the largest layer, twice
    largest = 2 * 2 * VALUES["hidden_size"] * VALUES["intermediate_size"]
    assert abs((copy.held - copy.base) - (plain.held - plain.base)) <= largest


def test_what_does_not_fit_as_it_is_and_would_as_a_copy_is_said_to(wide: ModelProfile) -> None:
    engine = planned(wide, 1000, None).chosen.engine.least
    needs = [planned(wide, 1000, one).chosen.trainer.total for one in ("nf4", None)]
    assert needs[0] < 0.8 * needs[1]
    gib = (engine + sum(needs) / 2) / GIB
    plain, copy = planned(wide, gib, None), planned(wide, gib, "nf4")
    assert (plain.fits, copy.fits) == (False, True)
    assert any(one.startswith('trainer.quantize = "nf4"') for one in plain.nearest)
    values = copy.setting_values(copy.chosen)
    assert values["trainer.quantize"] == "nf4"
    assert "trainer.quantize" not in planned(wide, 1000, None).setting_values(plain.chosen)
    assert "on a copy in nf4" in copy.sentence
    assert copy.host_bytes >= copy.base.high.plain_base  # the base itself is loaded first
    without = plan_without_quantize(copy, None)
    assert without is not None
    assert (without.fits, without.chosen.trainer.total) == (False, plain.chosen.trainer.total)
    assert plan_without_quantize(plain, None) is None


def test_the_command_shows_both(wide: ModelProfile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hone.toml").write_text('[trainer]\nquantize = "nf4"\ntoken_budget = 2048\n')
    argv = ["plan", "--model", str(tmp_path), "--gpu", "80"]
    said = CliRunner().invoke(cli, argv, catch_exceptions=False).output
    assert "Without trainer.quantize it fits too: the trainer needs" in said
    answer = json.loads(CliRunner().invoke(cli, [*argv, "--json"], catch_exceptions=False).output)
    assert answer["without_quantize"]["fits"] is True
    assert answer["without_quantize"]["base"] == answer["trainer"]["plain_base"] > answer["trainer"]["base"]


def test_a_base_that_is_quantised_already_has_no_plan(wide: ModelProfile) -> None:
    config = {**wide.config, "quantization_config": {"quant_method": "mxfp4"}}
    with pytest.raises(UnsupportedModel, match="are quantised by mxfp4: leave"):
        planned(replace(wide, config=config, quantization="mxfp4"), 80, "nf4")

"""The language model of a base is loaded as the whole model computes it: a part, dequantised, and never with gaps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForImageTextToText, PreTrainedModel

from benchmarks.families.catalog import find_family, write_model
from benchmarks.families.plain_text import text_logits
from trainer.errors import UnsupportedModel
from trainer.policy.base_model import load_policy
from trainer.policy.text_model import load_text_model
from trainer.settings import TrainerSettings

IDS = torch.arange(3, 60)[None]
SETTINGS = TrainerSettings(device="cpu", rank=4, alpha=8.0, token_budget=128)
WITH_IMAGES = ("Gemma 3", "Gemma 4", "Llama 4", "Mistral 3", "Qwen3.5", "Qwen3.5-MoE")


def load(base: Path) -> PreTrainedModel:
    return load_text_model(base, AutoConfig.from_pretrained(base), torch.float32)


def weights(base: Path) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in load(base).named_parameters()}


@torch.no_grad()
@pytest.mark.parametrize("name", WITH_IMAGES)
def test_a_part_computes_what_the_whole_does_and_brings_no_tower(name: str, tmp_path: Path) -> None:
    base = write_model(find_family(f"{name} with images"), tmp_path)
    whole = AutoModelForImageTextToText.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    part = load(base)
    torch.testing.assert_close(part(input_ids=IDS).logits, text_logits(whole, IDS), atol=1e-6, rtol=0)
    assert not [name for name, _ in part.named_parameters() if "vision" in name or "visual" in name]


def test_an_adapter_s_file_names_the_part_as_the_whole_model_does(tmp_path: Path) -> None:
    base = write_model(find_family("Gemma 3 with images"), tmp_path)
    policy = load_policy(base, SETTINGS)
    assert all(name.startswith("base_model.model.model.language_model.layers.") for name in policy.parameters)
    policy.load_state(policy.state())


def test_weights_that_are_missing_are_not_random(tmp_path: Path) -> None:
    base = write_model(find_family("Qwen3"), tmp_path)
    tensors = load_file(base / "model.safetensors")
    del tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnsupportedModel, match=r"1 tensors .*layers\.1\.mlp\.up_proj"):
        load_policy(base, SETTINGS)


def test_fp8_weights_become_the_numbers_that_they_stand_for(tmp_path: Path) -> None:
    base = write_model(find_family("Qwen3 in FP8"), tmp_path)
    tensors = load_file(base / "model.safetensors")
    name = "model.layers.0.mlp.down_proj.weight"
    assert tensors[name].dtype == torch.float8_e4m3fn
    assert tensors[f"{name}_scale_inv"].shape == (1, 1)
    found = weights(base)
    expected = tensors[name].float() * tensors[f"{name}_scale_inv"]
    torch.testing.assert_close(found[name], expected, atol=0, rtol=1e-6)
    assert {one.dtype for one in found.values()} == {torch.float32}


def test_fp8_blocks_that_do_not_divide_a_weight_are_refused(tmp_path: Path) -> None:
    """Of 128 x 64 numbers in blocks of 48 x 48, transformers would make blocks of 42.7 x 32."""
    base = write_model(find_family("Qwen3 in FP8"), tmp_path)
    config = json.loads((base / "config.json").read_text())
    config["quantization_config"]["weight_block_size"] = [48, 48]
    (base / "config.json").write_text(json.dumps(config))
    tensors = load_file(base / "model.safetensors")
    tensors["model.layers.0.self_attn.q_proj.weight_scale_inv"] = torch.ones(3, 2)
    save_file(tensors, base / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UnsupportedModel, match=r"blocks of 48 x 48 that do not divide .*q_proj\.weight"):
        load_policy(base, SETTINGS)


def test_mxfp4_weights_become_the_numbers_that_they_stand_for(tmp_path: Path) -> None:
    plain = weights(write_model(find_family("gpt-oss"), tmp_path / "plain"))
    found = weights(write_model(find_family("gpt-oss in MXFP4"), tmp_path / "packed"))
    name = "model.layers.0.mlp.experts.down_proj"
    assert found[name].dtype == torch.float32
    # 4-bit floats: half of the largest step, which is a third of the value, and a scale of at most twice the need
    difference = (found[name] - plain[name]).abs()
    assert float(difference.max()) <= float(plain[name].abs().max()) / 6 * 1.01
    assert 0.01 < float(difference.mean() / plain[name].abs().mean()) < 0.2
    torch.testing.assert_close(found["model.norm.weight"], plain["model.norm.weight"])


def test_a_base_whose_parts_are_named_in_an_unknown_way_is_refused(tmp_path: Path) -> None:
    base = write_model(find_family("Qwen2.5-VL"), tmp_path)
    with pytest.raises(UnsupportedModel, match="reads more than text"):
        load_policy(base, SETTINGS)

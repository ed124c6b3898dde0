"""A merged model computes through plain transformers what the trainer computes with the adapter."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.trainer.building import random_ids
from tests.trainer.families import DENSE, MIXTURES, save_family
from tests.trainer.lora.test_file_layout import ORIGIN, RANK, SETTINGS
from trainer.artifacts import adapters, merge
from trainer.artifacts.adapters import WEIGHTS, LoraShape
from trainer.errors import AdapterInvalid
from trainer.lora.file_layout import ExpertLayout
from trainer.policy.base_model import add_lora, first_architecture, read_config
from trainer.policy.model import Policy
from trainer.policy.startup_check import random_state

ROW = random_ids(40, 3)


def trained(base: Path, data: Path) -> tuple[Policy, Path]:
    """A policy with a LoRA that is not zero, and the folder in which it is published."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32, attn_implementation="eager")
    architecture = first_architecture(read_config(base))
    policy = Policy(add_lora(model, base, SETTINGS, architecture), str(base), SETTINGS)
    policy.set_attention("eager")
    state = random_state(policy, 9)
    policy.load_state(state)
    shapes = {name: tuple(tensor.shape) for name, tensor in state.items()}
    lora = LoraShape(RANK, 8.0, policy.modules, ExpertLayout.of(architecture, RANK))
    return policy, adapters.publish_adapter(data, ORIGIN, lora, state, shapes, {}).path


@pytest.mark.parametrize("family", [*MIXTURES, *DENSE])
def test_base_plus_adapter_gives_the_trainer_s_logprobs(family: str, tmp_path: Path) -> None:
    base = save_family(family, tmp_path / "base")
    policy, adapter = trained(base, tmp_path / "adapters")
    (base / "tokenizer_config.json").write_text("{}")
    merge.merge_adapter(base, adapter, tmp_path / "merged")
    assert (
        json.loads((tmp_path / "merged" / "config.json").read_text())["architectures"]
        == read_config(base)["architectures"]
    )
    assert (tmp_path / "merged" / "tokenizer_config.json").read_text() == "{}"
    plain = AutoModelForCausalLM.from_pretrained(
        tmp_path / "merged", dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    with torch.no_grad():
        expected = policy.own_logits(np.array(ROW, np.int32)).log_softmax(-1)
        found = plain(input_ids=torch.tensor([ROW])).logits[0].log_softmax(-1)
        with policy.base_only():
            before = policy.own_logits(np.array(ROW, np.int32)).log_softmax(-1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert (expected - before).abs().max() > 0.1


def test_a_merged_mixture_has_the_checkpoint_s_names(tmp_path: Path) -> None:
    base = save_family("mixtral", tmp_path / "base")
    _, adapter = trained(base, tmp_path / "adapters")
    merge.merge_adapter(base, adapter, tmp_path / "merged")
    names = [set(load_file(folder / "model.safetensors")) for folder in (base, tmp_path / "merged")]
    assert names[0] == names[1]
    assert "model.layers.0.block_sparse_moe.experts.0.w1.weight" in names[1]


def test_an_adapter_of_another_base_is_not_merged(tmp_path: Path) -> None:
    base = save_family("qwen3-moe", tmp_path / "base")
    _, adapter = trained(base, tmp_path / "adapters")
    with pytest.raises(AdapterInvalid, match=r"no module model\.layers\.0\.mlp\.experts"):
        merge.merge_adapter(save_family("llama3", tmp_path / "other"), adapter, tmp_path / "merged")
    with (adapter / WEIGHTS).open("ab") as file:
        file.write(b" ")
    with pytest.raises(AdapterInvalid, match="sha256 differs"):
        merge.merge_adapter(base, adapter, tmp_path / "merged")

"""A base that the trainer cannot compute is refused when it is loaded, on rows of every length that matters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Phi3Config, Phi3ForCausalLM, Qwen3Config
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3ForCausalLM

from tests.trainer.building import random_ids, trained_row
from trainer.batch.packing import pack
from trainer.batch.weights import WeightedRow
from trainer.errors import TrainerError, UnsupportedModel
from trainer.policy import startup_check
from trainer.policy.base_model import load_policy, resolve_base
from trainer.policy.model import Policy
from trainer.policy.positions import critical_lengths
from trainer.policy.update import plan_update
from trainer.settings import TrainerSettings

ORIGINAL = 64
SHAPE: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
    "intermediate_size": 96, "vocab_size": 64, "initializer_range": 0.1, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "max_position_embeddings": 512,
}  # fmt: skip
SETTINGS = TrainerSettings(device="cpu", rank=4, alpha=8.0, token_budget=512)
SCALED = {"factor": 4.0, "original_max_position_embeddings": ORIGINAL}
FIXED: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", **SCALED},
    "llama3": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **SCALED},
}


def saved(model: Any, folder: Path) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = model()
    model.save_pretrained(folder)
    return folder


def llama(folder: Path, **changes: Any) -> Path:
    return saved(lambda: LlamaForCausalLM(LlamaConfig(**{**SHAPE, **changes})), folder)


def phi3(folder: Path) -> Path:
    factors = {"short_factor": [1.0] * 6, "long_factor": [2.0] * 6}
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, **factors}
    config = Phi3Config(**SHAPE, original_max_position_embeddings=ORIGINAL, rope_parameters=rope)
    return saved(lambda: Phi3ForCausalLM(config), folder)


def gemma3(folder: Path, **ropes: dict[str, Any]) -> Path:
    given = {"rope_type": "default", "rope_theta": 10000.0}
    both = {kind: ropes.get(kind, given) for kind in ("sliding_attention", "full_attention")}
    config = Gemma3TextConfig(
        **SHAPE, sliding_window=32, rope_parameters=both, layer_types=["sliding_attention", "full_attention"]
    )
    return saved(lambda: Gemma3ForCausalLM(config), folder)


@pytest.mark.parametrize("rope", FIXED)
def test_rows_of_every_length_are_computed_as_alone_where_positions_are_fixed(tmp_path: Path, rope: str) -> None:
    policy = load_policy(llama(tmp_path, rope_parameters={"rope_theta": 10000.0, **FIXED[rope]}), SETTINGS)
    assert not policy.alone
    policy.load_state(startup_check.random_state(policy, 3))
    shared = random_ids(20, 0)
    rows = [np.array(shared + random_ids(length, length), np.int32) for length in (10, ORIGINAL + 100, 30)]
    for one in pack(rows, 512):
        hidden = policy.hidden(one)
        for index, places in zip(one.rows, one.places, strict=True):
            expected = _own(policy, rows[index])
            torch.testing.assert_close(hidden[torch.from_numpy(places)].detach(), expected, atol=1e-4, rtol=1e-4)


def _own(policy: Policy, row: np.ndarray) -> torch.Tensor:
    policy.set_attention("eager")
    try:
        return policy.own_hidden(row)
    finally:
        policy.set_attention("hone_packed")


def test_positions_that_depend_on_the_longest_row_are_refused_by_name(tmp_path: Path) -> None:
    dynamic = llama(tmp_path / "dynamic", rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4})
    nested = gemma3(tmp_path / "nested", full_attention={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4})
    for folder, name in ((dynamic, "dynamic"), (nested, "dynamic"), (phi3(tmp_path / "longrope"), "longrope")):
        with pytest.raises(UnsupportedModel, match=f"'{name}'") as told:
            load_policy(folder, SETTINGS)
        assert str(folder) in str(told.value)


def test_an_old_configuration_s_positions_are_refused_too(tmp_path: Path) -> None:
    folder = phi3(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_scaling"] = {"type": "su", **{k: v for k, v in rope.items() if k.endswith("_factor")}}
    config["rope_scaling"]["original_max_position_embeddings"] = ORIGINAL
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match=r"'(su|longrope)'"):
        load_policy(folder, SETTINGS)


def test_a_configuration_that_transformers_refuses_is_told_with_its_folder(tmp_path: Path) -> None:
    folder = phi3(tmp_path)
    config = json.loads((folder / "config.json").read_text())
    del config["rope_parameters"]["long_factor"]
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(TrainerError, match=str(folder)):
        load_policy(folder, SETTINGS)


def test_the_lengths_that_matter_are_read_from_every_place(tmp_path: Path) -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": ORIGINAL}
    assert critical_lengths(LlamaConfig(**SHAPE, rope_parameters=yarn)) == [ORIGINAL]
    assert critical_lengths(LlamaConfig(**SHAPE)) == []
    policy = load_policy(gemma3(tmp_path, full_attention=yarn), SETTINGS)
    assert critical_lengths(policy.model_config) == [32, ORIGINAL]
    assert critical_lengths(Qwen3Config(**SHAPE, sliding_window=16)) == []  # not used
    assert critical_lengths(Qwen3Config(**SHAPE, sliding_window=16, use_sliding_window=True)) == [16]


@pytest.mark.parametrize("budget", [512, ORIGINAL])
def test_a_forward_pass_that_is_wrong_beyond_a_length_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: int
) -> None:
    """`budget`: rows are never that long, so what happens there does not matter."""
    from transformers import LlamaModel

    folder = llama(tmp_path, rope_parameters={"rope_theta": 10000.0, **FIXED["yarn"]})
    stock = LlamaModel.forward

    def wrong(self: Any, *args: Any, position_ids: Any = None, **kwargs: Any) -> BaseModelOutputWithPast:
        if position_ids is not None:  # the trainer's own pass
            position_ids = position_ids.clamp(max=ORIGINAL)
        output: BaseModelOutputWithPast = stock(self, *args, position_ids=position_ids, **kwargs)
        return output

    monkeypatch.setattr(LlamaModel, "forward", wrong)
    settings = SETTINGS.model_copy(update={"token_budget": budget})
    if budget <= ORIGINAL:
        assert not load_policy(folder, settings).alone
        return
    with pytest.raises(UnsupportedModel, match="logits"):
        load_policy(folder, settings)


def test_a_trainer_s_pass_without_the_lora_is_found(tiny_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stock = Policy.hidden

    def without(self: Policy, one: Any) -> torch.Tensor:
        with self.base_only():
            return stock(self, one)

    monkeypatch.setattr(Policy, "hidden", without)
    with pytest.raises(UnsupportedModel, match="logits"):
        load_policy(tiny_base, SETTINGS)


def test_the_check_leaves_nothing_behind(tiny_base: Path) -> None:
    torch.manual_seed(3)
    before = torch.random.get_rng_state()
    policy = load_policy(tiny_base, SETTINGS)
    assert torch.equal(torch.random.get_rng_state(), before)
    state = policy.state()
    assert all(not tensor.any() for name, tensor in state.items() if ".lora_B." in name)
    policy.load_state(None)
    assert all(torch.equal(tensor, state[name]) for name, tensor in policy.state().items())


def test_the_lora_of_the_check_changes_what_the_model_computes(tiny_base: Path) -> None:
    for alpha in (0.01, 8.0, 1000.0):
        policy = load_policy(tiny_base, SETTINGS.model_copy(update={"alpha": alpha}))
        row = np.array(random_ids(30, 1), np.int32)
        policy.set_attention("eager")
        base = policy.own_logits(row)
        policy.load_state(startup_check.random_state(policy))
        assert (policy.own_logits(row) - base).abs().max() > 0.1


def test_a_row_of_the_longest_length_still_fits_a_window_s_model(tmp_path: Path) -> None:
    policy = load_policy(gemma3(tmp_path), SETTINGS)
    assert policy.alone
    row = trained_row(random_ids(80, 2), [70, 79], 1.0, "a")
    assert len(plan_update(policy, [WeightedRow(row, 1.0, 1.0)], SETTINGS).packs) == 1


def test_a_target_of_several_that_selects_nothing_is_told(tiny_base: Path) -> None:
    for target in (["q_proj", "quarry_proj"], ["q_proj", "proj"], []):
        with pytest.raises(TrainerError, match=r"trainer\.target: .*down_proj, gate_proj"):
            load_policy(tiny_base, SETTINGS.model_copy(update={"target": target}))
    named = ["layers.0.self_attn.q_proj", "v_proj"]
    assert load_policy(tiny_base, SETTINGS.model_copy(update={"target": named})).modules == ("q_proj", "v_proj")


@pytest.mark.parametrize("whole", [True, False])
def test_the_folder_of_an_adapter_is_no_base(tiny_base: Path, tmp_path: Path, whole: bool) -> None:
    if whole:
        for file in tiny_base.iterdir():
            (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "some/base", "r": 8}))
    with pytest.raises(UnsupportedModel, match=r"holds an adapter.*some/base"):
        resolve_base(str(tmp_path))
    (tmp_path / "adapter_config.json").write_text("[")
    with pytest.raises(UnsupportedModel, match="holds an adapter"):
        resolve_base(str(tmp_path))


def test_experts_that_peft_adapts_as_one_are_refused_with_what_is_left(tmp_path: Path) -> None:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    from trainer.step.core import TrainerCore, TrainerFolders

    config = Qwen3MoeConfig(
        **SHAPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True
    )
    base = saved(lambda: Qwen3MoeForCausalLM(config), tmp_path / "base")
    folders = TrainerFolders.of(tmp_path / "data")
    with pytest.raises(UnsupportedModel, match=r'selects experts of .*trainer\.target = \[.*"q_proj", "v_proj"\]'):
        TrainerCore(base, SETTINGS, folders)
    attention_alone = SETTINGS.model_copy(update={"target": ["q_proj", "v_proj"]})
    assert TrainerCore(base, attention_alone, folders).policy.modules == ("q_proj", "v_proj")

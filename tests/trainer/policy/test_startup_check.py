"""A base that the trainer cannot compute is refused when it is loaded, on rows of every length that matters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    Phi3Config,
    Phi3ForCausalLM,
    Qwen3Config,
)
from transformers.modeling_outputs import BaseModelOutputWithPast
from transformers.models.gemma3.configuration_gemma3 import Gemma3TextConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3ForCausalLM

from tests.trainer.building import random_ids, trained_row
from trainer.batch.layouts import Layout
from trainer.batch.packing import pack
from trainer.batch.weights import WeightedRow
from trainer.errors import TrainerError, UnsupportedModel
from trainer.policy import memory, startup_check
from trainer.policy.base_model import load_policy, resolve_base
from trainer.policy.model import Policy
from trainer.policy.packs.plan import plan_update
from trainer.policy.positions import critical_lengths, require_fixed_positions
from trainer.settings import TrainerSettings

ORIGINAL = 64
SHAPE: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
    "intermediate_size": 96, "vocab_size": 64, "initializer_range": 0.1, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "max_position_embeddings": 512,
}  # fmt: skip
SETTINGS = TrainerSettings(device="cpu", rank=4, alpha=8.0, token_budget=512)
SCALED: dict[str, Any] = {"factor": 4.0, "original_max_position_embeddings": ORIGINAL}
FIXED: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "yarn": {"rope_type": "yarn", **SCALED},
    "llama3": {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, **SCALED},
}
DYNAMIC: dict[str, Any] = {"rope_type": "dynamic", "factor": 2.0, "rope_theta": 10000.0}
LONGROPE: dict[str, Any] = {
    "rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [2.0, 3.0, 4.0, 5.0, 6.0, 7.0],
}  # fmt: skip


def saved(model: Any, folder: Path) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model = model()
    model.save_pretrained(folder)
    return folder


def llama(folder: Path, **changes: Any) -> Path:
    return saved(lambda: LlamaForCausalLM(LlamaConfig(**{**SHAPE, **changes})), folder)


def phi3(folder: Path) -> Path:
    config = Phi3Config(**SHAPE, original_max_position_embeddings=ORIGINAL, rope_parameters=LONGROPE)
    return saved(lambda: Phi3ForCausalLM(config), folder)


def gemma3(folder: Path, **ropes: dict[str, Any]) -> Path:
    given = {"rope_type": "default", "rope_theta": 10000.0}
    both = {kind: ropes.get(kind, given) for kind in ("sliding_attention", "full_attention")}
    config = Gemma3TextConfig(
        **SHAPE, sliding_window=32, rope_parameters=both, layer_types=["sliding_attention", "full_attention"]
    )
    return saved(lambda: Gemma3ForCausalLM(config), folder)


def gemma2(folder: Path) -> Path:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(**SHAPE, layer_types=["full_attention"] * 2, attn_logit_softcapping=20.0)
    return saved(lambda: Gemma2ForCausalLM(config), folder)


@pytest.mark.parametrize("rope", FIXED)
def test_rows_of_every_length_are_computed_as_alone_where_positions_are_fixed(tmp_path: Path, rope: str) -> None:
    policy = load_policy(llama(tmp_path, rope_parameters={"rope_theta": 10000.0, **FIXED[rope]}), SETTINGS)
    assert policy.layout is Layout.PACKED
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


def test_positions_that_the_trainer_cannot_know_are_refused_by_name(tmp_path: Path) -> None:
    alpha = llama(tmp_path / "alpha", rope_parameters={**DYNAMIC, "alpha": 2.0})
    nested = gemma3(tmp_path / "nested", full_attention={**DYNAMIC, "alpha": 2.0})
    dynamic = llama(tmp_path / "dynamic", rope_parameters=DYNAMIC)
    for folder, length in ((alpha, None), (nested, None), (dynamic, 513)):
        with pytest.raises(UnsupportedModel, match="'dynamic'") as told:
            load_policy(folder, SETTINGS.model_copy(update={"max_model_len": length}))
        assert str(folder) in str(told.value)
    with pytest.raises(UnsupportedModel, match=r"'other'.*longrope"):
        require_fixed_positions(LlamaConfig(**SHAPE, rope_parameters={"rope_type": "other"}), "base")


def test_a_base_with_positions_of_its_own_is_refused(tmp_path: Path) -> None:
    from transformers import PhimoeConfig, PhimoeForCausalLM

    rope = {**LONGROPE, "short_mscale": 1.2, "long_mscale": 1.3, "original_max_position_embeddings": ORIGINAL}
    shape = {name: value for name, value in SHAPE.items() if name != "head_dim"}
    config = PhimoeConfig(**shape, num_local_experts=2, rope_parameters=rope)
    folder = saved(lambda: PhimoeForCausalLM(config), tmp_path)
    with pytest.raises(UnsupportedModel, match="PhimoeRotaryEmbedding"):
        load_policy(folder, SETTINGS.model_copy(update={"target": ["q_proj"]}))


@pytest.mark.parametrize(("length", "chosen"), [(None, "short"), (ORIGINAL, "short"), (ORIGINAL + 1, "long")])
def test_longrope_has_the_engine_s_factors_in_rows_of_every_length(
    tmp_path: Path, length: int | None, chosen: str
) -> None:
    """The reference is transformers with one list of factors, so that it cannot choose by the row."""
    settings = SETTINGS.model_copy(update={"max_model_len": length})
    policy = load_policy(phi3(tmp_path / "base"), settings)
    assert policy.layout is Layout.PACKED
    both = {"short_factor": LONGROPE[f"{chosen}_factor"], "long_factor": LONGROPE[f"{chosen}_factor"]}
    plain = _of_transformers(tmp_path / "base", both)
    rows = [np.array(random_ids(count, count), np.int32) for count in (20, ORIGINAL, ORIGINAL + 1, 150)]
    (one,) = pack(rows, 512)
    hidden = policy.hidden(one)
    for index, places in zip(one.rows, one.places, strict=True):
        found = hidden[torch.from_numpy(places)].detach()
        torch.testing.assert_close(found, _states(plain, rows[index]), atol=1e-4, rtol=1e-4)


def test_longrope_on_its_own_side_of_the_original_length_is_that_of_transformers(tmp_path: Path) -> None:
    folder = phi3(tmp_path)
    plain = _of_transformers(folder, {})
    for length, tokens in ((ORIGINAL, ORIGINAL), (512, ORIGINAL + 1)):
        policy = load_policy(folder, SETTINGS.model_copy(update={"max_model_len": length}))
        row = np.array(random_ids(tokens, 5), np.int32)
        (one,) = pack([row], 512)
        torch.testing.assert_close(policy.hidden(one).detach(), _states(plain, row), atol=1e-4, rtol=1e-4)


def test_dynamic_scaling_has_the_factors_of_the_length_that_the_model_states(tmp_path: Path) -> None:
    policy = load_policy(llama(tmp_path, rope_parameters=DYNAMIC), SETTINGS)
    assert policy.layout is Layout.PACKED
    plain = _of_transformers(tmp_path, {"rope_type": "default"})
    rows = [np.array(random_ids(count, count), np.int32) for count in (20, 300)]
    (one,) = pack(rows, 512)
    hidden = policy.hidden(one)
    for index, places in zip(one.rows, one.places, strict=True):
        found = hidden[torch.from_numpy(places)].detach()
        torch.testing.assert_close(found, _states(plain, rows[index]), atol=1e-4, rtol=1e-4)


def _of_transformers(folder: Path, rope: dict[str, Any]) -> Any:
    """The base as transformers loads it, with other RoPE parameters."""
    config = AutoConfig.from_pretrained(folder)
    config.rope_parameters = {**config.rope_parameters, **rope}
    return AutoModelForCausalLM.from_pretrained(folder, config=config, attn_implementation="eager")


@torch.no_grad()
def _states(model: Any, row: np.ndarray) -> torch.Tensor:
    ids = torch.from_numpy(row.astype(np.int64))[None]
    states: torch.Tensor = model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state
    return states[0]


def test_an_old_configuration_s_positions_are_known_too(tmp_path: Path) -> None:
    folder = phi3(tmp_path)
    expected = load_policy(folder, SETTINGS.model_copy(update={"max_model_len": 512}))
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_scaling"] = {"type": "longrope", **{k: v for k, v in rope.items() if k.endswith("_factor")}}
    (folder / "config.json").write_text(json.dumps(config))
    found = load_policy(folder, SETTINGS.model_copy(update={"max_model_len": 512}))
    (one,) = pack([np.array(random_ids(30, 1), np.int32)], 512)
    assert torch.equal(found.hidden(one), expected.hidden(one))


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
        assert load_policy(folder, settings).layout is Layout.PACKED
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
    assert policy.layout is Layout.PACKED
    row = trained_row(random_ids(80, 2), [70, 79], 1.0, "a")
    assert len(plan_update(policy, [WeightedRow(row, 1.0, 1.0)], SETTINGS).packs) == 1


def test_a_base_whose_scores_do_not_fit_into_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own attention is what is left, and keeps 49 bytes for each pair of tokens in each layer: 12.2 MiB for 512."""
    from transformers.models.gemma2 import modeling_gemma2

    folder = gemma2(tmp_path)
    stock = modeling_gemma2.Gemma2Attention.forward

    def without_segments(self: Any, *args: Any, segments: Any = None, **named: Any) -> Any:
        return stock(self, *args, **named)

    monkeypatch.setattr(modeling_gemma2.Gemma2Attention, "forward", without_segments)
    policy = load_policy(folder, SETTINGS)
    assert policy.attention == "eager"
    assert policy.layout is not Layout.PACKED
    assert "Gemma2Attention attends in a way" in str(policy.unpacked_reason)
    monkeypatch.setattr(memory, "free_bytes", lambda device: 49 * 400 * 400)
    with pytest.raises(UnsupportedModel, match=r"a row of 512 tokens takes .*Lower trainer\.token_budget to 400"):
        load_policy(folder, SETTINGS)
    assert load_policy(folder, SETTINGS.model_copy(update={"token_budget": 400})).attention == "eager"


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


def test_experts_are_trained_where_the_engine_s_class_is_known_and_frozen_elsewhere(tmp_path: Path) -> None:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    from trainer.step.core import TrainerCore
    from trainer.step.state.folders import TrainerFolders

    config = Qwen3MoeConfig(
        **SHAPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True
    )
    base = saved(lambda: Qwen3MoeForCausalLM(config), tmp_path / "base")
    folders = TrainerFolders.of(tmp_path / "data")
    assert TrainerCore(base, SETTINGS, folders).policy.modules == (
        "base_layer", "experts", "k_proj", "o_proj", "q_proj", "v_proj",
    )  # fmt: skip
    read = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(read | {"architectures": ["SomebodysForCausalLM"]}))
    assert TrainerCore(base, SETTINGS, folders).policy.modules == ("k_proj", "o_proj", "q_proj", "v_proj")
    attention_alone = SETTINGS.model_copy(update={"target": ["q_proj", "v_proj"]})
    assert TrainerCore(base, attention_alone, folders).policy.modules == ("q_proj", "v_proj")

"""Families with windows, chunks, sinks and soft caps are packed: logprobs and gradients are each row's own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from tests.trainer.building import random_ids, trained_row
from tests.trainer.passes import row_logprobs
from trainer.batch.layouts import Layout
from trainer.batch.row_builder import Row
from trainer.policy import pass_method, startup_check
from trainer.policy.attention import interface
from trainer.policy.base_model import load_policy
from trainer.policy.model import Policy
from trainer.settings import TrainerSettings

WINDOW = 12
LAYERS = ["sliding_attention", "full_attention"] * 2
SHAPE: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
    "intermediate_size": 96, "vocab_size": 64, "initializer_range": 0.1, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "max_position_embeddings": 512,
}  # fmt: skip
MIXED: dict[str, Any] = {**SHAPE, "sliding_window": WINDOW, "layer_types": LAYERS}
ALL: dict[str, Any] = {**SHAPE, "sliding_window": WINDOW}
NO_WIDTH = {name: value for name, value in SHAPE.items() if name != "head_dim"}
OF_LAYERS: dict[str, Any] = {"vocab_size_per_layer_input": 64, "hidden_size_per_layer_input": 8}
FAMILIES: dict[str, dict[str, Any]] = {
    "gemma2": {**MIXED, "attn_logit_softcapping": 5.0, "query_pre_attn_scalar": 20},
    "gemma3_text": {**MIXED, "query_pre_attn_scalar": 20},
    "gemma3n_text": {**MIXED, **OF_LAYERS, "num_kv_shared_layers": 2, "laurel_rank": 4, "altup_num_inputs": 2,
                     "activation_sparsity_pattern": [0.0] * 4},
    "gemma4_text": {**MIXED, **OF_LAYERS, "num_kv_shared_layers": 2, "global_head_dim": 24},
    "gpt_oss": {**MIXED, "num_local_experts": 4, "num_experts_per_tok": 2},
    "llama4_text": {**SHAPE, "attention_chunk_size": WINDOW, "floor_scale": 20, "num_local_experts": 2,
                    "intermediate_size_mlp": 96, "interleave_moe_layer_step": 2, "no_rope_layers": [1, 0, 1, 0]},
    "mistral": ALL,
    "olmo3": MIXED,
    "phi3": {**NO_WIDTH, "sliding_window": WINDOW},
    "phimoe": {**NO_WIDTH, "sliding_window": WINDOW, "num_local_experts": 2},
    "qwen2": {**NO_WIDTH, "sliding_window": WINDOW, "use_sliding_window": True, "layer_types": LAYERS},
}  # fmt: skip
OFTEN = ("gemma2", "gemma3_text", "gpt_oss", "llama4_text", "mistral")
OTHERS = [pytest.param(name, marks=pytest.mark.long) for name in FAMILIES if name not in OFTEN]
SETTINGS = TrainerSettings(device="cpu", rank=4, alpha=8.0, token_budget=512, target=["o_proj"])

Computed = tuple[torch.Tensor, dict[str, torch.Tensor]]


def make_base(family: str, folder: Path) -> Path:
    """A random model of a family, with sinks that are not zero, and with Llama 4's scale of late queries."""
    logging.set_verbosity_error()
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model: Any = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **FAMILIES[family]))
        for name, parameter in model.named_parameters():
            if name.endswith("sinks"):
                torch.nn.init.normal_(parameter)
    model.save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"attn_temperature_tuning": True}))
    return folder


def adapted(base: Path, **changes: Any) -> Policy:
    """A policy with a LoRA that is not zero, on projections of the attention."""
    target = ["qkv_proj", "o_proj"] if "phi3" in base.name else ["q_proj", "k_proj", "v_proj", "o_proj"]
    policy = load_policy(base, SETTINGS.model_copy(update={"target": target, **changes}))
    policy.load_state(startup_check.random_state(policy, 3))
    return policy


def rows_around_a_window() -> list[Row]:
    """Rows that part before, inside of and after the first window, and far behind it; and one that shares nothing."""
    shared = random_ids(70, 0)
    ends = [(16, 9), (17, 30), (24, 5), (40, 33), (70, 60), (70, 1), (0, 17)]
    return [
        trained_row(
            ids := shared[:length] + random_ids(own, own), list(range(max(1, length - 3), len(ids))), 1.0, str(own)
        )
        for length, own in ends
    ]


def by_the_trainer(policy: Policy, rows: list[Row], pass_budget: int = 512) -> Computed:
    """Logprobs row by row, and the gradient of a weighted sum, in passes of at most `pass_budget` tokens."""
    policy.pass_budget = pass_budget
    return _with_gradients(policy, row_logprobs(policy, rows, SETTINGS, pass_budget))


def by_the_model(policy: Policy, rows: list[Row]) -> Computed:
    """The same, by the whole model's own forward pass with eager attention on each row alone."""
    policy.set_attention("eager")
    found = []
    for row in rows:
        ids = torch.from_numpy(row.token_ids.astype(np.int64))
        with policy._autocast():
            logits = policy._model(input_ids=ids[None], use_cache=False).logits[0].float()
        trained = np.flatnonzero(row.trained)
        found.append(torch.log_softmax(logits[trained - 1], -1)[range(len(trained)), ids[trained]])
    policy.set_attention(interface.NAME)
    return _with_gradients(policy, torch.cat(found))


def _with_gradients(policy: Policy, logprobs: torch.Tensor) -> Computed:
    weights = torch.linspace(-1, 1, len(logprobs), device=policy.device) / len(logprobs)
    gradients = torch.autograd.grad((logprobs * weights).sum(), list(policy.parameters.values()))
    return logprobs.detach(), dict(zip(policy.parameters, gradients, strict=True))


def assert_equal(found: Computed, expected: Computed) -> None:
    torch.testing.assert_close(found[0], expected[0], atol=1e-5, rtol=0)
    scale = max(1.0, *(float(gradient.abs().max()) for gradient in expected[1].values()))
    for name, gradient in expected[1].items():
        assert float((found[1][name] - gradient).abs().max()) <= 1e-5 * scale, name


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "WINDOW_TILE", 8)
    monkeypatch.setattr(interface, "STRETCH", 16)
    monkeypatch.setattr(interface, "MASK_ENTRIES", 16 * 60)
    monkeypatch.setattr(interface, "CPU_SCORES", 4 * 16 * 60)
    monkeypatch.setattr(pass_method, "TILE", 24)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("family", [*OFTEN, *OTHERS])
def test_packed_rows_have_the_logprobs_and_gradients_of_the_model_s_own_pass(family: str, tmp_path: Path) -> None:
    policy = adapted(make_base(family, tmp_path / family))
    assert policy.layout is Layout.PACKED
    rows = rows_around_a_window()
    expected = by_the_model(policy, rows)
    assert_equal(by_the_trainer(policy, rows), expected)
    if policy.has_long_rows:
        assert_equal(by_the_trainer(policy, rows, pass_budget=60), expected)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("family", ["gemma2", "gemma3n_text", "gpt_oss", "llama4_text"])
def test_recomputed_layers_and_inputs_in_host_memory_change_nothing(family: str, tmp_path: Path) -> None:
    policy = adapted(make_base(family, tmp_path / family), gradient_checkpointing=True, offload_inputs=True)
    rows = rows_around_a_window()
    found = by_the_trainer(policy, rows)
    plain = adapted(tmp_path / family, gradient_checkpointing=False)
    assert_equal(found, by_the_model(plain, rows))


def test_a_window_that_the_pack_leaves_out_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The check is not blind: without the layers' windows the base gets one row a pass."""
    base = make_base("gemma3_text", tmp_path / "gemma3_text")
    stock = interface.packed_attention
    attend: Callable[..., Any] = lambda module, query, key, value, mask, **named: stock(  # noqa: E731
        module, query, key, value, None, **named
    )
    monkeypatch.setattr(interface, "packed_attention", attend)
    try:
        assert adapted(base).layout is not Layout.PACKED
    finally:
        monkeypatch.undo()
        interface.register_attention()


def test_a_base_in_bfloat16_is_packed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gpt-oss with all of its experts: rounding would choose others for some tokens."""
    monkeypatch.setitem(FAMILIES, "gpt_oss", {**FAMILIES["gpt_oss"], "num_experts_per_tok": 4})
    for family in ("gemma2", "gpt_oss"):
        policy = adapted(make_base(family, tmp_path / family), dtype="bfloat16")
        assert policy.layout is Layout.PACKED
        rows = rows_around_a_window()
        found, expected = by_the_trainer(policy, rows), by_the_model(policy, rows)
        torch.testing.assert_close(found[0], expected[0], atol=0.15, rtol=0)

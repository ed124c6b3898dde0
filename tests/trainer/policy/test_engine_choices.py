"""What an engine computes by its context, the trainer computes too, or refuses: Llama 4 and Ministral 3."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForCausalLM,
    Llama4ForCausalLM,
    Llama4TextConfig,
    Ministral3Config,
    Ministral3ForCausalLM,
)

from tests.trainer.building import random_ids
from trainer.batch.layouts import Layout
from trainer.batch.packing import pack
from trainer.errors import UnsupportedModel
from trainer.policy.base_model import load_policy
from trainer.settings import TrainerSettings

FLOOR = 20  # tokens
SHAPE: dict[str, Any] = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 12,
    "intermediate_size": 96, "vocab_size": 64, "initializer_range": 0.1, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "max_position_embeddings": 65536,
}  # fmt: skip
SETTINGS = TrainerSettings(device="cpu", rank=4, alpha=8.0, token_budget=512, target=["o_proj"])


@pytest.fixture(scope="module")
def llama4(tmp_path_factory: pytest.TempPathFactory) -> Path:
    config = Llama4TextConfig(
        **SHAPE, num_local_experts=2, intermediate_size_mlp=96, interleave_moe_layer_step=2, no_rope_layers=[1, 0],
        attention_chunk_size=64, floor_scale=FLOOR, attn_scale=5.0,
    )  # fmt: skip
    return save(Llama4ForCausalLM, config, tmp_path_factory.mktemp("llama4"))


def save(model: Any, config: Any, folder: Path) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(7)
        model(config).save_pretrained(folder)
    return folder


@torch.no_grad()
def states_of_transformers(base: Path, row: np.ndarray, *, scales: bool) -> torch.Tensor:
    """Of the same model with the scale for every query, or for none."""
    plain: Any = AutoModelForCausalLM.from_pretrained(base, attn_temperature_tuning=scales, attn_implementation="eager")
    states: torch.Tensor = plain.model(input_ids=torch.from_numpy(row.astype(np.int64))[None]).last_hidden_state
    return states[0]


@pytest.mark.parametrize(
    ("context", "stated", "scales"),
    [(None, None, True), (32769, None, True), (32768, None, False), (512, True, True), (65536, False, False)],
)
def test_llama_4_s_late_queries_are_scaled_where_the_engine_does(
    llama4: Path, context: int | None, stated: bool | None, scales: bool
) -> None:
    stated_file = llama4 / "generation_config.json"
    stated_file.write_text(json.dumps({} if stated is None else {"attn_temperature_tuning": stated}))
    policy = load_policy(llama4, SETTINGS.model_copy(update={"max_model_len": context}))
    assert policy.layout is Layout.PACKED
    rows = [np.array(random_ids(length, length), np.int32) for length in (12, 3 * FLOOR)]
    (one,) = pack(rows, 512)
    hidden = policy.hidden(one)
    for index, places in zip(one.rows, one.places, strict=True):
        found = hidden[torch.from_numpy(places)].detach()
        torch.testing.assert_close(
            found, states_of_transformers(llama4, rows[index], scales=scales), atol=1e-4, rtol=1e-4
        )
    other = states_of_transformers(llama4, rows[1], scales=not scales)
    assert (other - states_of_transformers(llama4, rows[1], scales=scales)).abs().max() > 0.01


def test_a_context_in_which_the_engine_leaves_a_scale_out_is_refused(tmp_path: Path) -> None:
    rope = {
        "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 64,
        "llama_4_scaling_beta": 0.1,
    }  # fmt: skip
    config = Ministral3Config(**{**SHAPE, "max_position_embeddings": 256}, sliding_window=None, rope_parameters=rope)
    base = save(Ministral3ForCausalLM, config, tmp_path)
    for context in (None, 65):
        with pytest.raises(UnsupportedModel, match=r"beyond 64 tokens.*Set engine\.max_model_len to 64"):
            load_policy(base, SETTINGS.model_copy(update={"max_model_len": context}))
    assert load_policy(base, SETTINGS.model_copy(update={"max_model_len": 64})).layout is Layout.PACKED

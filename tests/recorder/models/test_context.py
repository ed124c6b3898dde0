"""The longest context that vLLM accepts, by the rules of its `_get_and_verify_max_len`."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.models.context import (
    context_length,
    default_context_length,
    longrope_factors,
    scaled_from,
    stated_context,
    tempers_attention,
)
from recorder.models.families import text_config


@pytest.mark.parametrize(
    ("config", "longest"),
    [
        ({"max_position_embeddings": 2048}, 2048),
        ({"max_position_embeddings": 2048, "sliding_window": 512}, 2048),
        ({"n_positions": 1024}, 1024),
        ({"max_position_embeddings": 4096, "seq_length": 2048}, 2048),
        ({"max_position_embeddings": 4096, "model_max_length": 8192}, 8192),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}}, 16384),
        ({"max_position_embeddings": 4096, "rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, 8192),
        ({"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, 131072),
        ({"max_position_embeddings": 40960, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, 40960),
        ({"max_position_embeddings": 131072, "rope_scaling": {"type": "longrope", "short_factor": [1]}}, 131072),
        ({"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": None}}, 4096),
        ({"model_type": "llama"}, 2048),
        ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 1}}, 131072),
        ({"model_type": "frob"}, None),
        ({"max_position_embeddings": "many"}, None),
    ],
)
def test_the_longest_context(config: dict[str, Any], longest: int | None) -> None:
    assert context_length(text_config(config)) == longest


def test_gemma_3_has_its_scaling_in_its_length_already() -> None:
    config = {"model_type": "gemma3_text", "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    assert context_length(text_config(config)) == 131072


def test_rope_parameters_of_each_type_of_layer_are_read() -> None:
    rope = {"full_attention": {"rope_type": "linear", "factor": 2.0}, "sliding_attention": {"rope_type": "default"}}
    assert context_length(text_config({"max_position_embeddings": 1000, "rope_parameters": rope})) == 2000


def test_longrope_is_served_with_the_original_length_unless_another_is_asked_for() -> None:
    config = {
        "model_type": "phi3",
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": {"type": "longrope"},
    }
    assert default_context_length(text_config(config)) == 4096
    assert context_length(text_config(config)) == 131072


LONGROPE = {
    "max_position_embeddings": 131072,
    "original_max_position_embeddings": 4096,
    "rope_scaling": {"type": "longrope"},
}


@pytest.mark.parametrize(("length", "factors"), [(None, "short"), (4096, "short"), (4097, "long"), (131072, "long")])
def test_the_factors_of_longrope_follow_from_the_engine_s_context(length: int | None, factors: str) -> None:
    assert longrope_factors(LONGROPE, length) == factors
    inside = {"rope_parameters": {"rope_type": "longrope", "original_max_position_embeddings": 4096}}
    assert longrope_factors({"max_position_embeddings": 4096, **inside}, length or 4096) == factors
    assert longrope_factors({"max_position_embeddings": 4096}, length) is None


LLAMA4 = {"model_type": "llama4_text", "max_position_embeddings": 262144, "attn_temperature_tuning": 4}


@pytest.mark.parametrize(
    ("length", "generation", "is_scaled"),
    [
        (None, {}, True),
        (32768, {}, False),
        (32769, {}, True),
        (100, {"attn_temperature_tuning": True}, True),
        (100000, {"attn_temperature_tuning": False}, False),
    ],
)
def test_llama_4_s_late_queries_are_scaled_as_the_engine_s_context_says(
    length: int | None, generation: dict[str, bool], is_scaled: bool
) -> None:
    assert tempers_attention(LLAMA4, generation, length) is is_scaled
    assert tempers_attention({"model_type": "llama4_text"}, generation, length) is is_scaled
    assert tempers_attention({"model_type": "llama"}, generation, length) is None


def test_ministral_3_s_queries_are_scaled_from_its_original_context() -> None:
    rope = {"rope_type": "yarn", "original_max_position_embeddings": 16384, "llama_4_scaling_beta": 0.1}
    assert scaled_from({"rope_parameters": rope}) == 16384
    assert scaled_from({"rope_parameters": {**rope, "llama_4_scaling_beta": 0}}) is None
    assert scaled_from({"rope_parameters": {"rope_type": "yarn", "original_max_position_embeddings": 9}}) is None
    assert scaled_from({}) is None


@pytest.mark.parametrize(
    ("arguments", "context"),
    [
        ([], 100),
        (["--max-model-len", "200"], 200),
        (["--max-model-len=200", "--seed", "3", "--max-model-len", "300"], 300),
        (["--max-model-len", "auto"], 100),
        (["--max-model-len"], 100),
    ],
)
def test_the_last_context_of_the_engine_s_arguments_counts(arguments: list[str], context: int) -> None:
    assert stated_context(100, arguments) == context

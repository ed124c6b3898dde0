"""What a model's files say: of the models that examples ship, and of small ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recorder.errors import BaseInvalid
from recorder.models.base_model import Experts, read_base_model
from recorder.models.shapes import tensor_shapes
from recorder.models.shipped_configs import SHIPPED
from recorder.models.weights import stored_tensors
from tests.recorder.models.model_folders import write_config, write_model

ROOT = Path(__file__).parents[3]
EXAMPLES = sorted(path.parent for path in ROOT.glob("examples/*/model/config.json"))


@pytest.mark.parametrize("folder", EXAMPLES, ids=lambda folder: folder.parent.name)
def test_the_models_of_the_examples_are_read(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    stored = stored_tensors(folder)
    assert {name: one.shape for name, one in stored.items()} == tensor_shapes(config)
    model = read_base_model(folder)
    assert model.has_weights
    assert model.has_chat_template
    assert model.is_known
    assert model.context_length == config["max_position_embeddings"]
    assert model.parameters is not None
    assert model.parameter_bytes is not None
    assert model.parameter_bytes.total == sum(one.size_bytes for one in stored.values())
    assert (model.parameters.head, model.parameters.other) == (0, 0)
    assert model.tool_parser.name == "hermes"
    assert model.reasoning_parser.name is None
    assert set(model.layers) == {"full"}


def test_there_are_the_five_of_them() -> None:
    assert len(EXAMPLES) == 5


@pytest.mark.parametrize("shards", [1, 3])
def test_files_and_shapes_give_the_same_sizes(shards: int, tmp_path: Path) -> None:
    of_files = read_base_model(write_model(tmp_path / "a", shards=shards))
    of_shapes = read_base_model(write_config(tmp_path / "b"), needs_weights=False)
    assert of_files.parameters == of_shapes.parameters
    assert of_files.parameter_bytes == of_shapes.parameter_bytes
    assert (of_files.has_weights, of_shapes.has_weights) == (True, False)


def test_a_tied_head_in_the_files_counts_once(tmp_path: Path) -> None:
    plain = read_base_model(write_model(tmp_path / "a"))
    stored = read_base_model(write_model(tmp_path / "b", more={"lm_head.weight": (64, 32)}))
    assert plain.is_head_tied
    assert stored.parameters == plain.parameters


def test_an_unknown_family_has_no_shapes_and_its_files_are_summed(tmp_path: Path) -> None:
    write_model(tmp_path)
    write_config(tmp_path, model_type="frob", architectures=["FrobForCausalLM"])
    model = read_base_model(tmp_path)
    assert not model.is_known
    assert model.layers == ("unknown", "unknown")
    assert model.kv_cache_bytes(10, element_bytes=2) is None
    assert model.parameters is not None
    assert model.parameters.attention > 0
    config = read_base_model(write_config(tmp_path / "b", model_type="frob"), needs_weights=False)
    assert config.parameters is None
    assert config.parameter_bytes is None


def test_what_gpt_oss_and_gemma_have_is_said() -> None:
    oss = read_base_model(SHIPPED / "gpt-oss-20b", needs_weights=False)
    assert oss.has_attention_sinks
    assert oss.layers[:3] == ("sliding", "full", "sliding")
    assert (oss.sliding_window, oss.experts, oss.quantization) == (128, Experts(32, 4), "mxfp4")
    gemma = read_base_model(SHIPPED / "gemma-3-4b-it", needs_weights=False)
    assert gemma.media == ("vision",)
    assert gemma.layers.count("full") == 34 // 6
    assert gemma.is_head_tied


def test_soft_caps_and_chunks_are_said(tmp_path: Path) -> None:
    caps = read_base_model(write_config(tmp_path / "a", model_type="gemma2"), needs_weights=False)
    assert (caps.attention_soft_cap, caps.logit_soft_cap) == (50.0, 30.0)
    chunks = write_config(tmp_path / "b", layer_types=["chunked_attention", "full_attention"], attention_chunk_size=64)
    model = read_base_model(chunks, needs_weights=False)
    assert (model.chunk_length, model.sliding_window) == (64, None)


def test_the_cache_of_a_sequence_is_keys_and_values_of_what_each_layer_sees(tmp_path: Path) -> None:
    full = read_base_model(write_config(tmp_path / "a"), needs_weights=False)
    assert full.kv_cache_bytes(100, element_bytes=2) == 2 * (2 * 100) * 2 * 8 * 2
    types = ["sliding_attention", "linear_attention"]
    mixed = read_base_model(write_config(tmp_path / "b", layer_types=types, sliding_window=10), needs_weights=False)
    assert mixed.kv_cache_bytes(100, element_bytes=4) == 2 * 10 * 2 * 8 * 4


def test_a_config_without_sizes_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": "wide", "num_attention_heads": 0}')
    model = read_base_model(tmp_path, needs_weights=False)
    assert (model.parameters, model.hidden_size, model.head_size) == (None, None, None)


def test_what_is_no_base_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BaseInvalid, match="has no config"):
        read_base_model(tmp_path, name="mine")


@pytest.mark.parametrize(
    ("layers", "is_mixture"),
    [
        ({"layers_block_type": ["linear_attention", "full_attention", "mlp"]}, False),
        ({"layers_block_type": ["linear_attention", "moe"]}, True),
        ({"hybrid_override_pattern": "M*-"}, False),
        ({"hybrid_override_pattern": "M*E"}, True),
        ({}, True),
    ],
)
def test_experts_that_no_layer_has_make_no_mixture(layers: dict[str, object], is_mixture: bool, tmp_path: Path) -> None:
    config = {"model_type": "nemotron_h", "n_routed_experts": 8, "num_experts_per_tok": 2, **layers}
    found = read_base_model(write_config(tmp_path, **config), needs_weights=False)
    assert (found.experts is not None) is is_mixture

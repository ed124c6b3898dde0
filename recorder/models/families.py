"""The model families that Hone knows: the values their configurations omit, and the kind of each layer.

A family is the `model_type` of the text part of config.json. The defaults are those of transformers' configuration
classes, which fill in what a config.json omits (tests/recorder/models/test_families.py compares them). Refuses: a guess
about any other family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

LayerKind = Literal["full", "sliding", "chunked", "linear", "unknown"]
ModelConfig = Mapping[str, Any]
KindRule = Callable[[ModelConfig, int], LayerKind]

# transformers' names of layer types → what a layer keeps of the past: all of it, a window, a chunk, or a state.
LAYER_TYPES: Final[Mapping[str, LayerKind]] = {
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "local_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear",
    "recurrent": "linear",
    "mamba": "linear",
    "mamba2": "linear",
    "conv": "linear",
}


@dataclass(frozen=True, slots=True)
class Family:
    """One family. `defaults`: of fields that a config.json may omit; `kind`: of a layer where `layer_types` is absent.

    `has_sinks`: whether its attention has sinks; `has_shapes`: whether `recorder.models.shapes` knows its tensors.
    """

    defaults: Mapping[str, Any] = field(default_factory=dict)
    kind: KindRule = lambda _config, _layer: "full"
    has_sinks: bool = False
    has_shapes: bool = True


def _with_window(config: ModelConfig, _layer: int) -> LayerKind:
    return "sliding" if config.get("sliding_window") else "full"


def _uses_window(config: ModelConfig) -> bool:
    return bool(config.get("use_sliding_window") and config.get("sliding_window", 4096))


def _from_window_layer(config: ModelConfig, layer: int) -> LayerKind:
    return "sliding" if _uses_window(config) and layer >= config["max_window_layers"] else "full"


def _qwen2_moe(config: ModelConfig, layer: int) -> LayerKind:
    return "sliding" if _uses_window(config) and layer % 2 == 0 and layer < config["max_window_layers"] else "full"


def _if_window(config: ModelConfig, _layer: int) -> LayerKind:
    return "sliding" if _uses_window(config) else "full"


def _every(period_key: str, period: int, usual: LayerKind) -> KindRule:
    """Every `period`-th layer is full, the others are `usual`; a config may have another period under `period_key`."""

    def kind(config: ModelConfig, layer: int) -> LayerKind:
        return usual if (layer + 1) % (config.get(period_key) or period) else "full"

    return kind


def _smollm3(config: ModelConfig, layer: int) -> LayerKind:
    no_rope = (layer + 1) % (config.get("no_rope_layer_interval") or 4) == 0
    return "sliding" if _uses_window(config) and no_rope else "full"


_QWEN: Final = {
    "max_position_embeddings": 32768,
    "vocab_size": 151936,
    "num_attention_heads": 32,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
}
_WINDOW: Final = {"max_window_layers": 28}
_GEMMA: Final = {"head_dim": 256, "tie_word_embeddings": True, "attention_bias": False}

FAMILIES: Final[Mapping[str, Family]] = {
    "llama": Family({"max_position_embeddings": 2048, "vocab_size": 32000, "tie_word_embeddings": False}),
    "granite": Family({"max_position_embeddings": 2048, "vocab_size": 32000, "tie_word_embeddings": False}),
    "mistral": Family(
        {
            "max_position_embeddings": 131072,
            "vocab_size": 32000,
            "num_key_value_heads": 8,
            "sliding_window": 4096,
            "tie_word_embeddings": False,
        },
        _with_window,
    ),
    "mixtral": Family(
        {
            "max_position_embeddings": 131072,
            "vocab_size": 32000,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "num_experts_per_tok": 2,
            "tie_word_embeddings": False,
        },
        _with_window,
    ),
    "qwen2": Family({**_QWEN, **_WINDOW, "num_key_value_heads": 32}, _from_window_layer),
    "qwen3": Family(
        {**_QWEN, **_WINDOW, "num_key_value_heads": 32, "head_dim": 128, "attention_bias": False}, _from_window_layer
    ),
    "qwen2_moe": Family(
        {
            **_QWEN,
            **_WINDOW,
            "num_attention_heads": 16,
            "num_key_value_heads": 16,
            "num_experts": 60,
            "num_experts_per_tok": 4,
            "moe_intermediate_size": 1408,
            "shared_expert_intermediate_size": 5632,
            "decoder_sparse_step": 1,
        },
        _qwen2_moe,
    ),
    "qwen3_moe": Family(
        {
            **_QWEN,
            "num_key_value_heads": 4,
            "num_experts": 128,
            "num_experts_per_tok": 8,
            "moe_intermediate_size": 768,
            "decoder_sparse_step": 1,
            "attention_bias": False,
        },
        _if_window,
    ),
    "qwen3_next": Family(
        {
            "max_position_embeddings": 32768,
            "vocab_size": 151936,
            "num_attention_heads": 16,
            "num_key_value_heads": 2,
            "head_dim": 256,
            "num_experts": 512,
            "num_experts_per_tok": 10,
            "tie_word_embeddings": False,
        },
        _every("full_attention_interval", 4, "linear"),
        has_shapes=False,
    ),
    "qwen3_5_text": Family(
        {
            "max_position_embeddings": 32768,
            "vocab_size": 248320,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "head_dim": 256,
            "tie_word_embeddings": False,
        },
        _every("full_attention_interval", 4, "linear"),
        has_shapes=False,
    ),
    "gemma": Family(
        {**_GEMMA, "max_position_embeddings": 8192, "vocab_size": 256000, "num_attention_heads": 16}
        | {"num_key_value_heads": 16}
    ),
    "gemma2": Family(
        {
            **_GEMMA,
            "max_position_embeddings": 8192,
            "vocab_size": 256000,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "sliding_window": 4096,
            "attn_logit_softcapping": 50.0,
            "final_logit_softcapping": 30.0,
        },
        _every("sliding_window_pattern", 2, "sliding"),
    ),
    "gemma3_text": Family(
        {
            **_GEMMA,
            "max_position_embeddings": 131072,
            "vocab_size": 262208,
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "sliding_window": 4096,
        },
        _every("sliding_window_pattern", 6, "sliding"),
    ),
    "gpt_oss": Family(
        {
            "max_position_embeddings": 131072,
            "vocab_size": 201088,
            "num_attention_heads": 64,
            "num_key_value_heads": 8,
            "head_dim": 64,
            "sliding_window": 128,
            "num_local_experts": 128,
            "num_experts_per_tok": 4,
            "attention_bias": True,
            "tie_word_embeddings": False,
        },
        _every("sliding_window_pattern", 2, "sliding"),
        has_sinks=True,
    ),
    "phi3": Family(
        {
            "max_position_embeddings": 4096,
            "vocab_size": 32064,
            "num_attention_heads": 32,
            "tie_word_embeddings": False,
        },
        _with_window,
    ),
    "smollm3": Family(
        {
            "max_position_embeddings": 32768,
            "vocab_size": 128256,
            "num_attention_heads": 16,
            "num_key_value_heads": 4,
            "tie_word_embeddings": True,
        },
        _smollm3,
    ),
}


def text_config(config: ModelConfig) -> ModelConfig:
    """The part of a config.json that describes the language model, with its family's defaults filled in."""
    inner = next((config[key] for key in ("text_config", "llm_config", "language_config") if key in config), None)
    found = dict(inner) if isinstance(inner, Mapping) else dict(config)
    if inner is not None and "tie_word_embeddings" in config:
        found.setdefault("tie_word_embeddings", config["tie_word_embeddings"])
    for key in ("dtype", "torch_dtype"):
        if key in config:
            found.setdefault(key, config[key])
    family = FAMILIES.get(str(found.get("model_type")))
    if family is not None:
        found = {**family.defaults, **found}
    return found


def layer_kinds(config: ModelConfig) -> tuple[LayerKind, ...]:
    """The kind of each layer of a text config; `unknown` where neither the config nor the family says it."""
    types = config.get("layer_types")
    if isinstance(types, list):
        return tuple(LAYER_TYPES.get(str(one), "unknown") for one in types)
    count = config.get("num_hidden_layers")
    layers = range(count if isinstance(count, int) else 0)
    family = FAMILIES.get(str(config.get("model_type")))
    if family is None:
        return tuple("unknown" for _ in layers)
    return tuple(family.kind(config, layer) for layer in layers)

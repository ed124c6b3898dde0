"""The tensors of a model, computed from its configuration alone: what a checkpoint of it holds, without one.

Names and shapes are those of transformers' checkpoints; tests compare them with real ones and the counts with published
ones. Refuses: families that `families.FAMILIES` does not know the shapes of.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from recorder.models.families import FAMILIES, ModelConfig, text_config

Shape = tuple[int, ...]
Tensor = tuple[str, Shape]

_QKV_BIAS: Final = {"qwen2", "qwen2_moe"}
_QK_NORM: Final = {"qwen3", "qwen3_moe", "gemma3_text"}
_FOUR_NORMS: Final = {"gemma2", "gemma3_text"}


def tensor_shapes(config: ModelConfig) -> dict[str, Shape] | None:
    """The shape of each tensor of a whole config.json; None for a family whose shapes are not known.

    A tied head is no tensor of its own. Raises KeyError or TypeError if the config lacks a size.
    """
    text = text_config(config)
    family = FAMILIES.get(str(text.get("model_type")))
    if family is None or not family.has_shapes:
        return None
    vision = config.get("vision_config")
    if vision and config.get("model_type") != "gemma3":
        return None
    found = dict(_language(text))
    if vision:
        # gemma3 alone: a SigLIP tower and a projection into the language model
        found |= dict(_siglip(vision)) | dict(_projector(text["hidden_size"], vision["hidden_size"]))
    return found


def head_size(text: ModelConfig) -> int:
    """The size of one attention head."""
    return int(text.get("head_dim") or text["hidden_size"] // text["num_attention_heads"])


def kv_heads(text: ModelConfig) -> int:
    """How many heads of keys and values a layer has."""
    return int(text.get("num_key_value_heads") or text["num_attention_heads"])


def _language(text: ModelConfig) -> Iterator[Tensor]:
    hidden, vocabulary = text["hidden_size"], text["vocab_size"]
    yield "model.embed_tokens.weight", (vocabulary, hidden)
    for layer in range(text["num_hidden_layers"]):
        prefix = f"model.layers.{layer}"
        yield from _norms(text, prefix)
        yield from _attention(text, f"{prefix}.self_attn")
        yield from _feed_forward(text, layer, prefix)
    yield "model.norm.weight", (hidden,)
    if not text["tie_word_embeddings"]:
        yield "lm_head.weight", (vocabulary, hidden)


def _norms(text: ModelConfig, prefix: str) -> Iterator[Tensor]:
    names = ["input_layernorm", "post_attention_layernorm"]
    if text["model_type"] in _FOUR_NORMS:
        names += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
    for name in names:
        yield f"{prefix}.{name}.weight", (text["hidden_size"],)


def _attention(text: ModelConfig, prefix: str) -> Iterator[Tensor]:
    family, hidden, size = text["model_type"], text["hidden_size"], head_size(text)
    queries, keys = text["num_attention_heads"] * size, kv_heads(text) * size
    if family == "phi3":
        yield f"{prefix}.qkv_proj.weight", (queries + 2 * keys, hidden)
        yield f"{prefix}.o_proj.weight", (hidden, queries)
        return
    rows = {"q_proj": queries, "k_proj": keys, "v_proj": keys}
    biased = bool(text.get("attention_bias"))
    for name, row in rows.items():
        yield f"{prefix}.{name}.weight", (row, hidden)
        if biased or family in _QKV_BIAS:
            yield f"{prefix}.{name}.bias", (row,)
    yield f"{prefix}.o_proj.weight", (hidden, queries)
    if biased:
        yield f"{prefix}.o_proj.bias", (hidden,)
    if family in _QK_NORM:
        yield f"{prefix}.q_norm.weight", (size,)
        yield f"{prefix}.k_norm.weight", (size,)
    if FAMILIES[family].has_sinks:
        yield f"{prefix}.sinks", (text["num_attention_heads"],)


def _feed_forward(text: ModelConfig, layer: int, prefix: str) -> Iterator[Tensor]:
    family, hidden = text["model_type"], text["hidden_size"]
    if family == "gpt_oss":
        yield from _gpt_oss_experts(text, f"{prefix}.mlp")
    elif family == "mixtral":
        for expert in range(text["num_local_experts"]):
            for name, shape in _three(hidden, text["intermediate_size"], ("w1", "w3", "w2")):
                yield f"{prefix}.block_sparse_moe.experts.{expert}.{name}.weight", shape
        yield f"{prefix}.block_sparse_moe.gate.weight", (text["num_local_experts"], hidden)
    elif family in {"qwen2_moe", "qwen3_moe"} and is_sparse_layer(text, layer):
        yield from _qwen_experts(text, f"{prefix}.mlp")
    elif family == "phi3":
        yield f"{prefix}.mlp.gate_up_proj.weight", (2 * text["intermediate_size"], hidden)
        yield f"{prefix}.mlp.down_proj.weight", (hidden, text["intermediate_size"])
    else:
        yield from _mlp(text, f"{prefix}.mlp", text["intermediate_size"])


def is_sparse_layer(text: ModelConfig, layer: int) -> bool:
    """Whether a layer of a Qwen mixture of experts has experts: some layers may be dense."""
    step = text.get("decoder_sparse_step") or 1
    return layer not in (text.get("mlp_only_layers") or []) and (layer + 1) % step == 0


def _mlp(text: ModelConfig, prefix: str, width: int) -> Iterator[Tensor]:
    for name, shape in _three(text["hidden_size"], width, ("gate_proj", "up_proj", "down_proj")):
        yield f"{prefix}.{name}.weight", shape
        if text.get("mlp_bias"):
            yield f"{prefix}.{name}.bias", (shape[0],)


def _three(hidden: int, width: int, names: tuple[str, str, str]) -> Iterator[Tensor]:
    yield names[0], (width, hidden)
    yield names[1], (width, hidden)
    yield names[2], (hidden, width)


def _qwen_experts(text: ModelConfig, prefix: str) -> Iterator[Tensor]:
    hidden = text["hidden_size"]
    for expert in range(text["num_experts"]):
        yield from _mlp(text, f"{prefix}.experts.{expert}", text["moe_intermediate_size"])
    yield f"{prefix}.gate.weight", (text["num_experts"], hidden)
    if text["model_type"] == "qwen2_moe":
        yield from _mlp(text, f"{prefix}.shared_expert", text["shared_expert_intermediate_size"])
        yield f"{prefix}.shared_expert_gate.weight", (1, hidden)


def _gpt_oss_experts(text: ModelConfig, prefix: str) -> Iterator[Tensor]:
    count, hidden, width = text["num_local_experts"], text["hidden_size"], text["intermediate_size"]
    yield f"{prefix}.router.weight", (count, hidden)
    yield f"{prefix}.router.bias", (count,)
    yield f"{prefix}.experts.gate_up_proj", (count, hidden, 2 * width)
    yield f"{prefix}.experts.gate_up_proj_bias", (count, 2 * width)
    yield f"{prefix}.experts.down_proj", (count, width, hidden)
    yield f"{prefix}.experts.down_proj_bias", (count, hidden)


def _siglip(vision: ModelConfig) -> Iterator[Tensor]:
    width, inner, patch = vision["hidden_size"], vision["intermediate_size"], vision["patch_size"]
    prefix = "vision_tower.vision_model"
    yield f"{prefix}.embeddings.patch_embedding.weight", (width, vision.get("num_channels", 3), patch, patch)
    yield f"{prefix}.embeddings.patch_embedding.bias", (width,)
    yield f"{prefix}.embeddings.position_embedding.weight", ((vision["image_size"] // patch) ** 2, width)
    for layer in range(vision["num_hidden_layers"]):
        at = f"{prefix}.encoder.layers.{layer}"
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            yield f"{at}.self_attn.{name}.weight", (width, width)
            yield f"{at}.self_attn.{name}.bias", (width,)
        for name, shape in (("fc1", (inner, width)), ("fc2", (width, inner))):
            yield f"{at}.mlp.{name}.weight", shape
            yield f"{at}.mlp.{name}.bias", shape[:1]
        for name in ("layer_norm1", "layer_norm2"):
            yield f"{at}.{name}.weight", (width,)
            yield f"{at}.{name}.bias", (width,)
    for part in ("weight", "bias"):
        yield f"{prefix}.post_layernorm.{part}", (width,)


def _projector(hidden: int, width: int) -> Iterator[Tensor]:
    yield "multi_modal_projector.mm_input_projection_weight", (width, hidden)
    yield "multi_modal_projector.mm_soft_emb_norm.weight", (width,)

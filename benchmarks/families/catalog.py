"""The families, as tiny random models that transformers makes from each family's own configuration.

Owns: their names and shapes, and writing one into a folder with a byte-level tokenizer. Refuses: what is done with
them. Windows are 32 tokens, so that rows of a few dozen tokens are longer, and chunks 128, a block of the cache of
vLLM's CPU build. Heads have 32 dimensions: that build serves no smaller ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, PreTrainedConfig

from benchmarks.families.variants import around, quantize_model
from examples.making.tokenizer import make_tokenizer

VOCABULARY: Final = 320
CONTEXT: Final = 256  # tokens, of the engines
WINDOW: Final = 32  # tokens
_CHUNK: Final = 128  # tokens
_SEED: Final = 7
_TEXT: Final = (
    "Every family of models is made small here, with random weights, so that a minute is enough to load it, train it "
    "and serve it. The words of this text are the tokenizer's only longer tokens; all other text is spelled in bytes."
)
_SHAPE: Final[Mapping[str, Any]] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": 512,
    "initializer_range": 0.1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
_HYBRID: Final[Mapping[str, Any]] = {
    "num_hidden_layers": 4, "linear_num_key_heads": 1, "linear_num_value_heads": 2,
    "linear_key_head_dim": 128, "linear_value_head_dim": 128,  # 32 is too small for vLLM's CPU build
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
}  # fmt: skip
_EXPERTS: Final[Mapping[str, Any]] = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64}
_SHARED_EXPERT: Final[Mapping[str, Any]] = {**_EXPERTS, "shared_expert_intermediate_size": 64}
_ROUTED: Final[Mapping[str, Any]] = {
    "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 64, "n_shared_experts": 1, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip
_LOCAL: Final[Mapping[str, Any]] = {"num_local_experts": 4, "num_experts_per_tok": 2}
# Two heads of 32 dimensions, for classes that divide the hidden size by the number of heads.
_TWO_HEADS: Final[Mapping[str, Any]] = {"num_attention_heads": 2, "num_key_value_heads": 1}
_WINDOWED: Final[Mapping[str, Any]] = {
    "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Family:
    """One family: its name in the table, transformers' configuration class, and what differs from `_SHAPE`.

    `without`: fields of `_SHAPE` that the class computes itself. `is_moe`: whether it has routed experts. `whole`: the
    configuration class of a model that reads images, whose text part this is. `quantization`: of its weights. `dtype`:
    of the engine's figures. `generation`: fields of generation_config.json.
    """

    name: str
    config: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    is_moe: bool = False
    whole: str = ""
    quantization: str = ""
    dtype: str = "float32"
    generation: Mapping[str, Any] = field(default_factory=dict)

    @property
    def slug(self) -> str:
        """The name in file names and on the command line."""
        return "".join(one if one.isalnum() or one == "." else "-" for one in self.name.lower()).strip("-")

    @property
    def imports_torchvision(self) -> bool:
        """Whether vLLM's class for it does so: those for images, and for all of Qwen3.5."""
        return bool(self.whole) or self.config.startswith("Qwen3_5")

    @property
    def fields(self) -> Mapping[str, Any]:
        """What the configuration of the text model is made from."""
        return {key: value for key, value in _SHAPE.items() if key not in self.without} | dict(self.changes)

    def make_config(self) -> PreTrainedConfig:
        """The configuration of the tiny model."""
        text: PreTrainedConfig = getattr(transformers, self.config)(**self.fields)
        return around(text, self.whole) if self.whole else text


_TEXT_FAMILIES: Final = (
    Family("Qwen2.5", "Qwen2Config", _TWO_HEADS, ("head_dim",)),
    Family("Qwen3", "Qwen3Config"),
    Family("Qwen3-MoE", "Qwen3MoeConfig", _EXPERTS, is_moe=True),
    # vLLM computes gated delta nets on a CPU in bfloat16 alone
    Family("Qwen3.5", "Qwen3_5TextConfig", _HYBRID, dtype="bfloat16"),
    Family("Qwen3.5-MoE", "Qwen3_5MoeTextConfig", {**_HYBRID, **_SHARED_EXPERT}, is_moe=True, dtype="bfloat16"),
    Family("Qwen3-Next", "Qwen3NextConfig", {**_HYBRID, **_SHARED_EXPERT}, is_moe=True, dtype="bfloat16"),
    Family("Llama 3", "LlamaConfig", {"rope_parameters": {
        "rope_type": "llama3", "rope_theta": 500000.0, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    }}),
    Family("Llama 4 (text)", "Llama4TextConfig", {
        **_LOCAL, "num_experts_per_tok": 1, "intermediate_size_mlp": 128, "attention_chunk_size": _CHUNK,
        "layer_types": ["chunked_attention", "full_attention"], "no_rope_layers": [1, 0],
        "interleave_moe_layer_step": 1, "floor_scale": 64,
    }, is_moe=True, generation={"attn_temperature_tuning": True}),
    Family("Mistral", "MistralConfig", {"sliding_window": None}),
    Family("Mistral with a window", "MistralConfig", {"sliding_window": WINDOW}),
    Family("Ministral 3", "Ministral3Config", {"sliding_window": None, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 10000.0, "factor": 2.0, "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0,
        "mscale_all_dim": 1.0, "original_max_position_embeddings": CONTEXT, "llama_4_scaling_beta": 0.1,
    }}),
    Family("Mixtral", "MixtralConfig", {**_LOCAL, "sliding_window": None}, is_moe=True),
    Family("Gemma 2", "Gemma2Config", {**_WINDOWED, "query_pre_attn_scalar": 32}),
    Family("Gemma 3", "Gemma3TextConfig", {**_WINDOWED, "query_pre_attn_scalar": 32}),
    Family("Gemma 4", "Gemma4TextConfig", {
        **_WINDOWED, "vocab_size_per_layer_input": VOCABULARY, "hidden_size_per_layer_input": 32,
    }),
    Family("Phi-4", "Phi3Config", {**_TWO_HEADS, "sliding_window": None, "tie_word_embeddings": False}, ("head_dim",)),
    Family("OLMo 2", "Olmo2Config", _TWO_HEADS, ("head_dim",)),
    Family("OLMo 3", "Olmo3Config", {**_WINDOWED, **_TWO_HEADS}, ("head_dim",)),
    Family("gpt-oss", "GptOssConfig", {**_LOCAL, **_WINDOWED, "rope_parameters": {
        "rope_type": "yarn", "rope_theta": 150000.0, "factor": 8.0, "beta_fast": 32.0, "beta_slow": 1.0,
        "truncate": False, "original_max_position_embeddings": 64,
    }}, is_moe=True),
    Family("DeepSeek-V3-like", "DeepseekV3Config", {
        **_ROUTED, "num_key_value_heads": 4, "q_lora_rank": 32, "qk_nope_head_dim": 16, "v_head_dim": 32,
        "num_nextn_predict_layers": 0,
        "kv_lora_rank": 512, "qk_rope_head_dim": 64,  # the only sizes of the latent cache in vLLM's CPU build
        # of vLLM alone, as in DeepSeek's files: a bias of the router's scores, which are sigmoids
        "topk_method": "noaux_tc", "scoring_func": "sigmoid",
    }, ("head_dim",), is_moe=True),
    Family("GLM 4 MoE", "Glm4MoeConfig", {**_ROUTED, "num_nextn_predict_layers": 0}, is_moe=True),
    Family("Granite", "GraniteConfig", {
        **_TWO_HEADS, "embedding_multiplier": 2.0, "logits_scaling": 2.0, "residual_multiplier": 0.5,
        "attention_multiplier": 0.2,
    }, ("head_dim",)),
    Family("Granite hybrid", "GraniteMoeHybridConfig", {
        **_TWO_HEADS, "layer_types": ["mamba", "attention"], "num_local_experts": 0, "num_experts_per_tok": 0,
        "shared_intermediate_size": 128, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16,
        "mamba_chunk_size": 32, "attention_multiplier": 0.2, "position_embedding_type": "rope",
    }, ("head_dim",)),
    Family("Falcon-H1", "FalconH1Config", {
        **_TWO_HEADS, "mamba_d_ssm": 128, "mamba_n_heads": 4, "mamba_d_head": 32, "mamba_d_state": 16,
        "mamba_chunk_size": 32,
    }),
    Family("Nemotron-H", "NemotronHConfig", {
        **_TWO_HEADS, "layers_block_type": ["mamba", "attention", "mlp"],
        "mamba_num_heads": 4, "mamba_head_dim": 32, "ssm_state_size": 16, "n_groups": 1, "chunk_size": 32,
    }, ("num_hidden_layers",)),
    Family("SmolLM2", "LlamaConfig", {"tie_word_embeddings": True}),
    Family("SmolLM3", "SmolLM3Config", {
        "num_hidden_layers": 4, "no_rope_layers": [1, 1, 1, 0], "layer_types": ["full_attention"] * 4,
    }),
)  # fmt: skip


def _vary(name: str, text: str, whole: str = "", quantization: str = "") -> Family:
    one = next(one for one in _TEXT_FAMILIES if one.name == text)
    return replace(one, name=name, whole=whole, quantization=quantization)


FAMILIES: Final = (
    *_TEXT_FAMILIES,
    _vary("Gemma 3 with images", "Gemma 3", "Gemma3Config"),
    _vary("Gemma 4 with images", "Gemma 4", "Gemma4Config"),
    _vary("Llama 4 with images", "Llama 4 (text)", "Llama4Config"),
    _vary("Mistral 3 with images", "Mistral", "Mistral3Config"),
    _vary("Qwen3.5 with images", "Qwen3.5", "Qwen3_5Config"),
    _vary("Qwen3.5-MoE with images", "Qwen3.5-MoE", "Qwen3_5MoeConfig"),
    _vary("Qwen2.5-VL", "Qwen2.5", "Qwen2_5_VLConfig"),
    _vary("Qwen3 in FP8", "Qwen3", quantization="fp8"),
    _vary("Qwen3 in AWQ", "Qwen3", quantization="awq"),
    _vary("Qwen3 in GPTQ", "Qwen3", quantization="gptq"),
    _vary("gpt-oss in MXFP4", "gpt-oss", quantization="mxfp4"),
)


def find_family(name: str) -> Family:
    """The family of this name or slug, whatever its case. Raises KeyError."""
    for one in FAMILIES:
        if name.lower() in {one.name.lower(), one.slug}:
            return one
    raise KeyError(name)


def write_model(family: Family, folder: Path) -> Path:
    """Write the tiny model into a folder: config.json, random weights in float32, tokenizer and chat template."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        made = AutoModelForImageTextToText if family.whole else AutoModelForCausalLM
        model = made.from_config(family.make_config(), dtype=torch.float32)
        _randomise(model)
    model.save_pretrained(folder)
    if family.generation:
        (folder / "generation_config.json").write_text(json.dumps(dict(family.generation)), "utf-8")
    make_tokenizer([_TEXT], VOCABULARY).save_pretrained(folder)
    if family.quantization:
        quantize_model(folder, family.quantization)
    return folder


def _randomise(model: torch.nn.Module) -> None:
    """Draw what transformers begins with ones or zeros, so that leaving it out changes the logits."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)

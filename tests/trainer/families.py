"""Tiny random models of transformers' own configurations: 2 layers, hidden size 32, 4 experts of which 2 are active."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from transformers import PreTrainedModel

VOCABULARY: Final = 64
_SHAPE: dict[str, Any] = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 48, "vocab_size": VOCABULARY, "initializer_range": 0.1, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "max_position_embeddings": 512,
}  # fmt: skip
_TOP: dict[str, Any] = {"num_experts_per_tok": 2}


def _of(model: str, config: str | None = None, **given: Any) -> Callable[[], PreTrainedModel]:
    def make() -> PreTrainedModel:
        import transformers

        kind = getattr(transformers, config or f"{model.removesuffix('ForCausalLM')}Config")
        made: PreTrainedModel = getattr(transformers, model)(kind(**{**_SHAPE, **given}))
        return made

    return make


_LINEAR: dict[str, Any] = {
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    "layer_types": ["linear_attention", "full_attention"], "head_dim": 8,
}  # fmt: skip
_SHARED: dict[str, Any] = {"moe_intermediate_size": 24, "shared_expert_intermediate_size": 24}
_DEEP: dict[str, Any] = {
    "n_routed_experts": 4, "n_shared_experts": 1, "moe_intermediate_size": 24, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "routed_scaling_factor": 1.5, **_TOP,
}  # fmt: skip

MIXTURES: Final[dict[str, Callable[[], PreTrainedModel]]] = {
    "qwen3-moe": _of(
        "Qwen3MoeForCausalLM", num_experts=4, moe_intermediate_size=24, head_dim=8, norm_topk_prob=True, **_TOP
    ),
    "qwen3.5-moe": _of("Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig", num_experts=4, **_SHARED, **_LINEAR, **_TOP),
    "mixtral": _of("MixtralForCausalLM", num_local_experts=4, sliding_window=None, **_TOP),
    "gpt-oss": _of("GptOssForCausalLM", num_local_experts=4, head_dim=8, sliding_window=16, **_TOP),
    "deepseek-v3": _of(
        "DeepseekV3ForCausalLM", kv_lora_rank=16, q_lora_rank=16, qk_rope_head_dim=8, qk_nope_head_dim=8, v_head_dim=8,
        **{**_DEEP, "num_key_value_heads": 4},
    ),
    "glm4-moe": _of("Glm4MoeForCausalLM", head_dim=8, **_DEEP),
    "llama4": _of(
        "Llama4ForCausalLM", "Llama4TextConfig", num_local_experts=4, intermediate_size_mlp=48, head_dim=8,
        interleave_moe_layer_step=1, attention_chunk_size=16, num_experts_per_tok=1,
    ),
    "granite-moe": _of("GraniteMoeForCausalLM", num_local_experts=4, **_TOP),
}  # fmt: skip
DENSE: Final[dict[str, Callable[[], PreTrainedModel]]] = {
    "qwen3": _of("Qwen3ForCausalLM", head_dim=8),
    "llama3": _of("LlamaForCausalLM"),
    "phi3": _of("Phi3ForCausalLM"),
    "gemma3": _of("Gemma3ForCausalLM", "Gemma3TextConfig", head_dim=8, sliding_window=16),
    "falcon-h1": _of(
        "FalconH1ForCausalLM", head_dim=8, mamba_d_ssm=32, mamba_n_heads=4, mamba_d_head=8, mamba_d_state=8,
        mamba_chunk_size=16,
    ),
    "nemotron-h": _of(
        "NemotronHForCausalLM", layers_block_type=["mamba", "attention"], head_dim=8, mamba_num_heads=4,
        mamba_head_dim=8, ssm_state_size=8, n_groups=1, chunk_size=16,
    ),
}  # fmt: skip


def make_model(family: str) -> PreTrainedModel:
    """A model with reproducible weights. Routers are spread far enough that tokens differ in their experts."""
    make = (MIXTURES | DENSE)[family]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = make()
        for name, parameter in model.named_parameters():
            if parameter.ndim > 1 and not parameter.any():  # some classes leave experts and routers at zero
                torch.nn.init.normal_(parameter, std=0.1)
            elif ".router." in name or ".gate." in name:
                torch.nn.init.normal_(parameter, std=0.3)
    return model


def save_family(family: str, folder: Path) -> Path:
    """Save a model of a family, as a base."""
    make_model(family).save_pretrained(folder)
    return folder

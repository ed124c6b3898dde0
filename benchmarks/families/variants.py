"""Models around or instead of a family's text model: bases that read images, and bases with quantised weights.

Owns: their configurations, and quantising a written model by the formats' definitions. Refuses: what is done with them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedConfig

_WEIGHTS: Final = "model.safetensors"
_TOWER: Final[Mapping[str, Any]] = {
    "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28,
    "patch_size": 14,
}  # fmt: skip
_QWEN_TOWER: Final[Mapping[str, Any]] = {
    "hidden_size": 32, "intermediate_size": 48, "depth": 1, "num_heads": 2, "out_hidden_size": 64, "patch_size": 14,
}  # fmt: skip
_QWEN_MARKS: Final[Mapping[str, Any]] = {
    "image_token_id": 300, "video_token_id": 301, "vision_start_token_id": 302, "vision_end_token_id": 303,
}  # fmt: skip
# transformers' configuration class of the whole → what it has beside the text part.
_AROUND: Final[Mapping[str, Mapping[str, Any]]] = {
    "Gemma3Config": {
        "vision_config": {**_TOWER, "model_type": "siglip_vision_model"}, "mm_tokens_per_image": 4,
        "image_token_index": 300, "boi_token_index": 301, "eoi_token_index": 302,
    },
    "Gemma4Config": {"vision_config": dict(_TOWER), "audio_config": None, "image_token_id": 300},
    "Llama4Config": {
        "vision_config": {**_TOWER, "vision_output_dim": 32, "projector_input_dim": 32, "projector_output_dim": 32},
        "image_token_index": 300,
    },
    "Mistral3Config": {"vision_config": {**_TOWER, "model_type": "pixtral"}, "image_token_index": 300},
    "Qwen2_5_VLConfig": {"vision_config": dict(_QWEN_TOWER), **_QWEN_MARKS},
    "Qwen3_5Config": {"vision_config": dict(_QWEN_TOWER), **_QWEN_MARKS},
    "Qwen3_5MoeConfig": {"vision_config": dict(_QWEN_TOWER), **_QWEN_MARKS},
}  # fmt: skip


def around(text: PreTrainedConfig, whole: str) -> PreTrainedConfig:
    """The configuration of a model with a tiny vision tower before this text model."""
    given = {**text.to_dict()}
    if whole == "Qwen2_5_VLConfig":  # its text part is of a class of its own
        given = {name: value for name, value in given.items() if name != "model_type"}
        given["rope_parameters"] = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": [4, 6, 6]}
    made: PreTrainedConfig = getattr(transformers, whole)(text_config=given, **_AROUND[whole])
    return made


def quantize_model(folder: Path, method: str) -> None:
    """Quantise the model in a folder: `fp8` and `mxfp4` by their definitions; of others only config.json says it."""
    config = json.loads((folder / "config.json").read_text("utf-8"))
    config["quantization_config"] = {"quant_method": method, **_SETTINGS.get(method, {})}
    (folder / "config.json").write_text(json.dumps(config, indent=1), "utf-8")
    if (rule := _RULES.get(method)) is None:
        return
    made: dict[str, Tensor] = {}
    for name, tensor in load_file(folder / _WEIGHTS).items():
        made |= dict(rule(name, tensor))
    save_file(made, folder / _WEIGHTS, metadata={"format": "pt"})


_BLOCK: Final = 128  # rows and columns that share a scale
_GROUP: Final = 32  # numbers that share an exponent
_FP4: Final = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
_SETTINGS: Final[Mapping[str, Mapping[str, Any]]] = {
    "fp8": {"activation_scheme": "dynamic", "fmt": "e4m3", "weight_block_size": [_BLOCK, _BLOCK]},
    "awq": {"bits": 4, "group_size": 128, "version": "gemm", "zero_point": True},
    "gptq": {"bits": 4, "group_size": 128, "desc_act": False},
}


def _to_fp8(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Linear layers as float8 (e4m3) with one scale for a block of 128 × 128."""
    if ".layers." not in name or not name.endswith("_proj.weight"):
        yield name, tensor
        return
    rows, columns = (-(-size // _BLOCK) for size in tensor.shape)
    scales = torch.empty(rows, columns)
    quantised = torch.empty(tensor.shape, dtype=torch.float8_e4m3fn)
    for row in range(rows):
        for column in range(columns):
            at = (slice(row * _BLOCK, (row + 1) * _BLOCK), slice(column * _BLOCK, (column + 1) * _BLOCK))
            scales[row, column] = scale = tensor[at].abs().amax().clamp_min(1e-12) / 448.0
            quantised[at] = (tensor[at] / scale).to(torch.float8_e4m3fn)
    yield name, quantised
    yield f"{name}_scale_inv", scales


def _to_mxfp4(name: str, tensor: Tensor) -> Iterator[tuple[str, Tensor]]:
    """gpt-oss's experts as 4-bit floats (e2m1) of which 32 along the input share a power of two."""
    if not name.endswith(("gate_up_proj", "down_proj")):
        yield name, tensor
        return
    groups = tensor.transpose(1, 2).reshape(tensor.shape[0], tensor.shape[2], -1, _GROUP)
    exponents = torch.ceil(torch.log2(groups.abs().amax(-1).clamp_min(1e-12) / float(_FP4[-1])))
    scaled = groups / torch.exp2(exponents)[..., None]
    nearest = (scaled.abs()[..., None] - _FP4).abs().argmin(-1)
    codes = nearest + 8 * (scaled < 0)
    packed = (codes[..., 0::2] + 16 * codes[..., 1::2]).to(torch.uint8)
    yield f"{name}_blocks", packed.contiguous()
    yield f"{name}_scales", (exponents + 127).to(torch.uint8)


_RULES: Final[Mapping[str, Callable[[str, Tensor], Iterator[tuple[str, Tensor]]]]] = {
    "fp8": _to_fp8, "mxfp4": _to_mxfp4,
}  # fmt: skip

"""Merge an adapter into its base: a model folder without a LoRA that computes the same.

Owns: the sum of weights, and the files of the new model. Refuses: which adapter (`recorder.registry.versions`), and
quantising the result.

The sum is made in float32 and stored in the base's precision: in bfloat16 it is rounded, and logprobs differ by that
from those of base and adapter apart.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, PreTrainedModel

from trainer.artifacts import adapters
from trainer.errors import AdapterInvalid
from trainer.lora.expert_layer import is_transposed
from trainer.lora.file_layout import ExpertLayout
from trainer.lora.targets import is_fused_experts
from trainer.policy.base_model import first_architecture, read_config

_PREFIX: Final = "base_model.model."
_COPIED: Final = ("tokenizer*", "*.jinja", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json",
                  "*.model", "tekken.json", "*.tiktoken", "generation_config.json")  # fmt: skip


def merge_adapter(base: Path, adapter: Path, target: Path) -> None:
    """Write base + adapter into the folder `target`, with the base's tokenizer.

    Raises `AdapterInvalid` if the adapter's files are damaged or fit no module of the base, and OSError.
    """
    model = AutoModelForCausalLM.from_pretrained(base, dtype="auto", local_files_only=True)
    rank = adapters.lora_rank(adapter)
    layout = ExpertLayout.of(first_architecture(read_config(base)), rank)
    add_to_weights(model, adapters.read_adapter(adapter, None, layout), rank, adapters.lora_alpha(adapter) / rank)
    model.save_pretrained(target)
    for path in {path for pattern in _COPIED for path in base.glob(pattern)}:
        shutil.copyfile(path, target / path.name)


@torch.no_grad()
def add_to_weights(model: PreTrainedModel, state: Mapping[str, Tensor], rank: int, scale: float) -> None:
    """Add a LoRA to the weights of a plain model. `state`: as the trainer has it. Raises `AdapterInvalid`."""
    for name, a in state.items():
        module, found, suffix = name.partition(".lora_A.")
        if found:
            weight, is_turned = _weight_of(model, module.removeprefix(_PREFIX))
            delta = scale * _product(a.float(), state[f"{module}.lora_B.{suffix}"].float(), rank, weight.ndim)
            delta = delta.transpose(-2, -1) if is_turned else delta
            if delta.shape != weight.shape:
                raise AdapterInvalid(f"the adapter's tensor {name} does not fit the base: was it made for another one?")
            weight.copy_((weight.float() + delta).to(weight.dtype))


def _product(a: Tensor, b: Tensor, rank: int, dimensions: int) -> Tensor:
    """B·A: (out, in), or (experts, out, in)."""
    if dimensions == 2:
        return b @ a
    return torch.einsum("ore,eri->eoi", b.reshape(b.shape[0], rank, -1), a.reshape(-1, rank, a.shape[1]))


def _weight_of(model: nn.Module, name: str) -> tuple[Tensor, bool]:
    """The weight of a module that has a LoRA, and whether it is (experts, in, out)."""
    modules: dict[str, Any] = dict(model.named_modules())
    module = modules.get(name.removesuffix(".base_layer"))
    if module is not None and is_fused_experts(module):
        parameter = "gate_up_proj" if name.endswith(".base_layer") else "down_proj"
        return getattr(module, parameter), is_transposed(module)
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        raise AdapterInvalid(f"the base has no module {name}, on which the adapter has a LoRA.")
    return weight, False

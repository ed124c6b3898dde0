"""Which weights of a base `trainer.quantize` quantises, and doing it to a loaded model.

Owns: the choice of layers, and refusing bases that are quantised already. Refuses: the layer itself
(`trainer.quantization.nf4`).

The linear layers of the language model are quantised. Embeddings and output head stay plain, because logprobs are most
sensitive to them; routers, because a rounded one chooses other experts; and fused experts, for whose products
bitsandbytes has no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from transformers import PreTrainedModel

from recorder.models.weights import quantization_method
from trainer.errors import UnsupportedModel
from trainer.lora.targets import is_fused_experts, is_router
from trainer.quantization.nf4 import NF4, Nf4Linear


def require_plain_weights(base: str, config: Mapping[str, Any], quantize: str | None) -> None:
    """Raise `UnsupportedModel` if the weights of a base are to be quantised and are so already.

    `config`: the contents of config.json.
    """
    method = quantization_method(config)
    if quantize is None or method is None:
        return
    raise UnsupportedModel(
        f'trainer.quantize = "{quantize}" quantises plain weights, and those of the base {base} are quantised by '
        f"{method}: leave trainer.quantize out, or train the model that it was quantised from."
    )


def quantize_layers(model: PreTrainedModel, device: torch.device) -> None:
    """Replace the linear layers of a model by copies in nf4 on the device. Raises `TrainerError`."""
    _replace(model, lambda layer: Nf4Linear.of(layer, device))


def shape_layers(model: PreTrainedModel) -> int:
    """Replace the same layers by copies without data. Return how many bytes fewer the model has."""
    _replace(model, Nf4Linear.shaped)
    return sum(layer.saved_bytes for layer in model.modules() if isinstance(layer, Nf4Linear))


def explain_quantized(model: PreTrainedModel, quantize: str) -> str:
    """Which share of a plain model's weights is quantised, in one sentence."""
    share = sum(layer.weight.numel() for layer in _quantizable(model)) / sum(one.numel() for one in model.parameters())
    experts = ", experts" if any(is_fused_experts(module) for module in model.modules()) else ""
    return (
        f'trainer.quantize = "{quantize}" quantises {share:.0%} of the weights; embeddings, output head{experts} and '
        "the rest stay as they are."
    )


def is_quantized(model: nn.Module) -> bool:
    """Whether a model has layers in nf4."""
    return any(isinstance(module, Nf4Linear) for module in model.modules())


def _replace(model: PreTrainedModel, copy: Callable[[nn.Linear], Nf4Linear]) -> None:
    copies = {layer: copy(layer) for layer in _quantizable(model)}
    for module in list(model.modules()):
        for name, child in module.named_children():
            if isinstance(child, nn.Linear) and child in copies:
                setattr(module, name, copies[child])
    if not copies:
        raise UnsupportedModel(f'trainer.quantize = "{NF4}" finds no linear layer in {type(model).__name__}.')


def _quantizable(model: PreTrainedModel) -> Iterator[nn.Linear]:
    head = model.get_output_embeddings()
    for name, module in model.named_modules():
        if type(module) is nn.Linear and module is not head and not is_router(name):
            yield module

"""A frozen linear layer in nf4: 4 bits a weight, made into plain numbers for each product.

Owns: the layer, its tensors, and calling bitsandbytes. Refuses: which layers of a model become one
(`trainer.quantization.layers`).

A weight is one of 16 levels of a normal distribution, times the scale of its block of 64. The scales have 8 bits, and a
scale of their own for each 256 (QLoRA, arXiv 2305.14314, section 3): 0.516 bytes a weight in all.

bitsandbytes' own layer is not used. On a CPU with AVX512-BF16 it converts its weights in the first pass without a
gradient, and from then on passes none back. On a GPU its kernels differ by the number of tokens, and rows would get
other logprobs packed than alone.
"""

from __future__ import annotations

import importlib
import math
from functools import cache
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor

from trainer.errors import TrainerError

NF4: Final = "nf4"
_BLOCK: Final = 64  # weights with one scale
_SCALES: Final = 256  # scales with one scale
_CODES: Final = 256  # levels of a scale


class Nf4Linear(nn.Linear):
    """A linear layer without a gradient of its own. `weight`: two weights a byte, (bytes, 1)."""

    scales: Tensor
    scales_of_scales: Tensor
    codes: Tensor
    offset: Tensor

    def __init__(self, layer: nn.Linear, packed: Tensor, **scales: Tensor) -> None:
        """`layer`: what it is a copy of; its bias is taken over. `scales`: the buffers."""
        super().__init__(layer.in_features, layer.out_features, bias=False, device="meta")
        self.dtype = layer.weight.dtype
        self.weight = nn.Parameter(packed, requires_grad=False)
        self.bias = layer.bias
        for name, tensor in scales.items():
            self.register_buffer(name, tensor, persistent=False)

    @classmethod
    def of(cls, layer: nn.Linear, device: torch.device) -> Nf4Linear:
        """Quantise a layer's weights, on the device. Raises `TrainerError` without bitsandbytes."""
        weights = layer.weight.detach().to(device)
        packed, state = _library().quantize_4bit(weights, blocksize=_BLOCK, compress_statistics=True, quant_type=NF4)
        outer = state.state2
        return cls(
            layer, packed, scales=state.absmax, scales_of_scales=outer.absmax, codes=outer.code, offset=state.offset
        )

    @classmethod
    def shaped(cls, layer: nn.Linear) -> Nf4Linear:
        """A layer of the same shapes without data, on the layer's device."""
        numbers = layer.weight.numel()
        blocks = math.ceil(numbers / _BLOCK)
        new = layer.weight.detach().new_empty
        return cls(
            layer,
            new((math.ceil(numbers / 2), 1), dtype=torch.uint8),
            scales=new(blocks, dtype=torch.uint8),
            scales_of_scales=new(math.ceil(blocks / _SCALES), dtype=torch.float32),
            codes=new(_CODES, dtype=torch.float32),
            offset=new((), dtype=torch.float32),
        )

    @property
    def saved_bytes(self) -> int:
        """How many bytes fewer it has than the layer that it is a copy of."""
        plain = self.in_features * self.out_features * self.dtype.itemsize
        return plain - sum(one.numel() * one.itemsize for one in (self.weight, *self.buffers()))

    def dequantized(self) -> Tensor:
        """The weights as numbers of the base's dtype: (out, in)."""
        shape = (self.out_features, self.in_features)
        if isinstance(self.weight, FakeTensor):
            return self.weight.new_empty(shape, dtype=self.dtype)
        library = _library()
        scales = library.QuantState(self.scales_of_scales, code=self.codes, blocksize=_SCALES, dtype=torch.float32)
        state = library.QuantState(
            self.scales,
            (math.prod(shape),),  # as one line: of rows that blocks do not divide, the kernel for CPUs mixes up scales
            blocksize=_BLOCK,
            quant_type=NF4,
            dtype=self.dtype,
            offset=self.offset,
            state2=scales,
        )
        numbers: Tensor = library.dequantize_4bit(self.weight, state).reshape(shape)
        return numbers

    def forward(self, states: Tensor) -> Tensor:
        """States (…, in) → (…, out), in the base's dtype."""
        product: Tensor = _Product.apply(states.to(self.dtype), self)  # type: ignore[no-untyped-call]
        return product


class _Product(torch.autograd.Function):
    """A product that keeps no plain weights for its backward pass: they are made again."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, layer: Nf4Linear) -> Tensor:
        ctx.layer = layer
        return F.linear(states, layer.dequantized(), layer.bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] @ ctx.layer.dequantized(), None


@cache
def _library() -> Any:
    """The functions of bitsandbytes. Raises `TrainerError` where it is not installed."""
    try:
        return importlib.import_module("bitsandbytes.functional")
    except ImportError as e:
        raise TrainerError(
            f'trainer.quantize = "{NF4}" needs bitsandbytes, which cannot be imported ({e}): '
            "pip install 'hone-proxy[nf4]'."
        ) from e

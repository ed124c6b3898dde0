"""A LoRA on the experts of a mixture, computed beside their weights as the engine does: x·W + scale·(x·A)·B.

Owns: the layer that PEFT puts around experts, and the forward pass of experts, with a LoRA or without one. Refuses:
which experts get one (`trainer.lora.targets`), and names in files (`trainer.lora.file_layout`).

PEFT itself adds scale·A·B to the weights in every pass, and computes a gradient of all experts' weights for it: a layer
of Qwen3-30B-A3B then holds its experts twice (1.1 GiB more), and a pass of a small mixture on a CPU core takes 1.2 (in
bfloat16) to 1.4 times as long.

The shapes and names of the matrices are PEFT's, for n experts of rank r: A is (r·n, in) with the experts one after
another; B is (out, r·n) with the ranks one after another.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS, grouped_mm_experts_forward

from trainer.lora.peft_library import ParamWrapper, PeftModel
from trainer.lora.targets import is_fused_experts

NAME: Final = "hone_experts"  # how transformers' configuration names this forward pass
_ALIGNMENT: Final = 16  # bytes: torch's grouped product takes rows of multiples of it


@dataclass(frozen=True, slots=True)
class ExpertFactors:
    """The LoRA of one parameter. `a`: (experts, rank, in); `b`: (experts, out, rank)."""

    a: Tensor
    b: Tensor
    scale: float


Factors = Mapping[str, ExpertFactors]  # by parameter: gate_up_proj, down_proj


def use_own_experts(model: PeftModel) -> None:
    """Compute all experts of a model by this module, those with a LoRA and those without."""
    base = model.get_base_model()
    for module in base.modules():
        if isinstance(module, ParamWrapper) and is_fused_experts(module.get_base_layer()):
            module.__class__ = ExpertLora  # PEFT knows its own wrappers by the name of their class while it makes them
    if any(hasattr(module, "_apply_gate") for module in base.modules()):
        ALL_EXPERTS_FUNCTIONS.register(NAME, compute_experts)
        base.set_experts_implementation(NAME)


class ExpertLora(ParamWrapper):  # type: ignore[misc]  # PEFT has no types
    """PEFT's wrapper of one parameter of experts, with another forward pass.

    Two are nested: the outer one has `down_proj`, the inner one `gate_up_proj`.
    """

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """States (tokens, hidden) and what the router chose → (tokens, hidden)."""
        factors = {} if self.disable_adapters else _factors_of(self)
        return compute_experts(self.get_base_layer(), x, *args, factors=factors, **kwargs)


def _factors_of(layer: nn.Module) -> Factors:
    found = {}
    while isinstance(layer, ExpertLora):
        a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        a = a.reshape(layer.num_experts, -1, a.shape[-1])
        b = b.reshape(b.shape[0], -1, layer.num_experts).permute(2, 0, 1)
        found[layer.parameter_name] = ExpertFactors(a, b, layer.scaling["default"])
        layer = layer.base_layer
    return found


def compute_experts(
    experts: Any,
    states: Tensor,
    top_k_index: Tensor | None = None,
    top_k_weights: Tensor | None = None,
    *,
    factors: Factors | None = None,
) -> Tensor:
    """Return the experts' output for states (tokens, hidden).

    `top_k_index`, `top_k_weights`: (tokens, k), the router's choice. Without them every expert computes the same number
    of states, which lie one expert after another (Llama 4).
    """
    factors = factors or {}
    if not hasattr(experts, "gate_up_proj"):  # experts without a gate
        plain: Tensor = grouped_mm_experts_forward(experts, states, top_k_index, top_k_weights)
        return plain
    if top_k_index is None or top_k_weights is None:
        return _compute_sorted(experts, states, factors)
    tokens, k = top_k_index.shape
    chosen, order = torch.sort(top_k_index.reshape(-1))
    count = experts.gate_up_proj.shape[0]
    sizes = torch.histc(
        chosen.float() if states.device.type == "cpu" else chosen.int(), bins=count, min=0, max=count - 1
    )
    grouped = _ExpertRows(torch.cumsum(sizes, 0, dtype=torch.int32), chosen)
    out = _run(experts, states[order // k], factors, grouped)
    out = out * top_k_weights.reshape(-1)[order].unsqueeze(-1)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order), device=order.device)
    summed: Tensor = out[place].view(tokens, k, -1).sum(1)
    return summed.to(states.dtype)


def _compute_sorted(experts: Any, states: Tensor, factors: Factors) -> Tensor:
    count = experts.gate_up_proj.shape[0]
    each = states.shape[0] // count
    ends = torch.arange(1, count + 1, device=states.device, dtype=torch.int32) * each
    chosen = torch.arange(count, device=states.device).repeat_interleave(each)
    return _run(experts, states, factors, _ExpertRows(ends, chosen))


def _run(experts: Any, states: Tensor, factors: Factors, grouped: _ExpertRows) -> Tensor:
    gate_up = _project(experts, "gate_up_proj", states, factors, grouped)
    if hasattr(experts, "_apply_gate"):
        inner = experts._apply_gate(gate_up)
    else:
        gate, up = gate_up.chunk(2, -1)
        inner = up * experts.act_fn(gate)
    return _project(experts, "down_proj", inner, factors, grouped)


def is_transposed(experts: Any) -> bool:
    """Whether the weights are (experts, in, out), not (experts, out, in)."""
    gate_up, down = experts.gate_up_proj, experts.down_proj
    return bool(gate_up.shape[2] == 2 * down.shape[1])


def _project(experts: Any, name: str, states: Tensor, factors: Factors, grouped: _ExpertRows) -> Tensor:
    weight = getattr(experts, name)
    states = states.to(weight.dtype)  # the grouped product takes no part in autocast
    out = grouped.multiply(states, weight if is_transposed(experts) else weight.transpose(1, 2))
    bias = getattr(experts, f"{name}_bias", None)
    if bias is not None:
        out = out + bias[grouped.chosen]
    lora = factors.get(name)
    return out if lora is None else out + grouped.add_on(states, lora)


@dataclass(frozen=True, slots=True)
class _ExpertRows:
    """Rows sorted by expert. `ends`: (experts,), int32; `chosen`: each row's expert."""

    ends: Tensor
    chosen: Tensor

    def multiply(self, rows: Tensor, weight: Tensor) -> Tensor:
        """Rows (n, in) by their experts' weights (experts, in, out) → (n, out)."""
        if _is_aligned(rows, weight) and not (isinstance(rows, FakeTensor) and rows.dtype != torch.bfloat16):
            return F.grouped_mm(rows, weight, offs=self.ends)
        # torch's product has no shapes in float32 for tensors without data, and refuses odd sizes
        product: Tensor = torch.ops.transformers.grouped_mm_fallback(rows, weight, self.ends)
        return product

    def add_on(self, rows: Tensor, lora: ExpertFactors) -> Tensor:
        """The output of a LoRA for rows (n, in): (n, out)."""
        a, b = lora.a.to(rows.dtype), lora.b.to(rows.dtype)
        step = _ALIGNMENT // rows.element_size()
        if missing := -a.shape[1] % step:  # zeros add nothing
            a, b = F.pad(a, (0, 0, 0, missing)), F.pad(b, (0, missing))
        inner = self.multiply(rows, a.transpose(1, 2))
        return self.multiply(inner, b.contiguous().transpose(1, 2)) * lora.scale


def _is_aligned(*tensors: Tensor) -> bool:
    """Whether every row and column of the operands begins at a multiple of the alignment."""
    sizes = (size for tensor in tensors for size in tensor.shape[-2 if tensor.ndim == 3 else -1 :])
    return all(size * tensors[0].element_size() % _ALIGNMENT == 0 for size in sizes)

"""vLLM's API server on a CPU, with adapters and positions applied correctly: a script for the engine's own Python.

   PYTHON cpu_server.py ARGUMENTS…        like `python -m vllm.entrypoints.openai.api_server ARGUMENTS…`

vLLM gives each token the slot of its adapter, and −1 if it has none. Its GPU kernels skip such a token; its operations
for a CPU (vLLM 0.32) index with −1, which is the last slot. So once that slot holds an adapter, the base is answered
with this adapter whenever it shares a batch with any adapter. They also copy an adapter's weights once per token, which
took most of the time of an engine with a small model (`benchmarks/cpu_adapters.py`).

vLLM's operation that applies rotary positions on a CPU takes the step between heads for the step between tokens where
heads are a dimension of their own. The latent attention of DeepSeek (MLA) gives it such queries, and the base's
logprobs are then wrong by tenths of a nat.

Owns: replacing the adapters' operations by one matrix product per adapter of the batch, and giving the operation for
positions its heads side by side, in each process of the engine; a child of vLLM runs this file again, by its path.
Refuses: importing anything of Hone, and vLLM's arguments (`proxy.engine.command`).
"""

from __future__ import annotations

import importlib
import inspect
import os
import runpy
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

SERVER = "vllm.entrypoints.openai.api_server"
# The modules that define the operations, or import them by name, in import order.
MODULES = (
    "vllm.lora.ops.torch_ops.lora_ops",
    "vllm.lora.ops.torch_ops",
    "vllm.lora.punica_wrapper.punica_cpu",
)

POSITIONS = "vllm._custom_ops"  # its callers look the operation up there for each call
ROTARY = "rotary_embedding"

Operation = Callable[..., None]


def bgmv_shrink(
    inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, slots: torch.Tensor, scaling: float = 1.0
) -> None:
    """`output[:, :rank] = scaling · inputs Aᵀ` for every row with an adapter; other rows are unchanged.

    `inputs`: (rows, width). `weights`: A of every slot, (slots, 1, rank, width) or without the 1. `output`: (rows, rank
    or more). `slots`: (rows,), or (1,) for all rows; below 0 is no adapter.
    """
    for rows, product in _products(inputs, weights, output, slots):
        output[rows, : product.shape[1]] = product.mul_(scaling)


def bgmv_expand(
    inputs: torch.Tensor,
    weights: torch.Tensor,
    output: torch.Tensor,
    slots: torch.Tensor,
    add_inputs: bool = True,
) -> None:
    """`output += inputs Bᵀ` (or `=`) for every row with an adapter; other rows are unchanged.

    Shapes as for `bgmv_shrink`, with B of every slot, (slots, 1, width, rank). If B and the output differ in width,
    because either may be padded, the common columns are written.
    """
    width = min(weights.shape[-2], output.shape[1])
    bgmv_expand_slice(inputs, weights[..., :width, :], output, slots, 0, width, add_inputs)


def bgmv_expand_slice(
    inputs: torch.Tensor,
    weights: torch.Tensor,
    output: torch.Tensor,
    slots: torch.Tensor,
    slice_offset: int,
    slice_size: int,
    add_inputs: bool = True,
) -> None:
    """As `bgmv_expand`, into the columns of a slice, for example of fused queries, keys and values."""
    columns = slice(slice_offset, slice_offset + slice_size)
    for rows, product in _products(inputs, weights, output, slots):
        if add_inputs:
            output[rows, columns] += product
        else:
            output[rows, columns] = product


# All operations that index by slots; vLLM's operations for whole prompts call these by name.
OPERATIONS: dict[str, Operation] = {
    operation.__name__: operation for operation in (bgmv_shrink, bgmv_expand, bgmv_expand_slice)
}


def _products(
    inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, slots: torch.Tensor
) -> Iterator[tuple[slice | torch.Tensor, torch.Tensor]]:
    """For each adapter of the batch its rows, and their inputs times its weights, in the output's dtype as in vLLM."""
    if not inputs.shape[0]:
        return
    inputs = inputs.to(output.dtype)
    if slots.numel() not in (1, inputs.shape[0]):
        raise ValueError(f"{slots.numel()} slots for {inputs.shape[0]} rows")
    lowest, highest = (int(slot) for slot in slots.aminmax())
    if lowest == highest:  # the common case, without a copy: all rows have one adapter, or none has any
        if lowest >= 0:
            yield slice(inputs.shape[0]), inputs @ _of_slot(weights, lowest, output).T
        return
    for slot in sorted(set(slots.tolist())):
        if slot >= 0:
            rows = (slots == slot).nonzero().squeeze(1)
            yield rows, inputs[rows] @ _of_slot(weights, slot, output).T


def _of_slot(weights: torch.Tensor, slot: int, output: torch.Tensor) -> torch.Tensor:
    return weights[slot].flatten(end_dim=-2).to(output.dtype)  # (1, a, b) is (a, b)


def make_rotary_embedding(theirs: Operation) -> Operation:
    """vLLM's operation for positions, which now also rotates queries and keys with a dimension for the heads."""

    def rotary_embedding(
        positions: torch.Tensor,
        query: torch.Tensor,
        key: torch.Tensor | None,
        head_size: int,
        cos_sin_cache: torch.Tensor,
        is_neox: bool,
        rope_dim_offset: int = 0,
        inverse: bool = False,
    ) -> None:
        """Rotate queries and keys in place: (…, heads · head_size) or (…, heads, head_size); `positions`: (…,)."""
        flat_query, flat_key = (_with_heads_side_by_side(one, positions) for one in (query, key))
        theirs(positions, flat_query, flat_key, head_size, cos_sin_cache, is_neox, rope_dim_offset, inverse)
        for one, flat in ((query, flat_query), (key, flat_key)):
            if one is not None and flat is not None and flat is not one:
                one.copy_(flat.view(one.shape))

    return rotary_embedding


def _with_heads_side_by_side(states: torch.Tensor | None, positions: torch.Tensor) -> torch.Tensor | None:
    """A copy without the dimension of the heads; the states themselves where they have none."""
    if states is None or states.dim() < positions.dim() + 2:
        return states
    return states.flatten(start_dim=positions.dim()).clone()


def patch_vllm() -> None:
    """Replace vLLM's operations wherever it names them. Raises SystemExit if it has none of this name."""
    modules = [importlib.import_module(name) for name in MODULES[:2]]
    # imported already only if this process serves; otherwise it will import the patched operations
    modules += [sys.modules[name] for name in MODULES[2:] if name in sys.modules]
    for name, operation in OPERATIONS.items():
        _require(modules[0], name, operation)
        for module in modules:
            setattr(module, name, operation)
    positions = importlib.import_module(POSITIONS)
    ours = make_rotary_embedding(getattr(positions, ROTARY, lambda: None))
    _require(positions, ROTARY, ours)
    setattr(positions, ROTARY, ours)


def _require(module: ModuleType, name: str, operation: Operation) -> None:
    """Check that vLLM still calls the operation as it did when this was written."""
    theirs: Operation | None = getattr(module, name, None)
    if theirs is None or _parameters(theirs) != _parameters(operation):
        raise SystemExit(
            f"{module.__name__} of this vLLM has no {name} with {_parameters(operation)} parameters: Hone cannot "
            "ensure that a CPU answers for the base without adapters, and with the right positions. Serve with vLLM "
            "0.32 (engine.python), or start an engine yourself and name it in engine.urls."
        )


def _parameters(operation: Operation) -> int:
    return len(inspect.signature(operation).parameters)


def _search_as_a_module_does() -> None:
    """Search the working folder as `python -m` does, not the script's folder, whose files would hide modules."""
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):  # noqa: PTH100, PTH120 - as sys.path has it
        sys.path[0] = os.getcwd()  # noqa: PTH109


if __name__ in ("__main__", "__mp_main__"):  # the second: a spawned child process
    _search_as_a_module_does()
    patch_vllm()
if __name__ == "__main__":
    # without alter_sys the main module stays this file, which children then run first
    runpy.run_module(SERVER, run_name="__main__")

"""vLLM's API server on a CPU, with adapters applied rightly and quickly: a script for the engine's own Python.

    PYTHON cpu_server.py ARGUMENTS…        as `python -m vllm.entrypoints.openai.api_server ARGUMENTS…`

vLLM gives each token the slot of its adapter, and −1 where it has none. Its kernels for GPUs leave such a token as it
is; the operations that a CPU takes (vLLM 0.32) index with it, and −1 is the last slot. So once that slot holds an
adapter, the base is answered by this adapter whenever it shares a batch with any. And they copy an adapter's weights
once a token, which took most of the time of an engine with a small model (`benchmarks/cpu_adapters.py`).

Owns: these operations, in their place one product an adapter of the batch, in each process of the engine; a child that
vLLM starts runs this file again, by its path. Refuses: anything of Hone (it imports none of it), and vLLM's arguments
(`proxy.engine.command`).
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
# Where the operations are defined, and where they are imported by their names: from the first to the last.
MODULES = (
    "vllm.lora.ops.torch_ops.lora_ops",
    "vllm.lora.ops.torch_ops",
    "vllm.lora.punica_wrapper.punica_cpu",
)

Operation = Callable[..., None]


def bgmv_shrink(
    inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, slots: torch.Tensor, scaling: float = 1.0
) -> None:
    """`output[:, :rank] = scaling · inputs Aᵀ` for every row that has an adapter; the others stay as they are.

    `inputs`: (rows, width). `weights`: A of every slot, (slots, 1, rank, width) or without the 1. `output`: (rows,
    rank or more). `slots`: (rows,), or (1,) for all rows; below 0 is no adapter.
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
    """`output += inputs Bᵀ` (or `=`) for every row that has an adapter; the others stay as they are.

    Shapes as for `bgmv_shrink`, with B of every slot, (slots, 1, width, rank). Where B and the output are not equally
    wide, because both may be padded, what both have is written.
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
    """As `bgmv_expand`, into the columns of a slice: of queries, keys and values in one, say."""
    columns = slice(slice_offset, slice_offset + slice_size)
    for rows, product in _products(inputs, weights, output, slots):
        if add_inputs:
            output[rows, columns] += product
        else:
            output[rows, columns] = product


# All that indexes by slots; vLLM's operations for whole prompts call these by their names.
OPERATIONS: dict[str, Operation] = {
    operation.__name__: operation for operation in (bgmv_shrink, bgmv_expand, bgmv_expand_slice)
}


def _products(
    inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, slots: torch.Tensor
) -> Iterator[tuple[slice | torch.Tensor, torch.Tensor]]:
    """For each adapter of the batch its rows, and their inputs times its weights; in the output's type, as vLLM's."""
    if not inputs.shape[0]:
        return
    inputs = inputs.to(output.dtype)
    if slots.numel() not in (1, inputs.shape[0]):
        raise ValueError(f"{slots.numel()} slots for {inputs.shape[0]} rows")
    lowest, highest = (int(slot) for slot in slots.aminmax())
    if lowest == highest:  # the common case, nothing is copied: all rows have one adapter, or none has any
        if lowest >= 0:
            yield slice(inputs.shape[0]), inputs @ _of_slot(weights, lowest, output).T
        return
    for slot in sorted(set(slots.tolist())):
        if slot >= 0:
            rows = (slots == slot).nonzero().squeeze(1)
            yield rows, inputs[rows] @ _of_slot(weights, slot, output).T


def _of_slot(weights: torch.Tensor, slot: int, output: torch.Tensor) -> torch.Tensor:
    return weights[slot].flatten(end_dim=-2).to(output.dtype)  # (1, a, b) is (a, b)


def patch_vllm() -> None:
    """Put these operations in the place of vLLM's, wherever it names them. Raises SystemExit where they are gone."""
    modules = [importlib.import_module(name) for name in MODULES[:2]]
    # imported already only where this process has begun to serve; else it imports what is mended
    modules += [sys.modules[name] for name in MODULES[2:] if name in sys.modules]
    for name, operation in OPERATIONS.items():
        _require(modules[0], name, operation)
        for module in modules:
            setattr(module, name, operation)


def _require(module: ModuleType, name: str, operation: Operation) -> None:
    """That vLLM calls the operation as it did when this was written."""
    found: Operation | None = getattr(module, name, None)
    if found is None or _parameters(found) != _parameters(operation):
        raise SystemExit(
            f"{module.__name__} of this vLLM has no {name} with {_parameters(operation)} parameters: Hone cannot see "
            "to it that a CPU answers for the base without adapters. Serve with vLLM 0.32 (engine.python), or start "
            "an engine yourself and name it in engine.urls."
        )


def _parameters(operation: Operation) -> int:
    return len(inspect.signature(operation).parameters)


def _search_as_a_module_does() -> None:
    """`python -m` searches the folder it was started in, a script the folder it lies in: files there hide others."""
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):  # noqa: PTH100, PTH120 - as sys.path has it
        sys.path[0] = os.getcwd()  # noqa: PTH109


if __name__ in ("__main__", "__mp_main__"):  # the second: a child process that begins anew
    _search_as_a_module_does()
    patch_vllm()
if __name__ == "__main__":
    # without alter_sys the main module stays this file, which is what children are told to begin with
    runpy.run_module(SERVER, run_name="__main__")

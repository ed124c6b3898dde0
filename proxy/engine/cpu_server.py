"""vLLM's API server on a CPU, with requests for the base kept from adapters: a script for the engine's own Python.

    PYTHON cpu_server.py ARGUMENTS…        as `python -m vllm.entrypoints.openai.api_server ARGUMENTS…`

vLLM gives each token the slot of its adapter, and −1 where it has none. Its kernels for GPUs leave such a token as it
is; the operations that a CPU takes (vLLM 0.32) index with it, and −1 is the last slot. So once that slot holds an
adapter, the base is answered by this adapter whenever it shares a batch with any.

Owns: these operations, mended in each process of the engine; a child that vLLM starts runs this file again, by its
path. Refuses: anything of Hone (it imports none of it), and vLLM's arguments (`proxy.engine.command`).
"""

from __future__ import annotations

import functools
import importlib
import os
import runpy
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

SERVER = "vllm.entrypoints.openai.api_server"
# Where the operations are defined, and where they are imported by their names: from the first to the last.
MODULES = (
    "vllm.lora.ops.torch_ops.lora_ops",
    "vllm.lora.ops.torch_ops",
    "vllm.lora.punica_wrapper.punica_cpu",
)
# All that write into what a layer gives; those for whole prompts call these two.
OPERATIONS = ("bgmv_expand", "bgmv_expand_slice")

Expand = Callable[..., None]


def only_where_adapted(expand: Expand) -> Expand:
    """vLLM's operation, which now leaves the rows of `output` that have no adapter (a slot below 0) as they are.

    What it wrote there is put back, and no row is multiplied by 0: an adapter may hold numbers that are not finite.
    """

    @functools.wraps(expand)
    def expand_adapted(
        inputs: torch.Tensor, weights: torch.Tensor, output: torch.Tensor, slots: torch.Tensor, *rest: Any, **more: Any
    ) -> None:
        before = output.clone()
        expand(inputs, weights, output, slots, *rest, **more)
        adapted = (slots >= 0).unsqueeze(-1)[: output.shape[0]]
        output.copy_(output.where(adapted, before))

    return expand_adapted


def mend() -> None:
    """Put mended operations in the place of vLLM's, wherever it names them. Raises SystemExit where they are gone."""
    modules = [importlib.import_module(name) for name in MODULES[:2]]
    # imported already only where this process has begun to serve; else it imports what is mended
    modules += [sys.modules[name] for name in MODULES[2:] if name in sys.modules]
    for name in OPERATIONS:
        mended = only_where_adapted(_found(modules[0], name))
        for module in modules:
            setattr(module, name, mended)


def _found(module: ModuleType, name: str) -> Expand:
    found: Expand | None = getattr(module, name, None)
    if found is None:
        raise SystemExit(
            f"{module.__name__} of this vLLM has no {name}: Hone cannot see to it that a CPU answers for the base "
            "without adapters. Serve with vLLM 0.32 (engine.python), or start an engine yourself and name it in "
            "engine.urls."
        )
    return found


def _search_as_a_module_does() -> None:
    """`python -m` searches the folder it was started in, a script the folder it lies in: files there hide others."""
    if sys.path and sys.path[0] == os.path.dirname(os.path.abspath(__file__)):  # noqa: PTH100, PTH120 - as sys.path has it
        sys.path[0] = os.getcwd()  # noqa: PTH109


if __name__ in ("__main__", "__mp_main__"):  # the second: a child process that begins anew
    _search_as_a_module_does()
    mend()
if __name__ == "__main__":
    # without alter_sys the main module stays this file, which is what children are told to begin with
    runpy.run_module(SERVER, run_name="__main__")

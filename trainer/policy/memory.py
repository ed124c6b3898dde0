"""Memory of the device that trains: recognising that it is full, giving back what is unused, and its size in words.

Owns: which errors of torch, CUDA and Python mean a full memory, and when torch's reserve is given back. Refuses: what
to do about a full memory (`trainer.step.core`).
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psutil
import torch

from trainer.batch.packing import Pack

# Beside torch.OutOfMemoryError: an allocator on the CPU, CUDA outside of torch's allocator, and cuBLAS's workspace.
_FULL: Final = ("can't allocate memory", "CUDA error: out of memory", "CUBLAS_STATUS_ALLOC_FAILED")
_GIB: Final = 1 << 30
_SHARED_BYTES: Final = 2 * _GIB  # more than CUDA's own contexts take: another process computes on the card


class PassMemoryFull(MemoryError):
    """The memory was full during a pass. `tokens` and `rows`: of that pass."""

    def __init__(self, why: str, tokens: int, rows: int) -> None:
        super().__init__(why, tokens, rows)  # all of it: another process may read the error
        self.tokens, self.rows = tokens, rows

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def pass_errors(one: Pack) -> Iterator[None]:
    """Report a full memory within as `PassMemoryFull`."""
    try:
        yield
    except (RuntimeError, MemoryError) as e:
        if not is_out_of_memory(e):
            raise
        raise PassMemoryFull(str(e), len(one), len(one.rows)) from e


# The allocator's settings, by the names that torch reads; a user's own are left as they are.
_ALLOCATOR: Final = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")


def use_expandable_segments(device: torch.device) -> None:
    """Let torch grow its segments of a GPU instead of keeping many that fit no later pass. Call it before it has any.

    It is set in this process alone, not by a variable: an engine that the same command starts would inherit that, and
    vLLM refuses to sleep with such segments.
    """
    if device.type == "cuda" and not any(os.environ.get(name) for name in _ALLOCATOR):
        torch._C._accelerator_setAllocatorSettings("expandable_segments:True")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of the device, or of the machine, is full."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in _FULL)


def release_memory(device: torch.device) -> None:
    """Give back what a failed pass held. Call it outside of the `except`: its traceback holds tensors."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def release_pool(device: torch.device) -> bool:
    """Give back what torch reserves and does not use, if another process (an engine) computes on the same GPU.

    Call it between steps: torch asks for the memory again in the next one. Returns whether anything was given back.
    """
    if device.type != "cuda" or not is_shared(device):
        return False
    torch.cuda.empty_cache()
    torch.accelerator.empty_host_cache()  # pinned memory that held layers' inputs
    return True


def empty_pool(device: torch.device) -> None:
    """Give back all that torch reserves, on the device and pinned in host memory: another process takes the device."""
    release_memory(device)
    if device.type == "cuda":
        torch.accelerator.empty_host_cache()


def is_shared(device: torch.device) -> bool:
    """Whether other processes hold much of a GPU's memory."""
    free, total = torch.cuda.mem_get_info(device)
    return bool(total - free - torch.cuda.memory_reserved(device) > _SHARED_BYTES)


def host_free_bytes() -> int:
    """What is free of the machine's memory now."""
    return int(psutil.virtual_memory().available)


def device_name(device: torch.device) -> str:
    """The device and its whole memory, for example `NVIDIA H100 80GB HBM3 (79 GiB)` or `cpu (16 GiB)`."""
    if device.type == "cuda":
        size = torch.cuda.get_device_properties(device).total_memory
        return f"{torch.cuda.get_device_name(device)} ({size / _GIB:.0f} GiB)"
    return f"{device.type} ({psutil.virtual_memory().total / _GIB:.0f} GiB)"


def free_bytes(device: torch.device) -> int:
    """What is free of the device's memory now."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return host_free_bytes()


def free_memory(device: torch.device) -> str:
    """What is free of the device's memory now, for a sentence: `0.4 GiB free of cpu (16 GiB)`."""
    return f"{free_bytes(device) / _GIB:.1f} GiB free of {device_name(device)}"

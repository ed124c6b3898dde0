"""Lists of GPUs by number, as settings name them. Refuses: which GPUs a machine has (`proxy.doctor.machine`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

VISIBLE_GPUS: Final = "CUDA_VISIBLE_DEVICES"  # the variable that limits what CUDA shows to a process


def check_gpus(gpus: list[int]) -> list[int]:
    """Return a list of GPUs as it is. Raises ValueError for a number that is negative or named twice."""
    for gpu in gpus:
        if gpu < 0 or gpus.count(gpu) > 1:
            raise ValueError(f"GPU {gpu} is {'no number of a GPU' if gpu < 0 else 'named twice'}")
    return gpus


def split_gpus(count: int) -> tuple[list[int], list[int]]:
    """Divide `count` GPUs, two or more: return the engine's and the trainer's.

    The engine gets half, a power of two, because attention heads are divided among its GPUs. They are the last ones.
    """
    half = 1 << ((count // 2).bit_length() - 1)
    return list(range(count - half, count)), list(range(count - half))


def visible_gpus(gpus: Sequence[int]) -> dict[str, str]:
    """Return the variables that limit a program to these GPUs; none if there is no list."""
    if not gpus:
        return {}
    # by the order of the bus, as nvidia-smi numbers them: CUDA's own order is by speed
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", VISIBLE_GPUS: ",".join(map(str, gpus))}

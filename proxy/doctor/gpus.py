"""The GPUs of this machine, and whether engine and trainer fit beside each other on them.

Owns: asking the driver's own program how much memory there is, and the advice. Refuses: importing torch, and setting
anything.
"""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from collections.abc import Sequence
from typing import Final

from proxy.doctor.here import can_train
from proxy.engine.command import detect_device
from proxy.settings.hone import HoneSettings
from recorder.findings import Finding, Verdict

CHECK: Final = "gpu memory"
VLLM_TAKES: Final = 0.92  # of a GPU's memory, unless told otherwise
# docs/gpu.md: a step on a 1.5B base took 11 GiB at the default trainer.token_budget, 14 GiB at twice that; and room.
TRAINER_GIB: Final = 17
LEAST_SHARE: Final = 0.3
_LIMIT_S: Final = 20.0


def gpus() -> list[float]:
    """The memory of each GPU that programs started here see, in GiB. None without a driver."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    query = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=_LIMIT_S, check=True)  # noqa: S603 - the driver's
        memory = [float(line) / 1024 for line in done.stdout.split()]
    except (OSError, ValueError, subprocess.SubprocessError):
        return []
    return _seen(memory, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _seen(memory: list[float], visible: str | None) -> list[float]:
    """Those that CUDA_VISIBLE_DEVICES leaves. It may name them by ids that the program does not print: then as many."""
    if visible is None:
        return memory
    names = [name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1"]
    if all(name.isdecimal() for name in names):
        return [memory[int(name)] for name in names if int(name) < len(memory)]
    return memory[: len(names)]


def share_beside_a_trainer(gib: float) -> float:
    """The share of a GPU for an engine that leaves a trainer what one was measured to need, in steps of 0.05."""
    return max(LEAST_SHARE, math.floor((gib - TRAINER_GIB) / gib * 20) / 20)


def gpu_memory(settings: HoneSettings, there: Sequence[float]) -> Finding:
    """Whether the engine that Hone starts leaves the trainer room. `there`: each GPU's memory in GiB."""
    engine = settings.engine
    if not there:
        return Finding(CHECK, Verdict.SKIPPED, "there is no GPU here.")
    if engine.urls or engine.base is None or detect_device(engine) == "cpu":
        return Finding(CHECK, Verdict.SKIPPED, "Hone starts no engine on a GPU here.")
    if not can_train(settings) or settings.trainer.device == "cpu":
        return Finding(CHECK, Verdict.FINE, "the engine shares no GPU with a trainer.")
    if len(there) > 1:
        return _several(settings, there)
    return _one(settings, there[0])


def _several(settings: HoneSettings, there: Sequence[float]) -> Finding:
    """The trainer takes the first."""
    engines = settings.engine.env.get("CUDA_VISIBLE_DEVICES")
    if engines is not None and engines.split(",")[0].strip() != "0":
        return Finding(CHECK, Verdict.FINE, f"the trainer has the first of {len(there)} GPUs, the engine {engines}.")
    last = len(there) - 1
    return Finding(
        CHECK,
        Verdict.NOTE,
        f"there are {len(there)} GPUs, and engine and trainer would share the first.",
        f'Give the engine another one: CUDA_VISIBLE_DEVICES = "{last}" in [engine.env].',
    )


def _one(settings: HoneSettings, gib: float) -> Finding:
    engine = settings.engine
    if engine.kv_cache_bytes is not None:
        cache = engine.kv_cache_bytes / 2**30
        told = f"the engine has its weights and {cache:.1f} of {gib:.0f} GiB for its cache, the trainer the rest."
        return Finding(CHECK, Verdict.FINE, told)
    share = engine.gpu_memory_utilization or VLLM_TAKES
    left = f"the engine takes {share:.0%} of {gib:.0f} GiB, and leaves the trainer {gib * (1 - share):.1f} GiB"
    if gib * (1 - share) >= min(TRAINER_GIB, gib * (1 - LEAST_SHARE)):
        return Finding(CHECK, Verdict.FINE, f"{left}.")
    return Finding(
        CHECK,
        Verdict.NOTE,
        f"{left}: a step on a base of 1.5B was measured to take 11 GiB, and longer rows take more (docs/gpu.md).",
        f"Set engine.gpu_memory_utilization = {share_beside_a_trainer(gib):g}, or lower trainer.token_budget.",
    )

"""What is looked at on this machine, without asking anybody: the data folder, other Hones, ports, names, the base.

Owns: these checks. Refuses: engines (`proxy.doctor.engines`), and what judge and learner say of themselves
(`proxy.doctor.checkup`).

The GPUs of this machine, and whether engine and trainer fit beside each other on them.

Owns: asking the driver's own program how much memory there is, and the advice. Refuses: importing torch, and setting
anything.
"""

from __future__ import annotations

import importlib.util
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from proxy.doctor.environment import Extra, Installer
from proxy.engine.command import Device, base_folder, detect_device, dtype_of, has_driver, require_free
from proxy.errors import PortInUse
from proxy.settings.hone import HoneSettings
from recorder.base.findings import Finding, FindingLevel
from recorder.errors import NotFound
from recorder.registry.fingerprint import base_fingerprint

_TRAINS_WITH = ("torch", "transformers", "peft")


def check_other_hone(data: Path, run: Mapping[str, object] | None, *, starting: bool) -> Finding:
    """Whether a `hone up` runs on the folder; `run` is what its run.json says. To one that starts it is in the way."""
    if run is None:
        return Finding("other hone", FindingLevel.FINE, f"none runs on {data}.")
    pids = run.get("pids")
    pid = pids.get("up") if isinstance(pids, dict) else None
    there = f"`hone up` runs on {data} (process {pid}, {run.get('proxy_url')})."
    if not starting:
        return Finding("other hone", FindingLevel.FINE, there)
    todo = "Stop it first, or choose another folder with --data."
    return Finding("other hone", FindingLevel.WRONG, there, todo, stops=True)


def check_data_folder(data: Path) -> Finding:
    """Whether the data folder can be used; one that is not there will be made."""
    if not data.exists():
        return Finding("data folder", FindingLevel.FINE, f"{data.absolute()} will be made.")
    if data.is_dir() and os.access(data, os.R_OK | os.W_OK | os.X_OK) and data.stat().st_uid == os.geteuid():
        return Finding("data folder", FindingLevel.FINE, f"{data.absolute()} is ours.")
    return Finding(
        "data folder",
        FindingLevel.WRONG,
        f"{data.absolute()} is no folder that this user owns and can write to.",
        "Run Hone as its owner, or choose another with --data.",
        stops=True,
    )


def check_ports(settings: HoneSettings, *, running: bool, starts_engine: bool) -> Iterator[Finding]:
    """Whether nobody listens where the proxy and an engine of ours will. Where `hone up` runs, it does."""
    if running:
        yield Finding("ports", FindingLevel.FINE, "in use by the Hone that runs here.")
        return
    proxy, engine = settings.proxy, settings.engine
    if proxy.port:
        yield _free(proxy.host, proxy.port, "proxy.port (--port)")
    if starts_engine:
        yield _free(engine.host, engine.port, "engine.port")


def _free(host: str, port: int, setting: str) -> Finding:
    try:
        require_free(host, port, setting)
    except PortInUse as e:
        return Finding("ports", FindingLevel.WRONG, str(e), stops=True)
    return Finding("ports", FindingLevel.FINE, f"{host}:{port} is free.")


def check_names(settings: HoneSettings) -> Finding:
    """Whether there is anything that agents can ask for."""
    aliases = settings.declared_aliases()
    if aliases:
        return Finding("aliases", FindingLevel.FINE, f"agents ask for {', '.join(aliases)}.")
    if settings.proxy.models:
        told = (
            "no alias is declared: what other providers' models answer is recorded and judged, and nothing is trained."
        )
        return Finding("aliases", FindingLevel.NOTE, told)
    return Finding(
        "aliases",
        FindingLevel.WRONG,
        "no model is named.",
        "Set `base` in [engine] of hone.toml, add [aliases.NAME], or give `--engine URL --model NAME`.",
        stops=True,
    )


def check_base(settings: HoneSettings) -> Finding:
    """Whether the weights are known, so that versions can be trained, and equal for engine and trainer."""
    trained = settings.trainer.base
    if not settings.declared_aliases():
        return Finding("base", FindingLevel.SKIPPED, "without an alias there is nothing to train.")
    if settings.engine.base is None and trained is None:
        return Finding(
            "base",
            FindingLevel.NOTE,
            "the engine is given by its URL alone: Hone will record and judge, but never train.",
            "To train, name the weights that it serves: `base` in [engine], or in [trainer] (docs/your-vllm.md).",
        )
    folder = base_folder(settings.engine)
    if trained is None or settings.engine.base is None or folder is None or not Path(trained).is_dir():
        where = settings.engine.base or trained
        # A path is no id of a model that will be fetched; an engine elsewhere may see what we do not.
        if not settings.engine.urls and str(where).startswith("/") and not Path(str(where)).exists():
            todo = "Name a folder that is there, or a Hugging Face id."
            return Finding("base", FindingLevel.WRONG, f"there is no folder {where}.", todo, stops=True)
        return Finding(
            "base", FindingLevel.FINE, f"{where}, {'at ' + str(folder) if folder else 'not on this disk yet'}."
        )
    return _equal(settings, folder, Path(trained))


def _equal(settings: HoneSettings, served: Path, trained: Path) -> Finding:
    dtype = dtype_of(settings.engine)
    try:
        if base_fingerprint(served, dtype) == base_fingerprint(trained, dtype):
            return Finding("base", FindingLevel.FINE, f"engine and trainer have the same: {served}.")
    except NotFound as e:
        return Finding("base", FindingLevel.WRONG, f"{e}.", "Mend engine.base or trainer.base.")
    return Finding(
        "base",
        FindingLevel.WRONG,
        f"the engine serves {served} and the trainer would train {trained}: they differ in weights, tokenizer or chat "
        "template.",
        "Take trainer.base out, or let both name one folder.",
    )


def check_precision(settings: HoneSettings, guessed: Device) -> Iterator[Finding]:
    """Where engines run elsewhere and nothing is said of them: that their precision is guessed from this machine.

    `guessed`: what this machine lets one think they run on. A learner beside a GPU would guess otherwise, and precision
    is a part of what tells two bases apart.
    """
    engine = settings.engine
    said = engine.device != "auto" or engine.dtype != "auto"
    if not engine.urls or said or guessed != "cpu" or not check_weights(settings):
        return
    yield Finding(
        "base",
        FindingLevel.NOTE,
        "nothing says what the engines of engine.urls run on: by this machine, their weights are taken for float32.",
        "If they run on GPUs, say so to proxy and learner alike, by `device` and `dtype` in [engine]: else a learner "
        "on a GPU takes the base for another one.",
    )


def check_weights(settings: HoneSettings) -> bool:
    """Whether the learner has weights to train on."""
    return bool(settings.declared_aliases()) and bool(settings.engine.base or settings.trainer.base)


def check_trainer(settings: HoneSettings) -> Finding:
    """Whether what training needs is installed."""
    if not check_weights(settings):
        return Finding("trainer", FindingLevel.SKIPPED, "nothing is trained here.")
    missing = [name for name in _TRAINS_WITH if importlib.util.find_spec(name) is None]
    if not missing:
        return Finding("trainer", FindingLevel.FINE, "what training needs is installed.")
    installer = Installer(sys.executable, has_pip=importlib.util.find_spec("pip") is not None)
    line = installer.install("cuda" if has_driver() else "cpu")
    found = f"{', '.join(missing)} is not installed."
    return Finding("trainer", FindingLevel.WRONG, found, f"Run `hone up --no-learn`, or install it: {line}")


def check_trackers(settings: HoneSettings) -> list[Finding]:
    """Whether each tracker that [track] names is installed; nothing where it names none."""
    return [_tracker(name, key) for name, key in settings.track.named().items()]


def _tracker(name: Extra, key: str) -> Finding:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None:  # a folder of that name is no library
        return Finding("trackers", FindingLevel.FINE, f"{name} is installed.")
    installer = Installer(sys.executable, has_pip=importlib.util.find_spec("pip") is not None)
    found = f"{key} is set and {name} is not installed: nothing is sent to it."
    return Finding("trackers", FindingLevel.WRONG, found, f"Install it: {installer.install(name)}")


CHECK: Final = "gpu memory"
VLLM_TAKES: Final = 0.92  # of a GPU's memory, unless told otherwise
# docs/gpu.md: a step on a 1.5B base took 11 GiB at the default trainer.token_budget, 14 GiB at twice that; and room.
TRAINER_GIB: Final = 17
LEAST_SHARE: Final = 0.3
_LIMIT_S: Final = 20.0


def list_gpus() -> list[float]:
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


def check_gpu_memory(settings: HoneSettings, there: Sequence[float]) -> Finding:
    """Whether the engine that Hone starts leaves the trainer room. `there`: each GPU's memory in GiB."""
    engine = settings.engine
    if not there:
        return Finding(CHECK, FindingLevel.SKIPPED, "there is no GPU here.")
    if engine.urls or engine.base is None or detect_device(engine) == "cpu":
        return Finding(CHECK, FindingLevel.SKIPPED, "Hone starts no engine on a GPU here.")
    if not check_weights(settings) or settings.trainer.device == "cpu":
        return Finding(CHECK, FindingLevel.FINE, "the engine shares no GPU with a trainer.")
    if len(there) > 1:
        return _several(settings, there)
    return _one(settings, there[0])


def _several(settings: HoneSettings, there: Sequence[float]) -> Finding:
    """The trainer takes the first."""
    engines = settings.engine.env.get("CUDA_VISIBLE_DEVICES")
    if engines is not None and engines.split(",")[0].strip() != "0":
        return Finding(
            CHECK, FindingLevel.FINE, f"the trainer has the first of {len(there)} GPUs, the engine {engines}."
        )
    last = len(there) - 1
    return Finding(
        CHECK,
        FindingLevel.NOTE,
        f"there are {len(there)} GPUs, and engine and trainer would share the first.",
        f'Give the engine another one: CUDA_VISIBLE_DEVICES = "{last}" in [engine.env].',
    )


def _one(settings: HoneSettings, gib: float) -> Finding:
    engine = settings.engine
    if engine.kv_cache_bytes is not None:
        cache = engine.kv_cache_bytes / 2**30
        told = f"the engine has its weights and {cache:.1f} of {gib:.0f} GiB for its cache, the trainer the rest."
        return Finding(CHECK, FindingLevel.FINE, told)
    share = engine.gpu_memory_utilization or VLLM_TAKES
    left = f"the engine takes {share:.0%} of {gib:.0f} GiB, and leaves the trainer {gib * (1 - share):.1f} GiB"
    if gib * (1 - share) >= min(TRAINER_GIB, gib * (1 - LEAST_SHARE)):
        return Finding(CHECK, FindingLevel.FINE, f"{left}.")
    return Finding(
        CHECK,
        FindingLevel.NOTE,
        f"{left}: a step on a base of 1.5B was measured to take 11 GiB, and longer rows take more (docs/gpu.md).",
        f"Set engine.gpu_memory_utilization = {share_beside_a_trainer(gib):g}, or lower trainer.token_budget.",
    )

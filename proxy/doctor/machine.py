"""Checks of this machine: data folder, another `hone up`, ports, aliases, base model, packages, GPU memory.

GPU memory is read from `nvidia-smi`; torch is not imported. Refuses: engines (`proxy.doctor.engines`), and the checks
of judge and learner (`proxy.doctor.checkup`).
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from proxy.doctor.environment import Extra, Installer
from proxy.doctor.memory_plan import MemoryPlan, NoPlan
from proxy.engine.base import base_folder, refuse_base
from proxy.engine.command import require_free, served_fingerprint
from proxy.engine.device import Device, detect_device, has_driver, query_gpus
from proxy.errors import PortInUse
from proxy.settings.gpus import VISIBLE_GPUS, split_gpus
from proxy.settings.hone import HoneSettings
from recorder.base.findings import Finding, FindingLevel
from recorder.errors import NotFound
from recorder.models.refusals import refuse_folder, refuse_missing

ALIASES: Final = "aliases"  # the check of what agents can ask for
_TRAINS_WITH = ("torch", "transformers", "peft")


def check_other_hone(data: Path, run: Mapping[str, object] | None, *, starting: bool) -> Finding:
    """Whether another `hone up` uses the data folder. `run`: its run.json; with `starting` it is an error."""
    if run is None:
        return Finding("other hone", FindingLevel.FINE, f"no other `hone up` uses {data}.")
    pids = run.get("pids")
    pid = pids.get("up") if isinstance(pids, dict) else None
    there = f"`hone up` uses {data} (process {pid}, {run.get('proxy_url')})."
    if not starting:
        return Finding("other hone", FindingLevel.FINE, there)
    todo = "Stop it first, or choose another folder with --data."
    return Finding("other hone", FindingLevel.WRONG, there, todo, stops=True)


def check_data_folder(data: Path) -> Finding:
    """Whether the data folder is usable; a missing one is created later."""
    if not data.exists():
        return Finding("data folder", FindingLevel.FINE, f"{data.absolute()} will be created.")
    if data.is_dir() and os.access(data, os.R_OK | os.W_OK | os.X_OK) and data.stat().st_uid == os.geteuid():
        return Finding("data folder", FindingLevel.FINE, f"{data.absolute()} is writable.")
    return Finding(
        "data folder",
        FindingLevel.WRONG,
        f"{data.absolute()} is not a folder that this user owns and can write to.",
        "Run Hone as its owner, or choose another folder with --data.",
        stops=True,
    )


def check_ports(settings: HoneSettings, *, running: bool, starts_engine: bool) -> Iterator[Finding]:
    """Whether the ports of the proxy and of an engine to start are free. A running `hone up` uses them itself."""
    if running:
        yield Finding("ports", FindingLevel.FINE, "in use by the `hone up` of this data folder.")
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
    """Whether there is a model that agents can request."""
    aliases = settings.declared_aliases()
    if aliases:
        return Finding(ALIASES, FindingLevel.FINE, f"agents ask for {', '.join(aliases)}.")
    if settings.proxy.models:
        text = "no alias is declared: Hone records and judges the models of other providers, and trains nothing."
        return Finding(ALIASES, FindingLevel.NOTE, text)
    return Finding(
        ALIASES,
        FindingLevel.WRONG,
        "no model is named.",
        "Set `base` in [engine] of hone.toml, add [aliases.NAME], or give `--engine URL --model NAME`.",
        stops=True,
    )


def check_base(settings: HoneSettings) -> Finding:
    """Whether the base model's weights are known, and the same for engine and trainer."""
    trained = settings.trainer.base
    if not settings.declared_aliases():
        return Finding("base", FindingLevel.SKIPPED, "without an alias, nothing is trained.")
    if settings.engine.base is None and trained is None:
        return Finding(
            "base",
            FindingLevel.NOTE,
            "the engine is given by its URL alone: Hone will record and judge, but never train.",
            "To train, set `base` in [engine] or [trainer] to the weights that it serves (docs/your-vllm.md).",
        )
    folder = base_folder(settings.engine)
    refusal = refuse_base(settings.engine)
    if refusal is None and trained is not None and Path(trained).is_dir():
        refusal = refuse_folder(trained, Path(trained))
    if refusal is not None:
        return Finding("base", FindingLevel.WRONG, refusal.found, refusal.todo, stops=True)
    if trained is None or settings.engine.base is None or folder is None or not Path(trained).is_dir():
        where = settings.engine.base or trained
        missing = refuse_missing(str(where)) if not settings.engine.urls else None
        if missing is not None:
            return Finding("base", FindingLevel.WRONG, missing.found, missing.todo, stops=True)
        return Finding(
            "base", FindingLevel.FINE, f"{where}, {'at ' + str(folder) if folder else 'not on this disk yet'}."
        )
    return _equal(settings, folder, Path(trained))


def _equal(settings: HoneSettings, served: Path, trained: Path) -> Finding:
    try:
        if served_fingerprint(settings.engine, served) == served_fingerprint(settings.engine, trained):
            return Finding("base", FindingLevel.FINE, f"engine and trainer use the same: {served}.")
    except NotFound as e:
        return Finding("base", FindingLevel.WRONG, f"{e}.", "Correct engine.base or trainer.base.")
    return Finding(
        "base",
        FindingLevel.WRONG,
        f"the engine serves {served} and the trainer uses {trained}: they differ in weights, tokenizer or chat "
        "template.",
        "Remove trainer.base, or let both name the same folder.",
    )


def check_precision(settings: HoneSettings, guessed: Device) -> Iterator[Finding]:
    """A note if the precision of remote engines is not configured and has to be guessed from this machine.

    `guessed`: the device that this machine suggests. A learner on a GPU machine would guess another one, and the
    precision is part of a base model's fingerprint.
    """
    engine = settings.engine
    configured = engine.device != "auto" or engine.dtype != "auto"
    if not engine.urls or configured or guessed != "cpu" or not check_weights(settings):
        return
    yield Finding(
        "base",
        FindingLevel.NOTE,
        "the device of the engines in engine.urls is not configured: Hone assumes float32 weights, as on this machine.",
        "If they run on GPUs, set `device` and `dtype` in [engine] for proxy and learner: otherwise a learner on a GPU "
        "machine treats the base model as a different one.",
    )


def check_weights(settings: HoneSettings) -> bool:
    """Whether the learner knows the weights to train."""
    return bool(settings.declared_aliases()) and bool(settings.engine.base or settings.trainer.base)


def check_trainer(settings: HoneSettings) -> Finding:
    """Whether the packages for training are installed."""
    if not check_weights(settings):
        return Finding("trainer", FindingLevel.SKIPPED, "this machine trains nothing.")
    missing = [name for name in _TRAINS_WITH if importlib.util.find_spec(name) is None]
    if not missing:
        return Finding("trainer", FindingLevel.FINE, "the packages for training are installed.")
    installer = Installer(sys.executable, has_pip=importlib.util.find_spec("pip") is not None)
    line = installer.install("cuda" if has_driver() else "cpu")
    text = f"{', '.join(missing)} is not installed."
    return Finding("trainer", FindingLevel.WRONG, text, f"Run `hone up --no-learn`, or install it: {line}")


def check_trackers(settings: HoneSettings) -> list[Finding]:
    """Whether the package of each tracker in [track] is installed."""
    return [_tracker(name, key) for name, key in settings.track.named().items()]


def _tracker(name: Extra, key: str) -> Finding:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None:  # not just a folder of that name
        return Finding("trackers", FindingLevel.FINE, f"{name} is installed.")
    installer = Installer(sys.executable, has_pip=importlib.util.find_spec("pip") is not None)
    text = f"{key} is set, but {name} is not installed: nothing is sent to it."
    return Finding("trackers", FindingLevel.WRONG, text, f"Install it: {installer.install(name)}")


CHECK: Final = "gpu memory"
VLLM_SHARE: Final = 0.92  # vLLM's default share of a GPU's memory


def list_gpus() -> list[float]:
    """The memory in GiB of each GPU that child processes see; empty without a driver."""
    memory = [mib / 1024 for mib in query_gpus("memory.total")]
    return _seen(memory, os.environ.get("CUDA_VISIBLE_DEVICES"))


def _seen(memory: list[float], visible: str | None) -> list[float]:
    """The GPUs in CUDA_VISIBLE_DEVICES. If it has UUIDs, which `nvidia-smi` did not print, the first as many."""
    if visible is None:
        return memory
    names = [name.strip() for name in visible.split(",") if name.strip() and name.strip() != "-1"]
    if all(name.isdecimal() for name in names):
        return [memory[int(name)] for name in names if int(name) < len(memory)]
    return memory[: len(names)]


def shares_gpus(settings: HoneSettings, there: Sequence[float]) -> Finding | None:
    """Why no engine and trainer of this machine need a plan of its GPUs (`there`: GiB of each); None: they do."""
    engine = settings.engine
    if not there:
        return Finding(CHECK, FindingLevel.SKIPPED, "this machine has no GPU.")
    if engine.urls or engine.base is None or detect_device(engine) == "cpu":
        return Finding(CHECK, FindingLevel.SKIPPED, "Hone starts no engine on a GPU of this machine.")
    elsewhere = settings.trainer.device == "cpu" or settings.trainer.backend == "tinker"
    if not check_weights(settings) or elsewhere:
        return Finding(CHECK, FindingLevel.FINE, "the engine shares no GPU with a trainer.")
    return None


def check_gpu_memory(settings: HoneSettings, there: Sequence[float], plan: MemoryPlan | NoPlan) -> Finding:
    """Whether an engine that Hone starts leaves memory for the trainer. `there`: each GPU's memory in GiB."""
    if isinstance(plan, NoPlan):
        todo = "Look at it with `hone plan --model NAME --gpu GIB`."
        return Finding(CHECK, FindingLevel.NOTE, f"the memory could not be computed: {plan.reason}", todo)
    if not plan.fits:
        return Finding(CHECK, FindingLevel.WRONG, plan.sentence, stops=True)
    if settings.engine.share != "split":
        return Finding(CHECK, FindingLevel.FINE, f"engine and trainer use one GPU in turns: {plan.sentence}")
    return _several(settings, there) if len(there) > 1 else _one(settings, there[0], plan)


def _several(settings: HoneSettings, there: Sequence[float]) -> Finding:
    """With several GPUs, each process of the trainer uses one, from the first."""
    engine, trainer = settings.engine.gpus, settings.trainer.gpus
    if engine and (trainer or 0 not in engine):
        own = (trainer or range(len(there)))[: settings.trainer.processes]
        text = f"the engine uses GPU {_listed(engine)} of {len(there)}, and the trainer GPU {_listed(own)}."
        return Finding(CHECK, FindingLevel.FINE, text)
    engines = settings.engine.env.get(VISIBLE_GPUS)
    if engines is not None and engines.split(",")[0].strip() != "0":
        return Finding(
            CHECK, FindingLevel.FINE, f"the trainer uses the first of {len(there)} GPUs, the engine {engines}."
        )
    of_engine, of_trainer = split_gpus(len(there))
    return Finding(
        CHECK,
        FindingLevel.NOTE,
        f"there are {len(there)} GPUs, but engine and trainer share the first.",
        f"Divide them: engine.gpus = {of_engine} and trainer.gpus = {of_trainer}, or let both use one in turns: "
        'engine.share = "sleep".',
    )


def _listed(gpus: Sequence[int]) -> str:
    return ", ".join(map(str, gpus))


def _one(settings: HoneSettings, gib: float, plan: MemoryPlan) -> Finding:
    engine = settings.engine
    if engine.kv_cache_bytes is not None:
        taken = plan.engine_fixed + engine.kv_cache_bytes / 2**30
    else:
        taken = gib * (engine.gpu_memory_utilization or VLLM_SHARE)
    left = f"the engine takes {taken:.1f} of {gib:.0f} GiB and leaves the trainer {max(0.0, gib - taken):.1f} GiB"
    if gib - taken >= plan.trainer:
        return Finding(CHECK, FindingLevel.FINE, f"{left}; it needs {plan.trainer:.1f} GiB.")
    advice = " and ".join(f"{name} = {json.dumps(value)}" for name, value in plan.settings.items() if _splits(name))
    return Finding(
        CHECK,
        FindingLevel.NOTE,
        f"{left}, and it needs {plan.trainer:.1f} GiB for passes of trainer.token_budget.",
        f"Set {advice}, or lower trainer.token_budget (`hone plan`).",
    )


def _splits(name: str) -> bool:
    return name in ("engine.gpu_memory_utilization", "engine.kv_cache_bytes")

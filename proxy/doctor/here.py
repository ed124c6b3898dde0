"""What is looked at on this machine, without asking anybody: the data folder, other Hones, ports, names, the base.

Owns: these checks. Refuses: engines (`proxy.doctor.engines`), and what judge and learner say of themselves
(`proxy.doctor.stages`).
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from proxy.doctor.mending import Extra, Installer
from proxy.engine.command import Device, base_folder, dtype_of, has_driver, require_free
from proxy.errors import PortInUse
from proxy.settings.hone import HoneSettings
from recorder.errors import NotFound
from recorder.findings import Finding, Verdict
from recorder.registry.fingerprint import base_fingerprint

_TRAINS_WITH = ("torch", "transformers", "peft")


def other_hone(data: Path, run: Mapping[str, object] | None, *, starting: bool) -> Finding:
    """Whether a `hone up` runs on the folder; `run` is what its run.json says. To one that starts it is in the way."""
    if run is None:
        return Finding("other hone", Verdict.FINE, f"none runs on {data}.")
    pids = run.get("pids")
    pid = pids.get("up") if isinstance(pids, dict) else None
    there = f"`hone up` runs on {data} (process {pid}, {run.get('proxy_url')})."
    if not starting:
        return Finding("other hone", Verdict.FINE, there)
    todo = "Stop it first, or choose another folder with --data."
    return Finding("other hone", Verdict.WRONG, there, todo, stops=True)


def data_folder(data: Path) -> Finding:
    """Whether the data folder can be used; one that is not there will be made."""
    if not data.exists():
        return Finding("data folder", Verdict.FINE, f"{data.absolute()} will be made.")
    if data.is_dir() and os.access(data, os.R_OK | os.W_OK | os.X_OK) and data.stat().st_uid == os.geteuid():
        return Finding("data folder", Verdict.FINE, f"{data.absolute()} is ours.")
    return Finding(
        "data folder",
        Verdict.WRONG,
        f"{data.absolute()} is no folder that this user owns and can write to.",
        "Run Hone as its owner, or choose another with --data.",
        stops=True,
    )


def ports(settings: HoneSettings, *, running: bool, starts_engine: bool) -> Iterator[Finding]:
    """Whether nobody listens where the proxy and an engine of ours will. Where `hone up` runs, it does."""
    if running:
        yield Finding("ports", Verdict.FINE, "in use by the Hone that runs here.")
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
        return Finding("ports", Verdict.WRONG, str(e), stops=True)
    return Finding("ports", Verdict.FINE, f"{host}:{port} is free.")


def names(settings: HoneSettings) -> Finding:
    """Whether there is anything that agents can ask for."""
    aliases = settings.declared_aliases()
    if aliases:
        return Finding("aliases", Verdict.FINE, f"agents ask for {', '.join(aliases)}.")
    if settings.proxy.models:
        told = (
            "no alias is declared: what other providers' models answer is recorded and judged, and nothing is trained."
        )
        return Finding("aliases", Verdict.NOTE, told)
    return Finding(
        "aliases",
        Verdict.WRONG,
        "no model is named.",
        "Set `base` in [engine] of hone.toml, add [aliases.NAME], or give `--engine URL --model NAME`.",
        stops=True,
    )


def base(settings: HoneSettings) -> Finding:
    """Whether the weights are known, so that versions can be trained, and equal for engine and trainer."""
    trained = settings.trainer.base
    if not settings.declared_aliases():
        return Finding("base", Verdict.SKIPPED, "without an alias there is nothing to train.")
    if settings.engine.base is None and trained is None:
        return Finding(
            "base",
            Verdict.NOTE,
            "the engine is given by its URL alone: Hone will record and judge, but never train.",
            "To train, name the weights that it serves: `base` in [engine], or in [trainer] (docs/your-vllm.md).",
        )
    folder = base_folder(settings.engine)
    if trained is None or settings.engine.base is None or folder is None or not Path(trained).is_dir():
        where = settings.engine.base or trained
        # A path is no id of a model that will be fetched; an engine elsewhere may see what we do not.
        if not settings.engine.urls and str(where).startswith("/") and not Path(str(where)).exists():
            todo = "Name a folder that is there, or a Hugging Face id."
            return Finding("base", Verdict.WRONG, f"there is no folder {where}.", todo, stops=True)
        return Finding("base", Verdict.FINE, f"{where}, {'at ' + str(folder) if folder else 'not on this disk yet'}.")
    return _equal(settings, folder, Path(trained))


def _equal(settings: HoneSettings, served: Path, trained: Path) -> Finding:
    dtype = dtype_of(settings.engine)
    try:
        if base_fingerprint(served, dtype) == base_fingerprint(trained, dtype):
            return Finding("base", Verdict.FINE, f"engine and trainer have the same: {served}.")
    except NotFound as e:
        return Finding("base", Verdict.WRONG, f"{e}.", "Mend engine.base or trainer.base.")
    return Finding(
        "base",
        Verdict.WRONG,
        f"the engine serves {served} and the trainer would train {trained}: they differ in weights, tokenizer or chat "
        "template.",
        "Take trainer.base out, or let both name one folder.",
    )


def precision(settings: HoneSettings, guessed: Device) -> Iterator[Finding]:
    """Where engines run elsewhere and nothing is said of them: that their precision is guessed from this machine.

    `guessed`: what this machine lets one think they run on. A learner beside a GPU would guess otherwise, and precision
    is a part of what tells two bases apart.
    """
    engine = settings.engine
    said = engine.device != "auto" or engine.dtype != "auto"
    if not engine.urls or said or guessed != "cpu" or not can_train(settings):
        return
    yield Finding(
        "base",
        Verdict.NOTE,
        "nothing says what the engines of engine.urls run on: by this machine, their weights are taken for float32.",
        "If they run on GPUs, say so to proxy and learner alike, by `device` and `dtype` in [engine]: else a learner "
        "on a GPU takes the base for another one.",
    )


def can_train(settings: HoneSettings) -> bool:
    """Whether the learner has weights to train on."""
    return bool(settings.declared_aliases()) and bool(settings.engine.base or settings.trainer.base)


def trainer(settings: HoneSettings) -> Finding:
    """Whether what training needs is installed."""
    if not can_train(settings):
        return Finding("trainer", Verdict.SKIPPED, "nothing is trained here.")
    missing = [name for name in _TRAINS_WITH if importlib.util.find_spec(name) is None]
    if not missing:
        return Finding("trainer", Verdict.FINE, "what training needs is installed.")
    installer = Installer(sys.executable, has_pip=importlib.util.find_spec("pip") is not None)
    line = installer.install("cuda" if has_driver() else "cpu")
    found = f"{', '.join(missing)} is not installed."
    return Finding("trainer", Verdict.WRONG, found, f"Run `hone up --no-learn`, or install it: {line}")


def trackers(settings: HoneSettings) -> list[Finding]:
    """Whether each tracker that [track] names is installed; nothing where it names none."""
    return [_tracker(name, key) for name, key in settings.track.named().items()]


def _tracker(name: Extra, key: str) -> Finding:
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.origin is not None:  # a folder of that name is no library
        return Finding("trackers", Verdict.FINE, f"{name} is installed.")
    installer = Installer(sys.executable, has_pip=importlib.util.find_spec("pip") is not None)
    found = f"{key} is set and {name} is not installed: nothing is sent to it."
    return Finding("trackers", Verdict.WRONG, found, f"Install it: {installer.install(name)}")

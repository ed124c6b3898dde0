"""The base model that the engine serves: its folder on this machine, what its files say, and what cannot be one.

Owns: the one refusal that `hone init`, `hone doctor`, `hone up` and the engine's command line share. Refuses: the
sentences themselves (`recorder.models.refusals`), and asking a hub.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from proxy.engine.device import detect_device
from proxy.errors import ConfigError
from proxy.settings.sections import EngineSettings
from recorder.errors import BaseInvalid
from recorder.models.base_model import ModelProfile, read_base_model
from recorder.models.context import CONTEXT_FLAG, context_length, stated_context
from recorder.models.experts import refuse_cpu_engine
from recorder.models.families import text_config
from recorder.models.refusals import (
    BaseRefusal,
    load_config,
    refuse_context,
    refuse_folder,
    refuse_missing,
    refuse_name,
)
from recorder.models.shipped_configs import shipped_folder
from recorder.models.weights import is_whole

# With these, vLLM's longest context is not the one of config.json.
_OWN_CONTEXT: Final = ("--hf-overrides", "--rope-scaling")
_LONG_CONTEXT: Final = "VLLM_ALLOW_LONG_MAX_MODEL_LEN"


def base_folder(engine: EngineSettings) -> Path | None:
    """Return the base's folder on this machine: as given, or in Hugging Face's cache, once all weights are there.

    None: only the engine knows its base.
    """
    if engine.base is None:
        return None
    folder = Path(engine.base)
    if folder.is_dir():
        return folder
    snapshot = _cached_snapshot(engine.base)
    return snapshot if snapshot is not None and is_whole(snapshot) else None


def read_model(base: str) -> ModelProfile | None:
    """What is known of a base without a network: from its folder, the hub's cache, or the configs that Hone ships.

    None: it is a Hugging Face id of which nothing is here. Raises `BaseInvalid`.
    """
    if (refusal := refuse_name(base) or refuse_missing(base)) is not None:
        raise refusal.error()
    if Path(base).is_dir():
        return read_base_model(base)
    cached = _cached_snapshot(base)
    if cached is not None and is_whole(cached):
        return read_base_model(cached, name=base)
    shipped = shipped_folder(base)
    known = cached if cached is not None and (cached / "config.json").is_file() else shipped
    try:
        return read_base_model(known, name=base, needs_weights=False) if known is not None else None
    except BaseInvalid:
        return None  # an incomplete download


def refuse_base(engine: EngineSettings) -> BaseRefusal | None:
    """Why the base of these settings cannot be served or trained; None if it can, or is not on this machine."""
    base = engine.base
    if base is None:
        return None
    if (refusal := refuse_name(base)) is not None:
        return refusal
    folder = base_folder(engine)
    if folder is not None and (refusal := refuse_folder(base, folder)) is not None:
        return refusal
    known = folder or shipped_folder(base)
    if known is None:
        return None
    if (refusal := _refuse_mixture(engine, base, known)) is not None:
        return refusal
    return _refuse_context(engine, base, known) if not engine.urls else None


def require_base(engine: EngineSettings) -> None:
    """Raise ConfigError if `refuse_base` has a refusal."""
    if (refusal := refuse_base(engine)) is not None:
        raise ConfigError(f"{refusal.found} {refusal.todo}")


def _refuse_mixture(engine: EngineSettings, base: str, folder: Path) -> BaseRefusal | None:
    """The refusal of a mixture of experts on a CPU. A remote engine's device is known only where it is set."""
    if engine.urls and engine.device != "cpu":
        return None
    is_mixture = read_base_model(folder, name=base, needs_weights=False).experts is not None
    return refuse_cpu_engine(base) if is_mixture and detect_device(engine) == "cpu" else None


def _refuse_context(engine: EngineSettings, base: str, folder: Path) -> BaseRefusal | None:
    allowed = {**os.environ, **engine.env}.get(_LONG_CONTEXT, "0") not in ("", "0")
    if allowed or any(argument.partition("=")[0] in _OWN_CONTEXT for argument in engine.args):
        return None
    longest = context_length(text_config(load_config(folder)))
    flag = stated_context(None, engine.args)
    if flag is not None:  # it comes last, and so takes precedence
        return refuse_context(base, longest, flag, f"{CONTEXT_FLAG} in engine.args")
    return refuse_context(base, longest, engine.max_model_len, "engine.max_model_len")


def hub_cache() -> Path:
    """Return the folder of Hugging Face's downloads."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub")


def _cached_snapshot(hub_id: str) -> Path | None:
    repository = hub_cache() / f"models--{hub_id.replace('/', '--')}"
    try:
        revision = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    return repository / "snapshots" / revision

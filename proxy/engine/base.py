"""The base model that the engine serves: its folder on this machine, what its files say, and what cannot be one.

Owns: the one refusal that `hone init`, `hone doctor`, `hone up` and the engine's command line share. Refuses: the
sentences themselves (`recorder.models.refusals`), and asking a hub.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from proxy.engine.device import detect_device
from proxy.errors import ConfigError
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import EngineSettings
from recorder.models.base_model import read_base_model
from recorder.models.context import context_length, stated_context
from recorder.models.experts import refuse_cpu_engine
from recorder.models.families import text_config
from recorder.models.on_disk import cached_snapshot
from recorder.models.refusals import (
    BaseRefusal,
    load_config,
    refuse_engine_context,
    refuse_folder,
    refuse_name,
    refuse_scaled_queries,
)
from recorder.models.shipped_configs import shipped_folder
from recorder.models.weights import is_whole

WITHOUT_LORA: Final = "--no-enable-lora"  # in engine.args: the engine serves the base alone


def base_folder(engine: EngineSettings) -> Path | None:
    """Return the base's folder on this machine: as given, or in Hugging Face's cache, once all weights are there.

    None: only the engine knows its base.
    """
    if engine.base is None:
        return None
    folder = Path(engine.base)
    if folder.is_dir():
        return folder
    snapshot = cached_snapshot(engine.base)
    return snapshot if snapshot is not None and is_whole(snapshot) else None


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


def require_models(settings: HoneSettings) -> None:
    """Raise ConfigError if no model is configured, or the base is none."""
    require_base(settings.engine)
    if not settings.declared_aliases() and not settings.proxy.models:
        raise ConfigError(
            "no model is named: give `--model NAME` (its name at the engine), an alias [aliases.NAME] in hone.toml, "
            "a base model with `base` in [engine], or another provider's model in [[proxy.models]]."
        )


def _refuse_mixture(engine: EngineSettings, base: str, folder: Path) -> BaseRefusal | None:
    """The refusal of a mixture of experts on a CPU. A remote engine's device is known only where it is set."""
    if (engine.urls and engine.device != "cpu") or WITHOUT_LORA in engine.args:
        return None
    is_mixture = read_base_model(folder, name=base, needs_weights=False).experts is not None
    return refuse_cpu_engine(base) if is_mixture and detect_device(engine) == "cpu" else None


def _refuse_context(engine: EngineSettings, base: str, folder: Path) -> BaseRefusal | None:
    config = load_config(folder)
    longest = context_length(text_config(config))
    refusal = refuse_engine_context(base, longest, engine.max_model_len, engine.args, engine.env)
    return refusal or refuse_scaled_queries(base, config, stated_context(engine.max_model_len, engine.args))

"""Bases on this machine: in a folder, in Hugging Face's cache, or among the configs that Hone ships.

Refuses: asking a hub.
"""

from __future__ import annotations

import os
from pathlib import Path

from recorder.errors import BaseInvalid
from recorder.models.base_model import ModelProfile, read_base_model
from recorder.models.refusals import refuse_missing, refuse_name
from recorder.models.shipped_configs import shipped_folder
from recorder.models.weights import is_whole


def read_model(base: str) -> ModelProfile | None:
    """What is known of a base without a network: from its folder, the hub's cache, or the configs that Hone ships.

    None: it is a Hugging Face id of which nothing is here. Raises `BaseInvalid`.
    """
    if (refusal := refuse_name(base) or refuse_missing(base)) is not None:
        raise refusal.error()
    if Path(base).is_dir():
        return read_base_model(base)
    cached = cached_snapshot(base)
    if cached is not None and is_whole(cached):
        return read_base_model(cached, name=base)
    shipped = shipped_folder(base)
    known = cached if cached is not None and (cached / "config.json").is_file() else shipped
    try:
        return read_base_model(known, name=base, needs_weights=False) if known is not None else None
    except BaseInvalid:
        return None  # an incomplete download


def hub_cache() -> Path:
    """Return the folder of Hugging Face's downloads."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    return Path(os.environ.get("HF_HUB_CACHE") or home / "hub")


def cached_snapshot(hub_id: str) -> Path | None:
    """Return the folder of a hub id in that cache; it may hold a part of the model. None: nothing of it is there."""
    repository = hub_cache() / f"models--{hub_id.replace('/', '--')}"
    try:
        revision = (repository / "refs" / "main").read_text().strip()
    except OSError:
        return None
    return repository / "snapshots" / revision

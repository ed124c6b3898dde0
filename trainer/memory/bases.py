"""The base that `hone plan` computes for: a folder, a name that Hone ships, or the files of a Hugging Face id.

Refuses: weights. Of a Hugging Face id that is not on this machine, config.json and the index of weights are fetched.
"""

from __future__ import annotations

import difflib
import re
import threading
from pathlib import Path
from typing import Final

from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
)
from huggingface_hub.utils import logging as hub_logging

from recorder.models.base_model import ModelProfile, read_base_model
from recorder.models.refusals import refuse_missing, refuse_name
from recorder.models.shipped_configs import shipped_folder, shipped_names
from trainer.errors import PlanInvalid

FETCH_LIMIT_S: Final = 10.0
_HUB_ID: Final = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_CONFIG: Final = "config.json"
_INDEX: Final = "model.safetensors.index.json"  # only models of several files have one


def find_base(model: str) -> ModelProfile:
    """Return what the files of a base say. Raises `BaseInvalid` for what is no base, and `PlanInvalid`."""
    folder = Path(model)
    if folder.is_dir():
        has_weights = any(folder.glob("*.safetensors*")) or any(folder.glob("*.bin*"))
        return read_base_model(folder, name=model, needs_weights=has_weights)
    if (refusal := refuse_name(model) or refuse_missing(model)) is not None:
        raise refusal.error()
    if (shipped := shipped_folder(model)) is not None:
        return read_base_model(shipped, name=shipped.name, needs_weights=False)
    if not _HUB_ID.fullmatch(model):
        near = difflib.get_close_matches(model, shipped_names(), 1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise PlanInvalid(
            f"--model {model!r} is no folder, no Hugging Face id (owner/name), and none of the models that Hone knows "
            f"({', '.join(shipped_names())}).{hint}"
        )
    return read_base_model(_config_file(model).parent, name=model, needs_weights=False)


def _config_file(hub_id: str) -> Path:
    if isinstance(cached := try_to_load_from_cache(hub_id, _CONFIG), str):
        return Path(cached)
    hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]  # it reports each of its retries
    done: list[str] = []
    failed: list[Exception] = []

    def fetch() -> None:
        try:
            done.append(hf_hub_download(hub_id, _CONFIG, etag_timeout=FETCH_LIMIT_S))
            hf_hub_download(hub_id, _INDEX, etag_timeout=FETCH_LIMIT_S)
        except (OSError, ValueError, HfHubHTTPError) as e:
            failed.append(e)

    thread = threading.Thread(target=fetch, daemon=True)  # it cannot be stopped, and must not hold up the answer
    thread.start()
    thread.join(FETCH_LIMIT_S)
    if done:
        return Path(done[0])
    why = _fault(failed[0]) if failed else f"there was no answer within {FETCH_LIMIT_S:.0f} s"
    raise PlanInvalid(
        f"config.json of {hub_id!r} cannot be fetched from Hugging Face: {why}. Give a folder that holds it, or one of "
        f"the models that Hone knows without a network ({', '.join(shipped_names())})."
    )


def _fault(error: Exception) -> str:
    if isinstance(error, LocalEntryNotFoundError):
        return "there is no connection to the hub"
    if isinstance(error, GatedRepoError):
        return "the model is gated, and no token of somebody who has access to it is set (HF_TOKEN)"
    if isinstance(error, RepositoryNotFoundError):
        return "the hub has no such model, or shows it to its owners alone"
    if isinstance(error, RemoteEntryNotFoundError):
        return "the model has no such file"
    return str(error).strip().splitlines()[0]

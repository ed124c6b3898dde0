"""Checkpoints: the optimizer and random state of a version, stored beside its adapter.

Owns: a checkpoint's folder, written completely or not at all, and a checksum that is verified on reading. Refuses:
weights (the adapter has them, exactly, in float32) and deciding which checkpoint to load.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from recorder.processes import durable_folders
from trainer.errors import CheckpointInvalid
from trainer.policy.optim import Optimizer

STATE = "state.pt"
SUMS = "sha256.json"
_AVERAGE = "average"


def save_checkpoint(
    checkpoints: Path, name: str, optimizer: Optimizer, average: Mapping[str, Tensor] | None = None
) -> Path:
    """Write the state after a step under the version's directory name. Returns the folder.

    `average`: of the versions' weights, if a teacher is their average.
    """
    more = {} if average is None else {_AVERAGE: dict(average)}
    with durable_folders.unfinished_folder(checkpoints, name.rpartition("@")[0]) as folder:
        torch.save({"optimizer": optimizer.state(), "rng": _rng(), **more}, folder / STATE)
        (folder / SUMS).write_text(json.dumps({STATE: durable_folders.file_sha256(folder / STATE)}), encoding="utf-8")
        return durable_folders.finish_folder(folder, name)


def load_checkpoint(folder: Path, optimizer: Optimizer) -> dict[str, Tensor] | None:
    """Restore optimizer and random state from a checkpoint. Return the average of weights in it, if there is one.

    Raises `CheckpointInvalid`.
    """
    try:
        expected = json.loads((folder / SUMS).read_text(encoding="utf-8"))[STATE]
        if durable_folders.file_sha256(folder / STATE) != expected:
            raise CheckpointInvalid(f"{folder / STATE} is damaged: its sha256 differs. {_REMEDY.format(folder)}")
        state = torch.load(folder / STATE, map_location="cpu", weights_only=True)
    except (OSError, ValueError, KeyError, RuntimeError) as e:
        raise CheckpointInvalid(f"the checkpoint {folder} cannot be read: {e}. {_REMEDY.format(folder)}") from e
    optimizer.load(state["optimizer"])
    _set_rng(state["rng"])
    average: dict[str, Tensor] | None = state.get(_AVERAGE)
    return average


_REMEDY = "Remove {} to continue with a fresh optimizer."


def _rng() -> dict[str, Any]:
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    return {"cpu": torch.get_rng_state(), "cuda": devices}


def _set_rng(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if torch.cuda.is_available() and len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(state["cuda"])

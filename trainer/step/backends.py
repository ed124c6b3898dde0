"""Which back end computes the steps: `trainer.backend`.

Owns: the choice, and what cannot be combined. Refuses: computing (`trainer.step.core`, `trainer.step.tinker`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from trainer.errors import TinkerUnsupported
from trainer.ranks.group import ONE_RANK, Ranks
from trainer.ranks.launch import rank_count
from trainer.settings import TrainerSettings
from trainer.step.core import TrainerCore
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.step_core import StepCore
from trainer.step.tinker.requirements import require_supported


def check_backend(settings: TrainerSettings, share: str) -> None:
    """Raise `TinkerUnsupported` for settings that the back end cannot compute. `share`: `engine.share`."""
    if settings.backend == "tinker":
        require_supported(settings, share)
        if rank_count(settings) > 1:
            raise TinkerUnsupported("a training service is used by one process: start it without torchrun")


def open_core(
    base: Path,
    settings: TrainerSettings,
    folders: TrainerFolders,
    stopped: Callable[[], bool],
    ranks: Ranks = ONE_RANK,
) -> StepCore:
    """Load a base on these ranks, or open a session with the training service. `stopped`: whether to end early.

    Raises `UnsupportedModel`, `DoesNotFit` and `MemoryFull`, or `TinkerUnsupported`, `TinkerRefused` and
    `TinkerUnavailable`.
    """
    if settings.backend == "local":
        return TrainerCore(base, settings, folders, ranks=ranks)
    try:
        module = importlib.import_module("trainer.step.tinker.remote_core")
    except ModuleNotFoundError as e:
        if (e.name or "").partition(".")[0] != "tinker":
            raise
        raise TinkerUnsupported(
            "trainer.backend = \"tinker\" needs the package tinker: install it with pip install 'hone-proxy[tinker]'"
        ) from e
    core: StepCore = module.TinkerCore(base, settings, folders, stopped)
    return core

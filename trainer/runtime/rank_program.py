"""The program of a rank that is not the first, where torchrun starts the same command on every rank.

Owns: telling such a rank, and what several processes may train. Refuses: the work (`trainer.step.rank_worker`).
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from proxy.settings.hone import HoneSettings
from recorder.registry.aliases import AliasView
from trainer.errors import TrainerError
from trainer.ranks.launch import rank_count, torchrun_place
from trainer.settings import TrainerSettings


def is_other_rank() -> bool:
    """Whether torchrun started this process, and not as the first: it opens no store and takes no lease."""
    place = torchrun_place()
    return place is not None and place.index > 0


def work_as_rank(settings: HoneSettings) -> None:
    """Compute what the first rank sends, until it ends. Raises `RankLost` if it ends within a trainer's work."""
    place = torchrun_place()
    assert place is not None
    importlib.import_module("trainer.step.rank_worker").work(place, settings.trainer)


def require_undivided_gpus(settings: TrainerSettings, engine_share: str) -> None:
    """Raise `TrainerError` if several processes are to train on a GPU that an engine leaves to one of them in turns."""
    count = rank_count(settings)
    if count > 1 and engine_share != "split":
        raise TrainerError(
            f'{count} processes train together, and engine.share is "{engine_share}": an engine pauses for one process '
            'alone. Start one process, or set engine.share = "split".'
        )


def require_one_alias(settings: TrainerSettings, found: Sequence[AliasView]) -> None:
    """Raise `TrainerError` if several processes are to train several aliases: a group of processes has one trainer."""
    count = rank_count(settings)
    if count > 1 and len(found) > 1:
        names = ", ".join(alias.name for alias in found)
        raise TrainerError(
            f"{count} processes train one alias at a time, and there are {len(found)} ({names}): name one with "
            "--alias, or set trainer.processes = 1."
        )

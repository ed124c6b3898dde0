"""A program that torchrun starts on every rank: a step of a trainer, whose metrics the first rank writes as JSON.

torchrun --nproc-per-node 2 -m tests.trainer.ranks.torchrun_program BASE FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.trainer.ranks.groups import one_step
from tests.trainer.training_child import SETTINGS
from trainer.ranks.launch import Launcher, torchrun_place
from trainer.step import rank_worker


def main() -> None:
    """Train as the first rank, or compute what that one sends."""
    base, folder = Path(sys.argv[1]), Path(sys.argv[2])
    settings = SETTINGS.model_copy(update={"rank_timeout_s": 120.0})
    place = torchrun_place()
    assert place is not None
    if place.index > 0:
        rank_worker.work(place, settings)
        return
    launcher = Launcher(settings)
    metrics = one_step(base, folder / "data", launcher.join())
    launcher.leave()
    (folder / "metrics.json").write_text(json.dumps({"processes": place.count, **metrics}))


if __name__ == "__main__":
    main()

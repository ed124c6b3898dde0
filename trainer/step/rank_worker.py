"""A rank of a trainer that is not the first: it computes what the first one sends, until that one ends.

    python -m trainer.step.rank_worker SETTINGS NAME=VALUE…     (started by `trainer.ranks.launch`)

Under torchrun, `hone learn` and `hone train` call `work` on such ranks. Refuses: the store, files of versions, leases
and the optimizer, which the first rank has, and signals: the first rank stops between two passes, and then sends so.
"""

from __future__ import annotations

import logging
import os
import signal
import sys

from trainer.errors import RankLost
from trainer.policy import memory
from trainer.policy.base_model import resolve_base
from trainer.policy.packs.sums import FreshGaps
from trainer.ranks.group import RankGroup
from trainer.ranks.launch import READY, RankPlace, ends_with_parent, join_group
from trainer.settings import TrainerSettings
from trainer.step.passes import BaseJob, StepJob, StepPasses, open_passes
from trainer.step.state.results import PhaseSeconds

log = logging.getLogger(__name__)


def work(place: RankPlace, settings: TrainerSettings) -> None:
    """Join the group and compute its jobs, until the first rank has closed its trainer and ended.

    Raises `RankLost` if it ended before, and this rank's own error if the others do not share it.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    worker = RankWorker(join_group(place, settings))
    while worker.compute_next():
        pass


class RankWorker:
    """Computes the jobs of a group's first rank."""

    def __init__(self, group: RankGroup) -> None:
        self._group = group
        self._passes: StepPasses | None = None

    def compute_next(self) -> bool:
        """Compute one job. Return whether another may come."""
        try:
            job = self._group.receive()
        except RankLost:
            if self._passes is None:  # its trainer was closed, or never opened
                return False
            raise
        try:
            with self._group.job():
                self._compute(job)
        except Exception as e:
            if not self._group.is_agreed(e):
                raise
            self._forget_pass()
        return True

    def _compute(self, job: object) -> None:
        if isinstance(job, StepJob):
            assert self._passes is not None
            self._passes.policy.pass_budget = job.pass_budget
            self._passes.compute(
                job.rows, lambda: False, PhaseSeconds(), FreshGaps(), job.drift, job.reference, job.average
            )
        else:
            self._close()
        if isinstance(job, BaseJob):
            self._passes = open_passes(resolve_base(job.base), job.settings, self._group)

    def _close(self) -> None:
        if self._passes is not None:
            device, self._passes = self._passes.policy.device, None
            memory.release_memory(device)

    def _forget_pass(self) -> None:
        if self._passes is not None:
            self._passes.optimizer.zero()
            memory.release_memory(self._passes.policy.device)


def main() -> None:
    """Work for the process that started this one."""
    given = dict(argument.split("=", 1) for argument in sys.argv[2:])
    numbers = {name: int(value) for name, value in given.items() if name != "folder"}
    settings = TrainerSettings.model_validate_json(sys.argv[1])
    ends_with_parent(lambda: os._exit(1))
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    work(RankPlace(**numbers, folder=given["folder"]), settings)


if __name__ == "__main__":
    main()

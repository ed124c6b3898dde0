"""Which rows above `trainer.token_budget` the trainer computes: by the same plan as `hone plan`, or by an estimate.

Owns: the choice between the two, and what is free for a row now. Refuses: what a row needs (`trainer.memory.needs`),
and the estimate (`trainer.policy.row_fit`).
"""

from __future__ import annotations

import logging
from pathlib import Path

import torch

from recorder.errors import BaseInvalid
from recorder.models.base_model import read_base_model
from trainer.errors import PlanInvalid, TrainerError
from trainer.memory.needs import LongRows, TrainerNeed
from trainer.policy import memory, row_fit
from trainer.policy.model import Policy
from trainer.settings import TrainerSettings

log = logging.getLogger(__name__)


class PlannedRows:
    """Whether a row has a pass of its own. Measures in the trainer's thread: a few seconds for the first long row."""

    def __init__(self, policy: Policy, base: Path, settings: TrainerSettings) -> None:
        self._policy = policy
        self._rows: LongRows | None = None
        self.reason: str | None = None
        """Why the estimate decides; None: the plan does."""
        try:
            self._rows = LongRows(read_base_model(base, needs_weights=False), settings)
        except BaseInvalid as e:
            self._estimate(str(e))
        if policy.device.type != "cuda":
            self._estimate("the trainer runs on a CPU, and a plan is made for a card.")

    def __call__(self, row_tokens: int) -> bool:
        """Whether a row of this length is computed."""
        if not row_fit.is_covered(self._policy, row_tokens):
            return False
        need = self._need(row_tokens)
        if need is None:
            return row_fit.fits_alone(self._policy, row_tokens)
        return need.fits(_device_room(self._policy.device), memory.host_free_bytes())

    def _need(self, row_tokens: int) -> TrainerNeed | None:
        if self._rows is None:
            return None
        try:
            return self._rows.need(row_tokens)
        except (PlanInvalid, TrainerError) as e:
            self._estimate(str(e))
            return None

    def _estimate(self, reason: str) -> None:
        self._rows, self.reason = None, reason
        log.info("whether rows above trainer.token_budget fit is estimated: %s", reason)


def _device_room(device: torch.device) -> int:
    """What the card has for the trainer: what is free, and what torch holds already."""
    return memory.free_bytes(device) + torch.cuda.memory_reserved(device)

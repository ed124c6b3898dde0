"""The plan of a fit: which data are held out, and which share an optimizer step in each epoch. Pure.

Owns: the split by task, and the batches. Refuses: what a datum is (a demonstration, or a pair), weights
(`trainer.objectives`), training (`trainer.step.fits.epochs`).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from trainer.batch.row_builder import Row

FEWEST_TASKS: Final = 5  # with fewer, one held-out task would be too much of them


class FitDatum(Protocol):
    """A datum of a fit: all its rows are in the same optimizer step."""

    @property
    def source_id(self) -> str:
        """What it is known by."""

    @property
    def task(self) -> str:
        """Data with the same one are held out together."""

    @property
    def tokens(self) -> int:
        """The tokens of its rows."""

    @property
    def rows(self) -> Sequence[Row]:
        """Its rows, in an order that stays."""


D = TypeVar("D", bound=FitDatum)


@dataclass(frozen=True, slots=True)
class FitPlan(Generic[D]):
    """The data that are trained on, and those that are held out: no task is in both."""

    trained: Sequence[D]
    held_out: Sequence[D]


def plan_fit(data: Sequence[D], held_out_share: float, seed: int) -> FitPlan[D]:
    """Hold out a share of the tasks, at least one; none of fewer than `FEWEST_TASKS`, or if the share is 0.

    The choice depends on each task alone and on `seed`: more data of the same tasks do not change it much.
    """
    ranked = sorted({one.task for one in data}, key=lambda task: _rank(task, seed))
    count = max(1, round(held_out_share * len(ranked))) if held_out_share and len(ranked) >= FEWEST_TASKS else 0
    out = set(ranked[:count])
    return FitPlan([one for one in data if one.task not in out], [one for one in data if one.task in out])


def make_batches(data: Sequence[D], batch_tokens: int, epoch: int, seed: int) -> list[list[D]]:
    """The data of each optimizer step of an epoch, shuffled: at most `batch_tokens` tokens, or one alone."""
    order = sorted(data, key=lambda one: one.source_id)
    random.Random(f"{seed}:{epoch}").shuffle(order)
    batches: list[list[D]] = []
    tokens = 0
    for one in order:
        if not batches or tokens + one.tokens > batch_tokens:
            batches.append([])
            tokens = 0
        batches[-1].append(one)
        tokens += one.tokens
    return batches


def _rank(task: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{task}".encode()).digest()

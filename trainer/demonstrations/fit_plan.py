"""The plan of `hone sft`: which demonstrations are held out, and which share an optimizer step in each epoch. Pure.

Owns: the split by task, and the batches. Refuses: weights (`trainer.objectives.imitate`), training
(`trainer.step.imitation.epochs`).
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainer.objectives.imitate_rows import Demonstration

FEWEST_TASKS: Final = 5  # with fewer, one held-out task would be too much of them


@dataclass(frozen=True, slots=True)
class FitPlan:
    """The demonstrations that are trained on, and those that are held out: no task is in both."""

    trained: Sequence[Demonstration]
    held_out: Sequence[Demonstration]


def plan_fit(demonstrations: Sequence[Demonstration], held_out_share: float, seed: int) -> FitPlan:
    """Hold out a share of the tasks, at least one; none of fewer than `FEWEST_TASKS`, or if the share is 0.

    The choice depends on each task alone and on `seed`: more demonstrations of the same tasks do not change it much.
    """
    ranked = sorted({one.task for one in demonstrations}, key=lambda task: _rank(task, seed))
    count = max(1, round(held_out_share * len(ranked))) if held_out_share and len(ranked) >= FEWEST_TASKS else 0
    out = set(ranked[:count])
    return FitPlan(
        [one for one in demonstrations if one.task not in out], [one for one in demonstrations if one.task in out]
    )


def make_batches(
    demonstrations: Sequence[Demonstration], batch_tokens: int, epoch: int, seed: int
) -> list[list[Demonstration]]:
    """The demonstrations of each optimizer step of an epoch, shuffled: at most `batch_tokens` tokens, or one alone."""
    order = sorted(demonstrations, key=lambda one: one.source_id)
    random.Random(f"{seed}:{epoch}").shuffle(order)
    batches: list[list[Demonstration]] = []
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

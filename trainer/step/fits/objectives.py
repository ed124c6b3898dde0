"""The objectives that can be fitted alone: `imitate` for `hone sft`, and `prefer` for `hone dpo`. Pure.

Refuses: their weights (`trainer.objectives.imitate`, `trainer.objectives.prefer`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from recorder.queue.training.uses import ObjectiveUse
from trainer.batch.weights import WeightedRow
from trainer.objectives import imitate, prefer
from trainer.objectives.imitate_rows import Demonstration
from trainer.objectives.prefer import PairLogprobs, PreferencePair
from trainer.step.fits.job import RowSums


@dataclass(frozen=True, slots=True)
class ImitateFit:
    """Cross-entropy, its mean over all trained tokens of an optimizer step."""

    name: str = imitate.NAME
    command: str = "hone sft"
    section: str = "trainer.sft"
    needs_logprobs: bool = False

    def size(self, data: Sequence[Demonstration]) -> float:
        """Trained tokens."""
        return float(sum(one.trained_tokens for one in data))

    def weigh(self, batch: Sequence[Demonstration], _policy: RowSums, _reference: RowSums) -> list[WeightedRow]:
        """Weigh every token alike."""
        return imitate.weigh_batch(batch)

    def figures(self, data: Sequence[Demonstration], policy: RowSums, _reference: RowSums) -> dict[str, float]:
        """The mean cross-entropy in nats a token."""
        whole = math.fsum(value for one in data for value in policy[one.source_id])
        return {"loss": -whole / self.size(data)}

    def uses(self, data: Sequence[Demonstration], times: int) -> list[ObjectiveUse]:
        """Each demonstration."""
        return [ObjectiveUse(self.name, one.kind, one.source_id, times) for one in data]


@dataclass(frozen=True, slots=True)
class PreferFit:
    """DPO, its mean over the pairs of an optimizer step."""

    beta: float
    name: str = prefer.NAME
    command: str = "hone dpo"
    section: str = "trainer.dpo"
    needs_logprobs: bool = True

    def size(self, data: Sequence[PreferencePair]) -> float:
        """Pairs."""
        return float(len(data))

    def weigh(self, batch: Sequence[PreferencePair], policy: RowSums, reference: RowSums) -> list[WeightedRow]:
        """Weigh each side of a pair by how little it is preferred yet."""
        return prefer.weigh_pairs(batch, _pair_logprobs(batch, policy, reference), self.beta)

    def figures(self, data: Sequence[PreferencePair], policy: RowSums, reference: RowSums) -> dict[str, float]:
        """Loss, margin and accuracy."""
        return prefer.preference_figures(_pair_logprobs(data, policy, reference), self.beta)

    def uses(self, data: Sequence[PreferencePair], times: int) -> list[ObjectiveUse]:
        """Each pair, by which it is known that it was used, and each trajectory of one; a file's row is one datum."""
        return pair_uses(data, times)


def pair_uses(data: Sequence[PreferencePair], times: int = 1) -> list[ObjectiveUse]:
    """What `times` passes over pairs used: each pair and each trajectory of one; a file's row is one datum."""
    rows = [ObjectiveUse(prefer.NAME, "file", one.source_id, times) for one in data if one.source == "file"]
    recorded = [one for one in data if one.source != "file"]
    pairs = [ObjectiveUse(prefer.NAME, "pair", one.source_id, times) for one in recorded]
    sides = Counter(side.source_id for one in recorded for side in (one.chosen, one.rejected))
    return [
        *rows,
        *pairs,
        *(ObjectiveUse(prefer.NAME, "trajectory", id_, times * count) for id_, count in sides.items()),
    ]


def _pair_logprobs(data: Sequence[PreferencePair], policy: RowSums, reference: RowSums) -> list[PairLogprobs]:
    return [PairLogprobs.of(one, policy[one.source_id], reference[one.source_id]) for one in data]

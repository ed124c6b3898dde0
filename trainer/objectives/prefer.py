"""The weights of the objective `prefer` (DPO, arXiv 2305.18290): a chosen answer against a rejected one. Pure.

Owns: the margin of a pair, and the weight of its tokens. Refuses: choosing pairs, and the passes that give the sums of
logprobs.

DPO's loss of a pair is −log σ(m), m = β·[(S_c − S_r) − (R_c − R_r)], where S is the sum of the logprobs of all trained
tokens of a trajectory, and R the same under the reference. Its gradient by a logprob is the same for every token of a
side: −β·σ(−m) on the chosen one, +β·σ(−m) on the rejected one. So it is a cross-entropy with these weights, which are
computed anew before each optimizer step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PairLogprobs:
    """The sums of a pair's logprobs over all trained tokens of each side, in nats."""

    chosen: float
    rejected: float
    reference_chosen: float
    reference_rejected: float

    def margin(self, beta: float) -> float:
        """The margin m; 0 if policy and reference prefer the chosen side equally."""
        return beta * ((self.chosen - self.rejected) - (self.reference_chosen - self.reference_rejected))


@dataclass(frozen=True, slots=True)
class PairWeights:
    """The weight of the cross-entropy on each token of the chosen side, and of the rejected side (negative)."""

    chosen: float
    rejected: float


def preference_weights(pairs: Sequence[PairLogprobs], beta: float) -> list[PairWeights]:
    """Return the weights of the pairs of an optimizer step, in their order; nothing is divided by tokens."""
    sizes = [beta * _sigmoid(-one.margin(beta)) / len(pairs) for one in pairs]
    return [PairWeights(size, -size) for size in sizes]


def _sigmoid(value: float) -> float:
    """The logistic function, without overflow."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1 + grown)

"""The objective `prefer` (DPO, arXiv 2305.18290): a chosen answer against a rejected one. Pure.

Owns: a pair of rows, its margin and loss, and the weight of its tokens. Refuses: choosing pairs
(`trainer.preferences`), and the passes that give the sums of logprobs (`trainer.step.fits`).

DPO's loss of a pair is −log σ(m), m = β·[(S_c − S_r) − (R_c − R_r)], where S is the sum of the logprobs of all trained
tokens of a trajectory, and R the same under the reference. Its gradient by a logprob is the same for every token of a
side: −β·σ(−m) on the chosen one, +β·σ(−m) on the rejected one. So it is a cross-entropy with these weights, which are
computed anew before each optimizer step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final, Literal

from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.objectives.imitate_rows import Demonstration

NAME: Final = "prefer"
PairSource = Literal["preference", "ranking", "file"]


@dataclass(frozen=True, slots=True)
class PreferencePair:
    """Two sides at the same task, of which one is preferred.

    `source_id`: the pair. `source`: a person's preference, the rewards of a group, or a row of a file. `name`: where a
    person finds it. `code`: why it is not trained on.
    """

    source_id: str
    source: PairSource
    name: str
    chosen: Demonstration
    rejected: Demonstration
    code: str | None = None

    @property
    def note(self) -> str | None:
        """More about the code, if a side has it."""
        return self.chosen.note or self.rejected.note

    @property
    def task(self) -> str:
        """Pairs with the same one are held out together."""
        return self.chosen.task

    @property
    def rows(self) -> list[Row]:
        """The rows of the chosen side, and then those of the rejected one."""
        return [*self.chosen.rows, *self.rejected.rows]

    @property
    def tokens(self) -> int:
        """The tokens of both sides' rows."""
        return self.chosen.tokens + self.rejected.tokens

    @property
    def trained_tokens(self) -> int:
        """How many tokens the loss sees."""
        return self.chosen.trained_tokens + self.rejected.trained_tokens


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

    @staticmethod
    def of(pair: PreferencePair, policy: Sequence[float], reference: Sequence[float]) -> PairLogprobs:
        """Add up the logprobs of each row of a pair, in the order of its `rows`."""
        at = len(pair.chosen.rows)
        sides = (policy[:at], policy[at:], reference[:at], reference[at:])
        return PairLogprobs(*map(math.fsum, sides))


@dataclass(frozen=True, slots=True)
class PairWeights:
    """The weight of the cross-entropy on each token of the chosen side, and of the rejected side (negative)."""

    chosen: float
    rejected: float


def preference_weights(pairs: Sequence[PairLogprobs], beta: float) -> list[PairWeights]:
    """Return the weights of the pairs of an optimizer step, in their order; nothing is divided by tokens."""
    sizes = [beta * _sigmoid(-one.margin(beta)) / len(pairs) for one in pairs]
    return [PairWeights(size, -size) for size in sizes]


def weigh_pairs(pairs: Sequence[PreferencePair], logprobs: Sequence[PairLogprobs], beta: float) -> list[WeightedRow]:
    """Weigh the rows of an optimizer step's pairs, whose logprobs are those before that step."""
    return [
        WeightedRow(row, 0.0, 0.0, ce_weight=weight, objective=NAME)
        for pair, own in zip(pairs, preference_weights(logprobs, beta), strict=True)
        for side, weight in ((pair.chosen, own.chosen), (pair.rejected, own.rejected))
        for row in side.rows
    ]


def preference_figures(logprobs: Sequence[PairLogprobs], beta: float) -> dict[str, float]:
    """Return the means over pairs: DPO's `loss` (nats), the `margin` m, and `accuracy`, the share with m above 0."""
    margins = [one.margin(beta) for one in logprobs]
    return {
        "loss": fmean(map(_loss, margins)),
        "margin": fmean(margins),
        "accuracy": fmean(margin > 0 for margin in margins),
    }


def _loss(margin: float) -> float:
    """−log σ(margin), without overflow."""
    return max(0.0, -margin) + math.log1p(math.exp(-abs(margin)))


def _sigmoid(value: float) -> float:
    """The logistic function, without overflow."""
    if value >= 0:
        return 1 / (1 + math.exp(-value))
    grown = math.exp(value)
    return grown / (1 + grown)

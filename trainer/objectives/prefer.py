"""The objective `prefer` (DPO, arXiv 2305.18290): a chosen answer against a rejected one. Pure.

Owns: a pair of rows, its margin and loss, and the weight of its tokens. Refuses: choosing pairs
(`trainer.preferences`), and the passes that give the sums of logprobs (`trainer.step.fits`).

DPO's loss of a pair is −log σ(m), m = β·[(S_c − S_r) − (R_c − R_r)], where S is the sum of the logprobs of all trained
tokens of a trajectory, and R the same under the reference. Its gradient by a logprob is the same for every token of a
side: −β·σ(−m) on the chosen one, +β·σ(−m) on the rejected one. So it is a cross-entropy with these weights, which are
computed anew before each optimizer step.

In a step on groups, rows of pairs get their weights twice: β alone when the step begins, which says who is chosen and
how much the objective weighs, and times σ(−m) before the optimizer step that they are in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final, Literal

from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.objectives.imitate_rows import Demonstration
from trainer.settings import ObjectiveSettings, TrainerSettings

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


def weigh_joined_pairs(
    pairs: Sequence[PreferencePair], own: ObjectiveSettings, settings: TrainerSettings
) -> list[WeightedRow]:
    """Weigh the pairs that join a step as if σ(−m) were 1, until `weigh_by_margins` knows it.

    Pairs are distributed over `trainer.substeps`; both sides of one are in the same optimizer step.
    """
    ordered, number = sorted(pairs, key=lambda one: one.source_id), settings.substeps
    dealt = [ordered[substep::number] for substep in range(number)]
    return [
        WeightedRow(row, 0.0, 0.0, substep, ce_weight=weight, objective=NAME, pair=pair.source_id)
        for substep, together in enumerate(dealt)
        for pair in together
        for side, weight in _sides(pair, own.weight * settings.dpo.beta / len(together))
        for row in side.rows
    ]


def _sides(pair: PreferencePair, weight: float) -> tuple[tuple[Demonstration, float], tuple[Demonstration, float]]:
    return (pair.chosen, weight), (pair.rejected, -weight)


def weigh_by_margins(
    rows: Sequence[WeightedRow],
    policy: Mapping[str, Sequence[float]],
    reference: Mapping[str, Sequence[float]],
    beta: float,
) -> tuple[list[WeightedRow], dict[str, float]]:
    """Return the rows of an optimizer step with final weights, and the figures of its pairs; none without any pair.

    `policy`, `reference`: pair → the sum of the logprobs of each of its rows (nats), in their order. The figures are
    `loss` (DPO's mean over the pairs, times the objective's weight), and the means `margin` and `accuracy`.
    """
    of_pair: dict[str, list[WeightedRow]] = {}
    for one in rows:
        if one.pair is not None:
            of_pair.setdefault(one.pair, []).append(one)
    if not of_pair:
        return list(rows), {}
    margins = {id_: _margin(own, policy[id_], reference[id_], beta) for id_, own in of_pair.items()}
    weights = {id_: abs(float(own[0].ce_weight)) / beta for id_, own in of_pair.items()}
    figures = {
        "loss": math.fsum(weights[id_] * _loss(margin) for id_, margin in margins.items()),
        "margin": fmean(margins.values()),
        "accuracy": fmean(margin > 0 for margin in margins.values()),
    }
    return [one if one.pair is None else _weighed(one, margins[one.pair]) for one in rows], figures


def _margin(rows: Sequence[WeightedRow], policy: Sequence[float], reference: Sequence[float], beta: float) -> float:
    chosen = [float(one.ce_weight) > 0 for one in rows]
    sums = [
        math.fsum(value for value, is_chosen in zip(values, chosen, strict=True) if is_chosen == side)
        for values in (policy, reference)
        for side in (True, False)
    ]
    return PairLogprobs(*sums).margin(beta)


def _weighed(one: WeightedRow, margin: float) -> WeightedRow:
    return replace(one, ce_weight=float(one.ce_weight) * _sigmoid(-margin))


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

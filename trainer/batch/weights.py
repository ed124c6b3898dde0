"""A row of a step with the weights of its tokens in the loss.

Owns: the shape. Refuses: choosing weights (`trainer.objectives`), torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from trainer.batch.row_builder import Row

GROUP: Final = "group"  # the objective of scored groups
# One value for all trained tokens of a row, or one for each of them in their order, of shape (trained,).
TokenValues = float | NDArray[np.floating]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a teacher says of a row's trained tokens: they get the advantage log π_T − log π, at most `clip` nats.

    `asked`: the same tokens in the same order after other prompts, whose logprobs the weights of `teacher` give, at the
    temperatures of their rows. `known`: the logprobs of a `remote` teacher at temperature 1, (trained,), in nats.
    """

    teacher: Literal["parent", "base", "ema", "remote"]
    clip: float
    asked: tuple[Row, ...] = ()
    known: NDArray[np.floating] | None = None


@dataclass(frozen=True, slots=True)
class LessonRow:
    """A row of a trajectory whose trained turns a teacher is asked about."""

    row: Row
    lesson: Lesson


@dataclass(frozen=True, slots=True)
class WeightedRow:
    """A row of a step, with the final weight of each of its trained tokens in each part of the loss.

    `rl_weight` multiplies the surrogate of the advantage, `ce_weight` the cross-entropy −logprob, `kl_weight` the
    divergence to a teacher, whose logprobs are `teacher`; None: the base is the teacher. `taught_weight` multiplies the
    surrogate of an advantage by a teacher (`trainer.policy.losses`), which the `lesson` becomes before the first
    update.
    """

    row: Row
    advantage: TokenValues
    rl_weight: TokenValues
    substep: int = 0  # which of the step's optimizer steps it is for
    ce_weight: TokenValues = 0.0
    kl_weight: TokenValues = 0.0
    teacher: NDArray[np.floating] | None = None  # nats, (trained,)
    parent: NDArray[np.floating] | None = None  # nats, (trained,): by the version that the step began from
    objective: str = GROUP  # which one the row is for
    pair: str | None = None  # the pair that it is in: chosen rows have a positive `ce_weight`, rejected ones a negative
    taught_weight: TokenValues = 0.0
    lesson: Lesson | None = None  # None: the advantage is known

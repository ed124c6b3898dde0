"""Turns that a step leaves out because the engine's logprobs of them are not the trainer's. Pure.

Owns: which turns are masked, and rows without them. Refuses: computing logprobs (`trainer.policy.update`), and what
becomes of groups without a turn (`trainer.objectives.group_rows`).

The ratio of a turn is the geometric mean, over its tokens, of their probability at the step's parent over that in the
engine. Only fresh turns are compared, which the parent itself sampled: there both compute the same thing, and a ratio
away from 1 is a fault of one of them. The ratio of an older turn also holds what the policy has learned since. That is
drift, which `trainer.max_age` bounds and the surrogates clip; counted here, it would blame an engine that is right.

The other tokens keep their weights: a masked turn counts like one with the advantage 0.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainer.batch.row_builder import Row
from trainer.batch.weights import GROUP, TokenValues, WeightedRow

CallChoice = tuple[str, int]  # (call id, choice)


@dataclass(frozen=True, slots=True)
class MaskedTurn:
    """A turn that is not trained on. `ratio`: the geometric mean of parent over engine."""

    trajectory_id: str
    call: CallChoice
    ratio: float


@dataclass(frozen=True, slots=True)
class TurnMask:
    """What became of a step's fresh turns: how many were compared, and the masked ones."""

    compared: int = 0
    masked: Sequence[MaskedTurn] = ()

    @property
    def share(self) -> float:
        """The share of the compared turns that is masked; 0 without any."""
        return len(self.masked) / self.compared if self.compared else 0.0


def mask_turns(rows: Sequence[WeightedRow], limit: float) -> tuple[list[WeightedRow], TurnMask]:
    """Return the rows without the fresh turns whose ratio is outside [1 / `limit`, `limit`], and what was masked.

    Rows whose loss has a ratio to the engine (those of the objective `group`, and those with a teacher's advantages)
    are compared once they have logprobs of the parent; the others stay as they are. A row that has no other turn is
    left out.
    """
    kept: list[WeightedRow] = []
    compared, masked = 0, []
    for one in rows:
        ratios = fresh_ratios(one)
        outside = {call for call, ratio in ratios.items() if abs(ratio) > math.log(limit)}
        compared += len(ratios)
        masked += [MaskedTurn(one.row.trajectory_id, call, math.exp(ratios[call])) for call in sorted(outside)]
        if (left := weighted_without(one, outside)) is not None:
            kept.append(left)
    return kept, TurnMask(compared, tuple(masked))


def has_fresh_turns(one: WeightedRow) -> bool:
    """Whether a row has a turn to compare, once the parent's logprobs are known."""
    has_ratio = one.objective == GROUP or bool(np.any(one.taught_weight))
    return has_ratio and bool((one.row.age[one.row.trained] == 0).any())


def fresh_ratios(one: WeightedRow) -> dict[CallChoice, float]:
    """The logarithm of each fresh turn's ratio (nats a token); empty if the parent's logprobs are not known."""
    if one.parent is None or not has_fresh_turns(one):
        return {}
    row = one.row
    gaps = one.parent.astype(np.float64) - row.behaviour[row.trained]
    is_fresh = row.age[row.trained] == 0
    return {call: float(gaps[span].mean()) for call, span in _spans(row) if is_fresh[span].all()}


def weighted_without(one: WeightedRow, calls: Collection[CallChoice]) -> WeightedRow | None:
    """Return a row without the turns of these calls, with the weights of its other tokens; None: no turn is left."""
    if not calls:
        return one
    row = row_without(one.row, calls)
    if row is None:
        return None
    keep = _kept(one.row, calls)

    def of(values: TokenValues) -> TokenValues:
        return values[keep] if isinstance(values, np.ndarray) and values.ndim else values

    return replace(
        one,
        row=row,
        advantage=of(one.advantage),
        rl_weight=of(one.rl_weight),
        ce_weight=of(one.ce_weight),
        kl_weight=of(one.kl_weight),
        taught_weight=of(one.taught_weight),
        teacher=None if one.teacher is None else one.teacher[keep],
        parent=None if one.parent is None else one.parent[keep],
    )


def row_without(row: Row, calls: Collection[CallChoice]) -> Row | None:
    """Return a row in which the turns of these calls are context; None: no turn is left."""
    if not (keep := _kept(row, calls)).any():
        return None
    if keep.all():
        return row
    is_kept = row.trained.copy()
    is_kept[row.trained] = keep
    left = [(call, size) for call, size in zip(row.calls, row.turn_sizes, strict=True) if call not in calls]
    return replace(
        row,
        trained=is_kept,
        behaviour=np.where(is_kept, row.behaviour, np.float32(np.nan)),
        temperature=np.where(is_kept, row.temperature, np.float32(np.nan)),
        age=np.where(is_kept, row.age, np.int32(-1)),
        calls=tuple(call for call, _ in left),
        sizes=tuple(size for _, size in left),
    )


def _kept(row: Row, calls: Collection[CallChoice]) -> NDArray[np.bool_]:
    """Which of a row's trained tokens are not of these calls, (trained,)."""
    keep = np.ones(row.trained_tokens, np.bool_)
    for call, span in _spans(row):
        keep[span] = call not in calls
    return keep


def _spans(row: Row) -> list[tuple[CallChoice, slice]]:
    """The turns of a row, each with its places among the trained tokens."""
    ends = np.cumsum(row.turn_sizes).tolist()
    return [(call, slice(end - size, end)) for call, size, end in zip(row.calls, row.turn_sizes, ends, strict=True)]

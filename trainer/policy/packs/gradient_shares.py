"""How much each objective of a step pulls at the weights: its share of the gradient's norm, on one small pack.

Owns: the sample of rows and the shares. Refuses: the step's own update (`trainer.policy.update`).

A share says whether a weight of `trainer.objectives` is in the right order of magnitude. It costs a pass over at most
`MOST_TOKENS` tokens for each objective, so a step with one objective measures nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import torch

from trainer.batch.weights import WeightedRow
from trainer.policy import update
from trainer.policy.model import Policy
from trainer.policy.packs.plan import plan_update
from trainer.settings import TrainerSettings

MOST_TOKENS: Final = 2048
_WEIGHTS: Final = ("rl_weight", "ce_weight", "kl_weight", "taught_weight")


def by_objective(rows: Sequence[WeightedRow]) -> dict[str, list[WeightedRow]]:
    """The rows of each objective, in their order."""
    found: dict[str, list[WeightedRow]] = {}
    for row in rows:
        found.setdefault(row.objective, []).append(row)
    return found


def sample_rows(rows: Sequence[WeightedRow]) -> list[WeightedRow]:
    """Rows of each objective in turn, the shortest first, of at most `MOST_TOKENS` tokens together; a pair whole.

    Their weights are raised so that an objective's sample weighs as much as all of its rows. Empty if an objective has
    no row that fits.
    """
    parts = by_objective(rows)
    waiting = {name: _units(own) for name, own in parts.items()}
    chosen: dict[str, list[WeightedRow]] = {name: [] for name in parts}
    left = MOST_TOKENS
    while fitting := [name for name, units in waiting.items() if units and _length(units[0]) <= left]:
        name = min(fitting, key=lambda name: len(chosen[name]))
        unit = waiting[name].pop(0)
        chosen[name] += unit
        left -= _length(unit)
    if not all(chosen.values()):
        return []
    return [_scaled(one, _tokens(parts[name]) / _tokens(own)) for name, own in chosen.items() for one in own]


def _units(rows: Sequence[WeightedRow]) -> list[list[WeightedRow]]:
    """Rows that are sampled together, the shortest first: the gradients of a pair's sides partly cancel each other."""
    found: dict[str | int, list[WeightedRow]] = {}
    for number, one in enumerate(rows):
        found.setdefault(number if one.pair is None else one.pair, []).append(one)
    return sorted(found.values(), key=lambda unit: (_length(unit), unit[0].row.trajectory_id))


def _length(unit: Sequence[WeightedRow]) -> int:
    return sum(len(one.row) for one in unit)


def gradient_shares(policy: Policy, rows: Sequence[WeightedRow], settings: TrainerSettings) -> dict[str, float]:
    """Return objective → its share of the sum of all objectives' gradient norms; empty for a single objective.

    Empty also where processes share a base's weights: the sample has passes of its own, which FSDP does not expect.
    The weights are not changed, and gradients that are being added up stay as they are.
    """
    if policy.ranks.is_sharded or len(by_objective(rows)) < 2 or not (sampled := sample_rows(rows)):
        return {}
    norms = {name: _norm(policy, own, settings) for name, own in by_objective(sampled).items()}
    whole = math.fsum(norms.values())
    return {name: norm / whole for name, norm in norms.items()} if whole > 0 else {}


def objective_metrics(shares: Mapping[str, float]) -> dict[str, float]:
    """The metrics of a step, by their names in a report."""
    return {f"objective.{name}.gradient_share": share for name, share in shares.items()}


def _norm(policy: Policy, rows: Sequence[WeightedRow], settings: TrainerSettings) -> float:
    planned = plan_update(policy, rows, settings, policy.pass_budget)
    parameters = list(policy.parameters.values())
    total = [torch.zeros_like(parameter) for parameter in parameters]
    for one in planned.packs:
        loss = update.pack_losses(policy, one, planned.rows, settings).losses.sum()
        for sum_, gradient in zip(total, torch.autograd.grad(loss, parameters, allow_unused=True), strict=True):
            if gradient is not None:
                sum_ += gradient
    return float(torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(one) for one in total])))


def _scaled(one: WeightedRow, by: float) -> WeightedRow:
    return replace(one, **{name: np.multiply(getattr(one, name), by) for name in _WEIGHTS})


def _tokens(rows: Sequence[WeightedRow]) -> int:
    return sum(one.row.trained_tokens for one in rows)

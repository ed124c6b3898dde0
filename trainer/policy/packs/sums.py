"""The sums of a step over its packs, and the metrics that they give.

Owns: the figures of loss and ratio, the gaps between trainer and engine, and the metrics of several optimizer steps.
Refuses: computing logprobs (`trainer.policy.update`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from trainer.batch.packing import Pack
from trainer.batch.weights import WeightedRow
from trainer.policy.losses import TokenLoss
from trainer.policy.packs.tokens import PackTokens

_ADDED = frozenset({"trained_tokens", "forward_tokens"})
_OF_THE_FIRST = frozenset({"fresh_tokens", "kl_engine", "logprob_gap", "logprob_gap_max"})


@dataclass(slots=True)
class StepSums:
    """The sums of a step over its packs."""

    trained_tokens: int = 0
    sampled_tokens: int = 0  # those of them that have a ratio to the engine
    forward_tokens: int = 0  # what was computed: shared prefixes once, and padding
    loss: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: int = 0
    entropy: float = 0.0
    kl_base: float | None = None  # None: not computed
    by_objective: dict[str, tuple[int, float]] = field(default_factory=dict)  # tokens, and the sum of the loss

    def add_tokens(self, tokens: PackTokens, result: TokenLoss, loss: Tensor) -> None:
        """Add a pack's trained tokens, their ratios to the engine where there are any, and the pack's loss."""
        ratio, clipped = result.ratio, result.clipped
        if tokens.unsampled is not None:
            ratio, clipped = ratio[~tokens.unsampled], clipped[~tokens.unsampled]
        self.loss += float(loss.detach())
        self.trained_tokens += len(tokens)
        self.sampled_tokens += len(ratio)
        if len(ratio):
            self.ratio += float(ratio.sum())
            self.ratio_max = max(self.ratio_max, float(ratio.max()))
            self.clipped += int(clipped.sum())

    def add_losses(self, one: Pack, rows: Sequence[WeightedRow], losses: Tensor) -> None:
        """Add the weighted losses of a pack's tokens to the objective of each row."""
        sizes = [rows[index].row.trained_tokens for index in one.rows]
        for index, own in zip(one.rows, torch.split(losses.detach().double(), sizes), strict=True):
            tokens, loss = self.by_objective.get(rows[index].objective, (0, 0.0))
            self.by_objective[rows[index].objective] = tokens + len(own), loss + float(own.sum())

    def merge(self, others: Iterable[StepSums]) -> None:
        """Become the sums of all ranks."""
        sums = list(others)
        for name in ("trained_tokens", "sampled_tokens", "forward_tokens", "loss", "ratio", "clipped", "entropy"):
            setattr(self, name, sum(getattr(one, name) for one in sums))
        self.ratio_max = max(one.ratio_max for one in sums)
        measured = [one.kl_base for one in sums if one.kl_base is not None]
        self.kl_base = sum(measured) if measured else None
        merged: dict[str, tuple[int, float]] = {}
        for name, (number, total) in (pair for one in sums for pair in one.by_objective.items()):
            before, earlier = merged.get(name, (0, 0.0))
            merged[name] = before + number, earlier + total
        self.by_objective = merged

    def means(self) -> dict[str, float]:
        """The metrics of the step, by their names in a report."""
        n, sampled = max(1, self.trained_tokens), max(1, self.sampled_tokens)
        metrics = {
            "loss": self.loss,
            "ratio_mean": self.ratio / sampled,
            "ratio_max": self.ratio_max,
            "clip_fraction": self.clipped / sampled,
            "entropy": self.entropy / n,
            "trained_tokens": float(self.trained_tokens),
            "forward_tokens": float(self.forward_tokens),
        }
        for name, (tokens, loss) in self.by_objective.items():
            metrics |= {f"objective.{name}.tokens": float(tokens), f"objective.{name}.loss": loss}
        if self.kl_base is not None:
            metrics["kl_base"] = self.kl_base / n
        return metrics


@dataclass(slots=True)
class FreshGaps:
    """How far the trainer's logprobs are from the engine's, before any update, over fresh tokens.

    For other tokens a gap is drift of the policy, not a difference between engine and trainer. `by_trajectory`: the
    number of tokens and the sum of their |Δlogprob| (nats).
    """

    tokens: int = 0
    kl_engine: float = 0.0  # a sum, as is the next one
    gap: float = 0.0
    gap_max: float = 0.0
    by_trajectory: dict[str, tuple[int, float]] = field(default_factory=dict)

    def add(self, one: Pack, rows: Sequence[WeightedRow], tokens: PackTokens, logprobs: Tensor) -> None:
        """Add the fresh tokens of a pack. The KL is the k3 estimate of KL(engine ‖ trainer)."""
        gaps = (logprobs.detach() - tokens.behaviour).double()  # the estimate is of the order of the square
        fresh = gaps[tokens.fresh]
        if not len(fresh):
            return
        self.tokens += len(fresh)
        self.kl_engine += float((torch.expm1(fresh) - fresh).sum())
        self.gap += float(fresh.abs().sum())
        self.gap_max = max(self.gap_max, float(fresh.abs().max()))
        sizes = [rows[index].row.trained_tokens for index in one.rows]
        each = zip(one.rows, torch.split(gaps, sizes), torch.split(tokens.fresh, sizes), strict=True)
        for index, its, is_fresh in each:
            owner = rows[index].row.trajectory_id
            number, total = self.by_trajectory.get(owner, (0, 0.0))
            self.by_trajectory[owner] = number + int(is_fresh.sum()), total + float(its[is_fresh].abs().sum())

    def add_row(self, one: WeightedRow) -> None:
        """Add the fresh tokens of a row whose logprobs at the parent are known."""
        assert one.parent is not None
        row = one.row
        gaps = (one.parent.astype(np.float64) - row.behaviour[row.trained])[row.age[row.trained] == 0]
        if not len(gaps):
            return
        self.tokens += len(gaps)
        self.kl_engine += float((np.expm1(gaps) - gaps).sum())
        self.gap += float(np.abs(gaps).sum())
        self.gap_max = max(self.gap_max, float(np.abs(gaps).max()))
        number, total = self.by_trajectory.get(row.trajectory_id, (0, 0.0))
        self.by_trajectory[row.trajectory_id] = number + len(gaps), total + float(np.abs(gaps).sum())

    def merge(self, others: Iterable[FreshGaps]) -> None:
        """Become the gaps of all ranks."""
        gaps = list(others)
        self.tokens = sum(one.tokens for one in gaps)
        self.kl_engine = sum(one.kl_engine for one in gaps)
        self.gap = sum(one.gap for one in gaps)
        self.gap_max = max(one.gap_max for one in gaps)
        merged: dict[str, tuple[int, float]] = {}
        for owner, (number, total) in (pair for one in gaps for pair in one.by_trajectory.items()):
            before, earlier = merged.get(owner, (0, 0.0))
            merged[owner] = before + number, earlier + total
        self.by_trajectory = merged

    def means(self) -> dict[str, float]:
        """The metrics of the step, by their names in a report."""
        metrics = {"fresh_tokens": float(self.tokens)}
        if self.tokens:
            metrics |= {"kl_engine": self.kl_engine / self.tokens, "logprob_gap": self.gap / self.tokens}
            metrics["logprob_gap_max"] = self.gap_max
        return metrics


def merge_substeps(done: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of a step from those of its optimizer steps: tokens are summed, maxima are maxima of all.

    The difference between trainer and engine is taken from the first one: after it the weights differ.
    """
    first, *later = done
    merged = dict(first)
    added = {name for name in first if name.endswith(".tokens")} | _ADDED
    for name in first.keys() - _OF_THE_FIRST:
        values = [metrics[name] for metrics in done if name in metrics]
        merged[name] = sum(values) if name in added else max(values) if name.endswith("_max") else fmean(values)
    return merged if later else dict(first)

"""One optimizer step over weighted rows: forward and backward pack by pack, one update, and its metrics.

Owns: gathering trained tokens, the sum of the loss, the metrics. Refuses: files, the store, choosing rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.batch.layouts import make_packs
from trainer.batch.packing import Pack
from trainer.batch.weights import WeightedRow
from trainer.errors import StepFailed, StepInterrupted
from trainer.policy import memory
from trainer.policy.logprobs import token_logprobs
from trainer.policy.losses import LOSSES, kl_to_base
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.settings import TrainerSettings

_ADDED = frozenset({"trained_tokens", "forward_tokens"})
_OF_THE_FIRST = frozenset({"fresh_tokens", "kl_engine", "logprob_gap", "logprob_gap_max"})


@dataclass(frozen=True, slots=True)
class PackTokens:
    """The trained tokens of a pack, each tensor of shape (n,). `before`: flat indices of the tokens before them."""

    before: Tensor  # int64
    targets: Tensor  # int64
    temperatures: Tensor
    behaviour: Tensor
    advantages: Tensor
    weights: Tensor
    fresh: Tensor  # bool: sampled by the version that is being trained

    def __len__(self) -> int:
        return len(self.targets)


@dataclass(slots=True)
class StepSums:
    """The sums of a step over its packs."""

    trained_tokens: int = 0
    forward_tokens: int = 0  # what was computed: shared prefixes once, and padding
    loss: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: int = 0
    entropy: float = 0.0
    kl_base: float | None = None  # None: not computed

    def means(self) -> dict[str, float]:
        """The metrics of the step, by their names in a report."""
        n = max(1, self.trained_tokens)
        metrics = {
            "loss": self.loss,
            "ratio_mean": self.ratio / n,
            "ratio_max": self.ratio_max,
            "clip_fraction": self.clipped / n,
            "entropy": self.entropy / n,
            "trained_tokens": float(self.trained_tokens),
            "forward_tokens": float(self.forward_tokens),
        }
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

    def means(self) -> dict[str, float]:
        """The metrics of the step, by their names in a report."""
        metrics = {"fresh_tokens": float(self.tokens)}
        if self.tokens:
            metrics |= {"kl_engine": self.kl_engine / self.tokens, "logprob_gap": self.gap / self.tokens}
            metrics["logprob_gap_max"] = self.gap_max
        return metrics


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The rows of a step and how they are packed."""

    rows: Sequence[WeightedRow]
    packs: Sequence[Pack] = field(default_factory=list)


def plan_update(
    policy: Policy, rows: Sequence[WeightedRow], settings: TrainerSettings, pass_budget: int | None = None
) -> UpdatePlan:
    """Pack the rows of a step, each cut after its last trained token.

    `pass_budget`: tokens of a pack; None: `token_budget`. Rows longer than that come first, the longest one before the
    others: what does not fit into memory is then found soon.
    """
    ids = [one.row.token_ids[: int(np.flatnonzero(one.row.trained)[-1]) + 1] for one in rows]
    budget = pass_budget or settings.token_budget
    packs = make_packs(ids, budget, policy.layout)
    return UpdatePlan(rows, sorted(packs, key=lambda one: -len(one) if len(one) > budget else 0))


def train_step(
    policy: Policy,
    optimizer: Optimizer,
    planned: UpdatePlan,
    settings: TrainerSettings,
    stopped: Callable[[], bool],
    fresh: FreshGaps | None = None,
) -> dict[str, float]:
    """Make one update and return its metrics.

    `fresh`: where the gaps of fresh tokens are added; the metrics contain what it has then. `stopped` is called between
    packs. Raises `StepInterrupted` if it returns true, and `StepFailed` if loss or gradient is not finite; then the
    parameters are unchanged.
    """
    sums, fresh = StepSums(), FreshGaps() if fresh is None else fresh
    optimizer.zero()
    for one in planned.packs:
        if stopped():
            optimizer.zero()
            raise StepInterrupted("the step was stopped before its update: its groups are given back")
        with memory.pass_errors(one):
            _accumulate(policy, one, planned.rows, settings, sums, fresh)
    return sums.means() | fresh.means() | optimizer.step()


def measure_gaps(
    policy: Policy, planned: UpdatePlan, settings: TrainerSettings, stopped: Callable[[], bool], fresh: FreshGaps
) -> None:
    """Add the gaps of rows that are trained on only after the weights have changed. Raises `StepInterrupted`."""
    for one in planned.packs:
        if stopped():
            raise StepInterrupted("the step was stopped before its update: its groups are given back")
        with torch.no_grad(), memory.pass_errors(one):
            tokens = gather_tokens(one, planned.rows, policy.device)
            logprobs, _ = pack_logprobs(policy, one, tokens, settings.logprob_chunk)
        fresh.add(one, planned.rows, tokens, logprobs)


def split_substeps(rows: Sequence[WeightedRow]) -> list[list[WeightedRow]]:
    """The rows of each optimizer step of a training step, in their order."""
    parts: dict[int, list[WeightedRow]] = {}
    for row in rows:
        parts.setdefault(row.substep, []).append(row)
    return [parts[number] for number in sorted(parts)]


def merge_substeps(done: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of a step from those of its optimizer steps: tokens are summed, maxima are maxima of all.

    The difference between trainer and engine is taken from the first one: after it the weights differ.
    """
    first, *later = done
    merged = dict(first)
    for name in first.keys() - _OF_THE_FIRST:
        values = [metrics[name] for metrics in done if name in metrics]
        merged[name] = sum(values) if name in _ADDED else max(values) if name.endswith("_max") else fmean(values)
    return merged if later else dict(first)


def pack_logprobs(policy: Policy, one: Pack, tokens: PackTokens, chunk: int) -> tuple[Tensor, Tensor]:
    """Return the logprobs (with gradient) and entropies of a pack's trained tokens, float32 of shape (n,)."""
    hidden = policy.hidden(one)[tokens.before]
    return token_logprobs(hidden, policy.head, tokens.targets, tokens.temperatures, chunk=chunk)


def gather_tokens(one: Pack, rows: Sequence[WeightedRow], device: torch.device) -> PackTokens:
    """Find the trained tokens of a pack: the position that predicts each, and the inputs of the loss."""
    before, parts = [], []
    for index, places in zip(one.rows, one.places, strict=True):
        row = rows[index].row
        trained = np.flatnonzero(row.trained)
        before.append(places[trained - 1])
        parts.append((row, trained, np.full(len(trained), rows[index].advantage), rows[index].weight))

    def floats(arrays: list[NDArray[np.floating]]) -> Tensor:
        return torch.from_numpy(np.concatenate(arrays).astype(np.float32)).to(device)

    return PackTokens(
        before=torch.from_numpy(np.concatenate(before)).to(device),
        targets=torch.from_numpy(np.concatenate([r.token_ids[t] for r, t, _, _ in parts]).astype(np.int64)).to(device),
        temperatures=floats([r.temperature[t] for r, t, _, _ in parts]),
        behaviour=floats([r.behaviour[t] for r, t, _, _ in parts]),
        advantages=floats([advantages for _, _, advantages, _ in parts]),
        weights=floats([np.full(len(t), weight) for _, t, _, weight in parts]),
        fresh=torch.from_numpy(np.concatenate([r.age[t] == 0 for r, t, _, _ in parts])).to(device),
    )


def _accumulate(
    policy: Policy,
    one: Pack,
    rows: Sequence[WeightedRow],
    settings: TrainerSettings,
    sums: StepSums,
    fresh: FreshGaps,
) -> None:
    tokens = gather_tokens(one, rows, policy.device)
    logprobs, entropies = pack_logprobs(policy, one, tokens, settings.logprob_chunk)
    result = LOSSES[settings.loss](logprobs, tokens.behaviour, tokens.advantages, settings)
    losses = result.loss
    if settings.kl_coef > 0:
        with policy.base_only():
            base, _ = pack_logprobs(policy, one, tokens, settings.logprob_chunk)
        divergence = kl_to_base(logprobs, base)
        losses = losses + settings.kl_coef * divergence
        sums.kl_base = (sums.kl_base or 0.0) + float(divergence.detach().sum())
    loss = (losses * tokens.weights).sum()
    if not torch.isfinite(loss):
        raise StepFailed(_blame(one, rows, losses.detach()))
    torch.autograd.backward(loss)
    sums.loss += float(loss.detach())
    sums.forward_tokens += len(one)
    sums.trained_tokens += len(tokens)
    sums.ratio += float(result.ratio.sum())
    sums.ratio_max = max(sums.ratio_max, float(result.ratio.max()))
    sums.clipped += int(result.clipped.sum())
    sums.entropy += float(entropies.sum())
    fresh.add(one, rows, tokens, logprobs)


def _blame(one: Pack, rows: Sequence[WeightedRow], losses: Tensor) -> str:
    owners = [rows[index].row.trajectory_id for index in one.rows for _ in range(rows[index].row.trained_tokens)]
    bad = (~torch.isfinite(losses)).cpu().tolist()
    guilty = sorted({owner for owner, is_bad in zip(owners, bad, strict=True) if is_bad})
    return f"the loss is not finite (trajectories {', '.join(guilty) or 'unknown'}): no update was made"

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

from trainer.batch.packing import Pack, pack
from trainer.batch.weights import WeightedRow
from trainer.errors import StepFailed, StepInterrupted
from trainer.policy.logprobs import token_logprobs
from trainer.policy.losses import LOSSES, kl_to_base
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.settings import TrainerSettings

_ADDED = frozenset({"trained_tokens", "forward_tokens"})
_OF_THE_FIRST = frozenset({"kl_engine", "logprob_gap", "logprob_gap_max"})


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
    forward_tokens: int = 0  # after sharing prefixes
    loss: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: int = 0
    entropy: float = 0.0
    kl_base: float | None = None  # None: not computed
    fresh: int = 0
    kl_engine: float = 0.0  # over fresh tokens, as are the gaps
    logprob_gap: float = 0.0
    logprob_gap_max: float = 0.0

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
        if self.fresh:  # for other tokens, a gap is drift of the policy, not a difference between engine and trainer
            metrics |= {"kl_engine": self.kl_engine / self.fresh, "logprob_gap": self.logprob_gap / self.fresh}
            metrics["logprob_gap_max"] = self.logprob_gap_max
        return metrics

    def add_gaps(self, gaps: Tensor) -> None:
        """Add Δlogprob (trainer minus engine) of fresh tokens. The KL is the k3 estimate of KL(engine ‖ trainer)."""
        if not len(gaps):
            return
        gaps = gaps.double()  # the estimate is of the order of the square
        self.fresh += len(gaps)
        self.kl_engine += float((torch.expm1(gaps) - gaps).sum())
        self.logprob_gap += float(gaps.abs().sum())
        self.logprob_gap_max = max(self.logprob_gap_max, float(gaps.abs().max()))


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """The rows of a step and how they are packed."""

    rows: Sequence[WeightedRow]
    packs: Sequence[Pack] = field(default_factory=list)


def plan_update(
    policy: Policy, rows: Sequence[WeightedRow], settings: TrainerSettings, pass_budget: int | None = None
) -> UpdatePlan:
    """Pack the rows of a step, each cut after its last trained token.

    `pass_budget`: tokens of a pack; None: `token_budget`.
    """
    ids = [one.row.token_ids[: int(np.flatnonzero(one.row.trained)[-1]) + 1] for one in rows]
    return UpdatePlan(rows, pack(ids, pass_budget or settings.token_budget, alone=policy.alone))


def train_step(
    policy: Policy, optimizer: Optimizer, planned: UpdatePlan, settings: TrainerSettings, stopped: Callable[[], bool]
) -> dict[str, float]:
    """Make one update and return its metrics.

    `stopped` is called between packs. Raises `StepInterrupted` if it returns true, and `StepFailed` if loss or gradient
    is not finite; then the parameters are unchanged.
    """
    sums = StepSums()
    optimizer.zero()
    for one in planned.packs:
        if stopped():
            optimizer.zero()
            raise StepInterrupted("the step was stopped before its update: its groups are given back")
        _accumulate(policy, one, planned.rows, settings, sums)
    return sums.means() | optimizer.step()


def split_substeps(rows: Sequence[WeightedRow]) -> list[list[WeightedRow]]:
    """The rows of each optimizer step of a training step, in their order."""
    parts: dict[int, list[WeightedRow]] = {}
    for row in rows:
        parts.setdefault(row.substep, []).append(row)
    return [parts[number] for number in sorted(parts)]


def merge_substeps(done: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The metrics of a step from those of its optimizer steps: tokens are summed, maxima are maxima of all.

    The difference between trainer and engine is taken from the first one only: after it the weights differ.
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
    policy: Policy, one: Pack, rows: Sequence[WeightedRow], settings: TrainerSettings, sums: StepSums
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
    sums.add_gaps((logprobs.detach() - tokens.behaviour)[tokens.fresh])


def _blame(one: Pack, rows: Sequence[WeightedRow], losses: Tensor) -> str:
    owners = [rows[index].row.trajectory_id for index in one.rows for _ in range(rows[index].row.trained_tokens)]
    bad = (~torch.isfinite(losses)).cpu().tolist()
    guilty = sorted({owner for owner, is_bad in zip(owners, bad, strict=True) if is_bad})
    return f"the loss is not finite (trajectories {', '.join(guilty) or 'unknown'}): no update was made"

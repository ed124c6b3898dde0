"""One optimizer step over weighted rows: forward and backward pack by pack, then one update.

Owns: the passes of an update and the sum of the loss. Refuses: files, the store, choosing rows, and how they are packed
(`trainer.policy.packs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from trainer.batch.packing import Pack
from trainer.batch.weights import GROUP, WeightedRow
from trainer.errors import StepFailed, StepInterrupted
from trainer.policy import memory
from trainer.policy.logprobs import token_logprobs
from trainer.policy.losses import LOSSES, SampledTokens, TokenLoss, kl_to_teacher
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.plan import UpdatePlan
from trainer.policy.packs.sums import FreshGaps, StepSums
from trainer.policy.packs.tokens import PackTokens, gather_tokens
from trainer.settings import TrainerSettings


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


def measure_parent(
    policy: Policy, planned: UpdatePlan, settings: TrainerSettings, stopped: Callable[[], bool], fresh: FreshGaps
) -> list[WeightedRow]:
    """Return rows that are trained on only after the weights have changed, with their logprobs at the parent, and add
    their gaps to `fresh`. Raises `StepInterrupted`.
    """
    rows = list(planned.rows)
    for one in planned.packs:
        if stopped():
            raise StepInterrupted("the step was stopped before its update: its groups are given back")
        with torch.no_grad(), memory.pass_errors(one):
            tokens = gather_tokens(one, planned.rows, policy.device)
            logprobs, _ = pack_logprobs(policy, one, tokens, settings.logprob_chunk)
        fresh.add(one, planned.rows, tokens, logprobs)
        own = torch.split(logprobs, [rows[index].row.trained_tokens for index in one.rows])
        for index, values in zip(one.rows, own, strict=True):
            rows[index] = replace(rows[index], parent=values.cpu().numpy())
    return rows


def pack_logprobs(policy: Policy, one: Pack, tokens: PackTokens, chunk: int) -> tuple[Tensor, Tensor]:
    """Return the logprobs (with gradient) and entropies of a pack's trained tokens, float32 of shape (n,)."""
    hidden = policy.hidden(one)[tokens.before]
    return token_logprobs(hidden, policy.head, tokens.targets, tokens.temperatures, chunk=chunk)


def _accumulate(
    policy: Policy,
    one: Pack,
    rows: Sequence[WeightedRow],
    settings: TrainerSettings,
    sums: StepSums,
    fresh: FreshGaps,
) -> None:
    found = pack_losses(policy, one, rows, settings)
    tokens, result = found.tokens, found.result
    if found.divergence is not None:
        sums.kl_base = (sums.kl_base or 0.0) + float(found.divergence.sum())
    loss = found.losses.sum()
    if not torch.isfinite(loss):
        raise StepFailed(_blame(one, rows, found.losses.detach()))
    torch.autograd.backward(loss)
    ratio, clipped = result.ratio, result.clipped
    if tokens.unsampled is not None:
        ratio, clipped = ratio[~tokens.unsampled], clipped[~tokens.unsampled]
    sums.loss += float(loss.detach())
    sums.forward_tokens += len(one)
    sums.trained_tokens += len(tokens)
    sums.sampled_tokens += len(ratio)
    if len(ratio):
        sums.ratio += float(ratio.sum())
        sums.ratio_max = max(sums.ratio_max, float(ratio.max()))
        sums.clipped += int(clipped.sum())
    sums.entropy += float(found.entropies.sum())
    if any(row.objective != GROUP for row in rows):
        sums.add_losses(one, rows, found.losses)
    fresh.add(one, rows, tokens, found.logprobs)


@dataclass(frozen=True, slots=True)
class PackLosses:
    """A pack's trained tokens and what was computed of them. `losses` are weighted and have a gradient, as `logprobs`.

    `divergence`: from the teacher, if there is one.
    """

    tokens: PackTokens
    logprobs: Tensor
    entropies: Tensor
    result: TokenLoss
    losses: Tensor
    divergence: Tensor | None


def pack_losses(policy: Policy, one: Pack, rows: Sequence[WeightedRow], settings: TrainerSettings) -> PackLosses:
    """Compute a pack of `rows` forward."""
    tokens = gather_tokens(one, rows, policy.device, settings.ratio_over)
    logprobs, entropies = pack_logprobs(policy, one, tokens, settings.logprob_chunk)
    teacher = None if tokens.kl_weights is None else _teacher(policy, one, tokens, settings)
    result, losses, divergence = weighted_losses(tokens, logprobs, teacher, settings)
    return PackLosses(tokens, logprobs, entropies, result, losses, divergence)


def weighted_losses(
    tokens: PackTokens, logprobs: Tensor, teacher: Tensor | None, settings: TrainerSettings
) -> tuple[TokenLoss, Tensor, Tensor | None]:
    """Return what the surrogate says, each token's weighted loss, and its divergence from the teacher, if any.

    `teacher`: the logprobs of `tokens` by their teacher, needed if these have `kl_weights`.
    """
    parent = logprobs.detach() if tokens.parent is None else tokens.parent
    behaviour = tokens.behaviour
    if tokens.unsampled is not None:  # the surrogate is not theirs, and 0 · NaN would be NaN
        behaviour = torch.where(tokens.unsampled, logprobs.detach(), behaviour)
    sampled = SampledTokens(logprobs, behaviour, tokens.advantages, parent, tokens.units, tokens.unit_count)
    result = LOSSES[settings.loss](sampled, settings)
    losses = result.loss * tokens.rl_weights
    if tokens.ce_weights is not None:
        losses = losses - logprobs * tokens.ce_weights
    if tokens.kl_weights is None or teacher is None:
        return result, losses, None
    divergence = kl_to_teacher(logprobs, teacher)
    return result, losses + divergence * tokens.kl_weights, divergence.detach()


def _teacher(policy: Policy, one: Pack, tokens: PackTokens, settings: TrainerSettings) -> Tensor:
    """The logprobs of each token's teacher: those that its row has, or the base's."""
    with policy.base_only():
        base, _ = pack_logprobs(policy, one, tokens, settings.logprob_chunk)
    return base if tokens.teacher is None else torch.where(tokens.teacher.isnan(), base, tokens.teacher)


def _blame(one: Pack, rows: Sequence[WeightedRow], losses: Tensor) -> str:
    owners = [rows[index].row.trajectory_id for index in one.rows for _ in range(rows[index].row.trained_tokens)]
    bad = (~torch.isfinite(losses)).cpu().tolist()
    guilty = sorted({owner for owner, is_bad in zip(owners, bad, strict=True) if is_bad})
    return f"the loss is not finite (trajectories {', '.join(guilty) or 'unknown'}): no update was made"

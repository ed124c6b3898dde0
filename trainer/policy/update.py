"""One optimizer step over weighted rows: forward and backward pack by pack, then one update.

Owns: the passes of an update, which the ranks of a trainer share, and the sum of the loss. Refuses: files, the store,
choosing rows, how they are packed (`trainer.policy.packs`), and what ranks send each other (`trainer.ranks`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from trainer.batch.packing import Pack
from trainer.batch.weights import GROUP, WeightedRow
from trainer.errors import StepFailed, StepInterrupted
from trainer.policy import memory
from trainer.policy.logprobs import token_logprobs
from trainer.policy.losses import LOSSES, SampledTokens, TokenLoss, follow_teacher, kl_to_teacher
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.plan import UpdatePlan
from trainer.policy.packs.sums import FreshGaps, StepSums
from trainer.policy.packs.tokens import PackTokens, gather_tokens
from trainer.ranks.rounds import DealtPack
from trainer.settings import TrainerSettings


def train_step(
    policy: Policy,
    optimizer: Optimizer,
    planned: UpdatePlan,
    settings: TrainerSettings,
    stopped: Callable[[], bool],
    fresh: FreshGaps | None = None,
) -> dict[str, float]:
    """Make one update and return its metrics. The ranks share the packs; the first one updates the weights.

    `fresh`: where the gaps of fresh tokens are added; the metrics contain what it has then. `stopped` is called between
    packs. Raises `StepInterrupted` if it returns true, and `StepFailed` if loss or gradient is not finite; then the
    parameters are unchanged.
    """
    sums, gaps, ranks = StepSums(), FreshGaps() if fresh is None else fresh, policy.ranks
    optimizer.zero()

    def accumulate(dealt: DealtPack) -> StepFailed | None:
        return _accumulate(policy, dealt, planned.rows, settings, sums, gaps)

    try:
        run_passes(policy, planned.packs, stopped, accumulate)
    except StepInterrupted:
        optimizer.zero()
        raise
    ranks.sum_gradients(policy.parameters)
    sums.merge(ranks.gather(sums))
    gaps.merge(ranks.gather(gaps))
    updated = ranks.from_first(optimizer.step)
    ranks.share_weights(policy.parameters)
    return sums.means() | gaps.means() | updated


def run_passes(
    policy: Policy,
    packs: Sequence[Pack],
    stopped: Callable[[], bool],
    compute: Callable[[DealtPack], StepFailed | None],
) -> None:
    """Compute this rank's passes. Before each, and after the last, all ranks agree on a stop or an error of any.

    `compute` returns an error that a finished pass found. Raises it on all ranks, or `StepInterrupted`.
    """
    failure: Exception | None = None
    for dealt in policy.ranks.deal(packs):
        if failure is None and stopped():
            failure = StepInterrupted("the step was stopped before its update: its groups are given back")
        policy.ranks.agree(failure)
        failure = _run_pass(policy, dealt, compute) if dealt is not None else None
    policy.ranks.agree(failure)


def _run_pass(policy: Policy, dealt: DealtPack, compute: Callable[[DealtPack], StepFailed | None]) -> Exception | None:
    try:
        with memory.pass_errors(dealt.pack):
            failure = compute(dealt)
    except Exception as e:
        if policy.ranks.is_sharded:  # the others wait in the middle of this pass, and not for an agreement
            raise
        return e
    policy.end_pass()
    return failure


def measure_parent(
    policy: Policy, planned: UpdatePlan, settings: TrainerSettings, stopped: Callable[[], bool], fresh: FreshGaps
) -> list[WeightedRow]:
    """Return rows that are trained on only after the weights have changed, with their logprobs at the parent as far as
    this rank computes them, and add their gaps to `fresh`. Raises `StepInterrupted`.
    """
    rows = list(planned.rows)

    @torch.no_grad()
    def measure(dealt: DealtPack) -> None:
        one = dealt.pack
        tokens = gather_tokens(one, planned.rows, policy.device)
        logprobs, _ = pack_logprobs(policy, one, tokens, settings.logprob_chunk)
        own = torch.split(logprobs, [rows[index].row.trained_tokens for index in one.rows])
        for index, values in zip(one.rows, own, strict=True):
            rows[index] = replace(rows[index], parent=values.cpu().numpy())
        if dealt.counts:
            fresh.add(one, planned.rows, tokens, logprobs)

    run_passes(policy, planned.packs, stopped, measure)
    return rows


def pack_logprobs(policy: Policy, one: Pack, tokens: PackTokens, chunk: int) -> tuple[Tensor, Tensor]:
    """Return the logprobs (with gradient) and entropies of a pack's trained tokens, float32 of shape (n,)."""
    hidden = policy.hidden(one)[tokens.before]
    return token_logprobs(hidden, policy.head, tokens.targets, tokens.temperatures, chunk=chunk)


def _accumulate(
    policy: Policy,
    dealt: DealtPack,
    rows: Sequence[WeightedRow],
    settings: TrainerSettings,
    sums: StepSums,
    fresh: FreshGaps,
) -> StepFailed | None:
    """One pass, forward and backward. An error that it finds is returned after both: other ranks wait within them."""
    one = dealt.pack
    found = pack_losses(policy, one, rows, settings)
    loss = found.losses.sum()
    torch.autograd.backward(loss if dealt.counts else 0.0 * loss)
    if not torch.isfinite(loss):
        return StepFailed(_blame(one, rows, found.losses.detach()))
    if not dealt.counts:
        return None
    if found.divergence is not None:
        sums.kl_base = (sums.kl_base or 0.0) + float(found.divergence.sum())
    sums.add_tokens(found.tokens, found.result, loss)
    sums.forward_tokens += len(one)
    sums.entropy += float(found.entropies.sum())
    if any(row.objective != GROUP for row in rows):
        sums.add_losses(one, rows, found.losses)
    fresh.add(one, rows, found.tokens, found.logprobs)
    return None


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
    has_teacher = tokens.kl_weights is not None
    if policy.ranks.is_sharded:  # all ranks make the teacher's pass, or none
        has_teacher = any(np.any(weighted.kl_weight) for weighted in rows)
    teacher = _teacher(policy, one, tokens, settings) if has_teacher else None
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
    if tokens.taught_weights is not None:
        own, is_taught = follow_teacher(sampled), tokens.taught_weights != 0
        losses = losses + own.loss * tokens.taught_weights
        ratio, clipped = torch.where(is_taught, own.ratio, result.ratio), result.clipped & ~is_taught
        result = TokenLoss(result.loss, ratio, clipped | (own.clipped & is_taught))
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

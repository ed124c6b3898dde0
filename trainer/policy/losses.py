"""The registry of surrogates: each maps logprobs and an advantage to a loss for each sampled token.

Owns: the surrogates, their clipping and truncation, the KL estimate. Refuses: models, batching and weights.

Everywhere `ratio` = exp(logprob in the trainer − logprob in the engine that sampled the token), but for `gspo`. There
is no second "old" forward pass: the engine's own logprobs are the behaviour policy, so one ratio covers both the
policy's updates since sampling and the numerical difference of engine and trainer. All tensors are float32 of shape
(tokens,).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor

from trainer.settings import TrainerSettings

TEACHER_CAP: Final = 2.0  # the largest importance weight of a token whose advantage is a teacher's
_LOG_RATIO_MAX = 20.0  # exp(20) = 5e8: much larger values overflow float32


@dataclass(frozen=True, slots=True)
class SampledTokens:
    """What a surrogate is computed from. `logprobs` alone has a gradient.

    `parent`: by the version that the step began from, before any update. `units`: for each token the number, from 0, of
    the row or turn that it shares a ratio with (`trainer.ratio_over`); there are `unit_count`.
    """

    logprobs: Tensor
    behaviour: Tensor
    advantages: Tensor
    parent: Tensor
    units: Tensor  # int64
    unit_count: int


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """For each token: the loss (to be weighted and summed), the ratio, and whether clipping removed the gradient."""

    loss: Tensor
    ratio: Tensor  # without gradient
    clipped: Tensor  # bool


LossFunction = Callable[[SampledTokens, TrainerSettings], TokenLoss]


def grpo(tokens: SampledTokens, settings: TrainerSettings) -> TokenLoss:
    """Token-clipped policy gradient: −min(r, 1 + ε_high)·A where A > 0, −min(max(r, 1 − ε_low), c)·A where A < 0.

    The clipped surrogate min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A) of PPO (arXiv 1707.06347, eq. 7) with GRPO's
    advantage (arXiv 2402.03300, eq. 3) and a higher upper bound (DAPO, arXiv 2503.14476, section 3.1), written by the
    sign of A. It leaves r unbounded where A < 0, so r is truncated there at c = `importance_cap` (truncated importance
    sampling, Ionides 2008): the value stops there, the gradient stays c·A·∇logprob.
    """
    ratio = _ratio(tokens.logprobs, tokens.behaviour)
    cap, truncated = settings.importance_cap, ratio
    if math.isfinite(cap):
        truncated = torch.where(ratio > cap, cap * torch.exp(tokens.logprobs - tokens.logprobs.detach()), ratio)
    return _clipped(ratio, truncated, tokens.advantages, settings)


def _clipped(ratio: Tensor, truncated: Tensor, advantages: Tensor, settings: TrainerSettings) -> TokenLoss:
    lowest, highest = 1 - settings.clip_low, 1 + settings.clip_high
    bounded = torch.where(advantages > 0, ratio.clamp(max=highest), truncated.clamp(min=lowest))
    clipped = torch.where(advantages > 0, ratio > highest, (ratio < lowest) & (advantages < 0))
    return TokenLoss(-bounded * advantages, ratio.detach(), clipped.detach())


def _truncate(tokens: SampledTokens, cap: float) -> TokenLoss:
    ratio = _ratio(tokens.logprobs, tokens.behaviour).detach()
    weight = ratio.clamp(max=cap)
    return TokenLoss(-weight * tokens.advantages * tokens.logprobs, ratio, ratio > cap)


def cispo(tokens: SampledTokens, settings: TrainerSettings) -> TokenLoss:
    """Clipped importance weight: −stop_gradient(min(r, cap))·A·logprob.

    CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4-5): the weight is clipped, never the gradient, so that rare but
    important tokens keep a gradient. `cispo_cap` is its truncation; `importance_cap` does not apply.
    """
    return _truncate(tokens, settings.cispo_cap)


def reinforce(tokens: SampledTokens, settings: TrainerSettings) -> TokenLoss:
    """The policy gradient (Williams 1992) under the same truncated weight, at `importance_cap`."""
    return _truncate(tokens, settings.importance_cap)


def gspo(tokens: SampledTokens, settings: TrainerSettings) -> TokenLoss:
    """Clipped sequence ratio: PPO's objective with r = exp(mean over a row of logprob − logprob at the parent).

    GSPO (arXiv 2507.18071, eq. 5-7). Its clip range is smaller than the rounding of an engine in bfloat16, so the ratio
    is to the parent, which the trainer computes itself. Parent over engine is a truncated importance weight, without
    gradient, at `importance_cap`. A ratio clipped for a row is counted for each token of it.
    """
    change = (tokens.logprobs - tokens.parent).clamp(max=_LOG_RATIO_MAX)
    sums = change.new_zeros(tokens.unit_count).index_add(0, tokens.units, change)
    sizes = change.new_zeros(tokens.unit_count).index_add(0, tokens.units, torch.ones_like(change))
    ratio = torch.exp(sums / sizes)[tokens.units]
    found = _clipped(ratio, ratio, tokens.advantages, settings)
    weight = _ratio(tokens.parent, tokens.behaviour).clamp(max=settings.importance_cap)
    return TokenLoss(found.loss * weight, found.ratio, found.clipped)


def follow_teacher(tokens: SampledTokens) -> TokenLoss:
    """The policy gradient of a teacher's advantage: −stop_gradient(min(r, 2))·A·logprob, whatever `trainer.loss` is.

    The loss of a sampled token in SDPO (arXiv 2601.20802), whose A is log π_T − log π: the gradient of the reverse KL
    to the teacher at the tokens that were sampled.
    """
    return _truncate(tokens, TEACHER_CAP)


LOSSES: Mapping[str, LossFunction] = {"grpo": grpo, "cispo": cispo, "reinforce": reinforce, "gspo": gspo}


def kl_to_teacher(logprobs: Tensor, teacher: Tensor) -> Tensor:
    """Estimate KL(policy ‖ teacher) a token: exp(d) − d − 1 with d = teacher − policy; never negative.

    The k3 estimator (Schulman, "Approximating KL divergence", 2020), as in GRPO, arXiv 2402.03300, eq. 4, where the
    base is the teacher.
    """
    difference = (teacher - logprobs).clamp(max=_LOG_RATIO_MAX)
    return torch.exp(difference) - difference - 1


def _ratio(logprobs: Tensor, behaviour: Tensor) -> Tensor:
    return torch.exp((logprobs - behaviour).clamp(max=_LOG_RATIO_MAX))

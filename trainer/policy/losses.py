"""The registry of token losses: each maps logprobs and an advantage to a loss for each sampled token.

Owns: the surrogates, their clipping and truncation, the KL estimate. Refuses: models, batching and weights.

Everywhere `ratio` = exp(logprob in the trainer − logprob in the engine that sampled the token). There is no second
"old" forward pass: the engine's own logprobs are the behaviour policy, so one ratio covers both the policy's updates
since sampling and the numerical difference of engine and trainer. All tensors are float32 of shape (tokens,).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer.settings import TrainerSettings

_LOG_RATIO_MAX = 20.0  # exp(20) = 5e8: much larger values overflow float32


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """For each token: the loss (to be weighted and summed), the ratio, and whether clipping removed the gradient."""

    loss: Tensor
    ratio: Tensor  # without gradient
    clipped: Tensor  # bool


LossFunction = Callable[[Tensor, Tensor, Tensor, TrainerSettings], TokenLoss]


def grpo(logprobs: Tensor, behaviour: Tensor, advantages: Tensor, settings: TrainerSettings) -> TokenLoss:
    """Token-clipped policy gradient: −min(r, 1 + ε_high)·A where A > 0, −min(max(r, 1 − ε_low), c)·A where A < 0.

    The clipped surrogate min(r·A, clip(r, 1 − ε_low, 1 + ε_high)·A) of PPO (arXiv 1707.06347, eq. 7) with GRPO's
    advantage (arXiv 2402.03300, eq. 3) and a higher upper bound (DAPO, arXiv 2503.14476, section 3.1), written by the
    sign of A. It leaves r unbounded where A < 0, so r is truncated there at c = `importance_cap` (truncated importance
    sampling, Ionides 2008): the value stops there, the gradient stays c·A·∇logprob.
    """
    ratio = _ratio(logprobs, behaviour)
    cap, lowest, highest = settings.importance_cap, 1 - settings.clip_low, 1 + settings.clip_high
    truncated = torch.where(ratio > cap, cap * torch.exp(logprobs - logprobs.detach()), ratio)
    bounded = torch.where(advantages > 0, ratio.clamp(max=highest), truncated.clamp(min=lowest))
    clipped = torch.where(advantages > 0, ratio > highest, (ratio < lowest) & (advantages < 0))
    return TokenLoss(-bounded * advantages, ratio.detach(), clipped.detach())


def cispo(logprobs: Tensor, behaviour: Tensor, advantages: Tensor, settings: TrainerSettings) -> TokenLoss:
    """Clipped importance weight: −stop_gradient(min(r, cap))·A·logprob.

    CISPO (MiniMax-M1, arXiv 2506.13585, eq. 4-5): the weight is clipped, never the gradient, so that rare but
    important tokens keep a gradient. `cispo_cap` is its truncation; `importance_cap` does not apply.
    """
    ratio = _ratio(logprobs, behaviour).detach()
    weight = ratio.clamp(max=settings.cispo_cap)
    return TokenLoss(-weight * advantages * logprobs, ratio, ratio > settings.cispo_cap)


LOSSES: Mapping[str, LossFunction] = {"grpo": grpo, "cispo": cispo}


def kl_to_base(logprobs: Tensor, base_logprobs: Tensor) -> Tensor:
    """Estimate KL(policy ‖ base) a token: exp(d) − d − 1 with d = base − policy; never negative.

    The k3 estimator (Schulman, "Approximating KL divergence", 2020), as in GRPO, arXiv 2402.03300, eq. 4.
    """
    difference = (base_logprobs - logprobs).clamp(max=_LOG_RATIO_MAX)
    return torch.exp(difference) - difference - 1


def _ratio(logprobs: Tensor, behaviour: Tensor) -> Tensor:
    return torch.exp((logprobs - behaviour).clamp(max=_LOG_RATIO_MAX))

"""Log-probabilities of given tokens from hidden states, without ever holding all logits.

Owns: temperature, float32, chunking, recomputation in the backward pass. Refuses: deciding which tokens.

The logits of one position take one float32 for each token of the vocabulary (600 KB at 150,000 tokens), so they exist
for one chunk of positions at a time and are recomputed in the backward pass. Logits are divided by the temperature that
the engine sampled with, because its recorded logprobs are those of the tempered distribution.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

Head = Callable[[Tensor], Tensor]  # hidden states (n, hidden) → logits (n, vocabulary)


def token_logprobs(
    hidden: Tensor, head: Head, targets: Tensor, temperatures: Tensor, *, chunk: int
) -> tuple[Tensor, Tensor]:
    """Return the logprob of each target and the entropy of its distribution, both float32 of shape (n,).

    `hidden` (n, hidden) are the states at the positions before the targets (n,); `temperatures` (n,) are float32.
    The logprobs carry a gradient to `hidden`, the entropies none.
    """
    logprobs, entropies = [], []
    for start in range(0, len(targets), chunk):
        part = slice(start, start + chunk)
        one, entropy = _chunk(hidden[part], head, targets[part], temperatures[part])
        logprobs.append(one)
        entropies.append(entropy)
    if not logprobs:
        empty = hidden.new_zeros(0, dtype=torch.float32)
        return empty, empty
    return torch.cat(logprobs), torch.cat(entropies)


def full_logprobs(hidden: Tensor, head: Head) -> Tensor:
    """Return the whole distribution at temperature 1, float32 of shape (n, vocabulary)."""
    return torch.log_softmax(head(hidden).float(), dim=-1)


def full_divergence(logprobs: Tensor, reference: Tensor) -> Tensor:
    """Return KL(p ‖ q) of whole distributions, both given as logprobs (n, vocabulary), in nats, of shape (n,).

    It is the sum of q − p − p · log(q/p), which equals that of −p · log(q/p), because p and q sum to 1. Each term is at
    least 0. So rounding does not cancel: a divergence of 1e-6 is right in float32.
    """
    ratio = reference - logprobs
    near = logprobs.exp() * (torch.expm1(ratio) - ratio)
    far = reference.exp() - logprobs.exp() * (1 + ratio)  # where expm1 might overflow
    return torch.where(ratio < 1, near, far).sum(-1)


def _chunk(hidden: Tensor, head: Head, targets: Tensor, temperatures: Tensor) -> tuple[Tensor, Tensor]:
    def compute(states: Tensor) -> tuple[Tensor, Tensor]:
        logits = head(states).float() / temperatures[:, None]
        distribution = torch.log_softmax(logits, dim=-1)
        with torch.no_grad():
            entropy = -(distribution.exp() * distribution).sum(-1)
        return distribution.gather(-1, targets[:, None]).squeeze(-1), entropy

    if not torch.is_grad_enabled():
        return compute(hidden)
    recomputed: tuple[Tensor, Tensor] = checkpoint(compute, hidden, use_reentrant=False, preserve_rng_state=False)
    return recomputed

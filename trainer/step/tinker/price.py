"""What a step costs at a training service, in tokens. Pure, without the service's package.

Refuses: money, which each service's own price list turns tokens into.

A row is computed twice: a forward pass for the logprobs of our loss, then a forward and backward pass with its weights.
Rows share no prefixes there, while this machine computes a prefix that rows share once.
"""

from __future__ import annotations

from typing import Final

PASSES: Final = 2  # of each row


def step_tokens(trajectories: int, tokens_each: float) -> int:
    """The tokens that a step of so many trajectories computes at the service."""
    return round(PASSES * trajectories * tokens_each)


def explain_price(trajectories: int | None = None, tokens_each: float | None = None) -> str:
    """The price of a step in one sentence. `tokens_each`: of a trajectory, on average."""
    how = "A training service computes each row whole and twice, without the prefixes that rows share: a step of"
    if trajectories is None or tokens_each is None:
        return f"{how} N trajectories of T tokens costs {PASSES} x N x T tokens there."
    total = step_tokens(trajectories, tokens_each)
    return f"{how} {trajectories:,} trajectories of {tokens_each:,.0f} tokens costs {total:,} tokens there."

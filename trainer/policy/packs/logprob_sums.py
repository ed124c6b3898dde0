"""The sums of rows' logprobs without gradients, in the same packs as an update: by the weights in memory, or others.

Refuses: which rows and weights, and what the sums are for (`trainer.step.fits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.policy import update
from trainer.policy.model import Policy
from trainer.policy.packs.plan import plan_update
from trainer.policy.packs.tokens import gather_tokens
from trainer.ranks.rounds import DealtPack
from trainer.settings import TrainerSettings


def sum_logprobs(
    policy: Policy, rows: Sequence[Row], settings: TrainerSettings, pass_budget: int, stopped: Callable[[], bool]
) -> list[float]:
    """Return for each row the sum of the logprobs of its trained tokens, in nats, at their temperatures.

    The ranks of a trainer share the passes, and all of them return all sums. Raises `StepInterrupted`, and what a full
    memory raises (`trainer.policy.memory`).
    """
    if not rows:
        return []
    planned = plan_update(policy, [WeightedRow(row, 0.0, 0.0) for row in rows], settings, pass_budget)
    sums: dict[int, float] = {}

    @torch.no_grad()
    def measure(dealt: DealtPack) -> None:
        one = dealt.pack
        tokens = gather_tokens(one, planned.rows, policy.device)
        logprobs, _ = update.pack_logprobs(policy, one, tokens, settings.logprob_chunk)
        own = torch.split(logprobs.double(), [rows[index].trained_tokens for index in one.rows])
        for index, values in zip(one.rows, own, strict=True):
            sums[index] = float(values.sum())

    update.run_passes(policy, planned.packs, stopped, measure)
    whole = {index: value for theirs in policy.ranks.gather(sums) for index, value in theirs.items()}
    return [whole[index] for index in range(len(rows))]


@contextmanager
def at_reference(policy: Policy, weights: Mapping[str, Tensor] | None) -> Iterator[None]:
    """Within: the policy computes with other weights of its LoRA; None: as the base."""
    if weights is None:
        with policy.base_only():
            yield
        return
    own = policy.state()
    policy.load_state(weights)
    try:
        yield
    finally:
        policy.load_state(own)

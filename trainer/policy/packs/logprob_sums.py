"""The sums of rows' logprobs by the weights in memory, without gradients, in the same packs as an update.

Refuses: which rows, and what the sums are for (`trainer.step.fits`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

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

    In one process alone. Raises `StepInterrupted`, and what a full memory raises (`trainer.policy.memory`).
    """
    if not rows:
        return []
    planned = plan_update(policy, [WeightedRow(row, 0.0, 0.0) for row in rows], settings, pass_budget)
    sums = [0.0] * len(rows)

    @torch.no_grad()
    def measure(dealt: DealtPack) -> None:
        one = dealt.pack
        tokens = gather_tokens(one, planned.rows, policy.device)
        logprobs, _ = update.pack_logprobs(policy, one, tokens, settings.logprob_chunk)
        own = torch.split(logprobs.double(), [rows[index].trained_tokens for index in one.rows])
        for index, values in zip(one.rows, own, strict=True):
            sums[index] = float(values.sum())

    update.run_passes(policy, planned.packs, stopped, measure)
    return sums

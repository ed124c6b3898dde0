"""What the trainer computes for rows in as many passes as it makes of them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.policy.model import Policy
from trainer.policy.packs.plan import plan_update
from trainer.policy.packs.tokens import gather_tokens
from trainer.policy.update import pack_logprobs
from trainer.settings import TrainerSettings


def row_logprobs(policy: Policy, rows: Sequence[Row], settings: TrainerSettings, pass_budget: int) -> Tensor:
    """The logprobs of all trained tokens, row by row, with gradients."""
    weighted = [WeightedRow(row, 1.0, 1.0) for row in rows]
    found: dict[int, Tensor] = {}
    for one in plan_update(policy, weighted, settings, pass_budget).packs:
        logprobs, _ = pack_logprobs(policy, one, gather_tokens(one, weighted, policy.device), settings.logprob_chunk)
        counts = [rows[index].trained_tokens for index in one.rows]
        found |= dict(zip(one.rows, torch.split(logprobs, counts), strict=True))
    return torch.cat([found[index] for index in range(len(rows))])

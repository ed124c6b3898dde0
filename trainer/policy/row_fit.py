"""An estimate of which rows above `trainer.token_budget` are computed, where no plan knows the base and the card.

Owns: the estimate, and which lengths the start-up check covers. Refuses: passes of several rows, which are halved when
memory is full (`trainer.step.core`), and the plan (`trainer.memory.long_rows`).

A row alone runs in tiles, and on a GPU its layers' inputs wait in host memory, so four times the tokens take no more of
the GPU than a pass does. (Counted from the shapes of an 8 B base's tensors, not measured.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainer.batch.layouts import Layout
from trainer.policy import memory, positions
from trainer.policy.model import Policy

LONGER: Final = 4  # times the tokens of a pass that fits
_SHARE: Final = 0.5  # of the free memory that one row may take


@dataclass(frozen=True, slots=True)
class RowNeeds:
    """What a row alone takes. `host`: bytes of host memory a token; `scores`: bytes of the device a pair of tokens."""

    host: int
    scores: int

    def fit(self, tokens: int, *, host_free: int, device_free: int) -> bool:
        """Whether a row of `tokens` takes at most half of the free bytes."""
        return tokens * self.host <= _SHARE * host_free and tokens * tokens * self.scores <= _SHARE * device_free


def is_covered(policy: Policy, row_tokens: int) -> bool:
    """Whether the trainer computes rows of this length as the base does: the start-up check covers it."""
    checked = [length for length in positions.critical_lengths(policy.model_config) if length > policy.checked_tokens]
    return policy.has_long_rows and not (checked and row_tokens > checked[0])


def fits_alone(policy: Policy, row_tokens: int) -> bool:
    """Whether a row fits into memory in a pass of its own, by a low estimate.

    It has at most `LONGER` times the tokens of a pass that fits, and the start-up check covers its length.
    """
    if not is_covered(policy, row_tokens) or row_tokens > LONGER * policy.pass_budget:
        return False
    free = memory.free_bytes(policy.device)
    return row_needs(policy).fit(row_tokens, host_free=memory.host_free_bytes(), device_free=free)


def row_needs(policy: Policy) -> RowNeeds:
    """What a row alone takes of this base."""
    text = policy.model_config.get_text_config()
    inputs = text.hidden_size * text.num_hidden_layers * policy.dtype.itemsize
    if policy.layout is Layout.PACKED:
        return RowNeeds(inputs, 0)  # packed attention keeps no scores and no mask
    heads = text.num_attention_heads if policy.attention == "eager" else 0
    return RowNeeds(inputs, 1 + 12 * heads)  # a mask; and scores, their softmax and its gradient in float32

"""What transformers says of a layer's mask becomes what packed rows attend to, and no mask is made."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest
import torch
from transformers import Gemma3TextConfig, Llama4TextConfig, LlamaConfig, MistralConfig, masking_utils

from trainer.errors import UnsupportedModel
from trainer.policy.attention import interface
from trainer.policy.attention.reach import Reach

STATES = torch.zeros(1, 12, 8)
# transformers renamed it in 5.24
CACHE = "cache" if "cache" in signature(masking_utils.create_causal_mask).parameters else "past_key_values"
PACKED = torch.tensor([[0, 1, 2, 3, 4, 5, 2, 3, 4, 0, 1, 2]])  # positions of three segments


def described(make: Any, config: Any, **named: Any) -> Any:
    interface.register_attention()
    config._attn_implementation = interface.NAME
    given = {"attention_mask": None, "position_ids": PACKED, **named}
    return make(config, STATES, **{CACHE: None}, **given)


def test_the_masks_of_transformers_are_described() -> None:
    assert described(masking_utils.create_causal_mask, LlamaConfig()) is None
    window = described(masking_utils.create_sliding_window_causal_mask, MistralConfig(sliding_window=7))
    assert window == Reach(7)
    chunk = described(masking_utils.create_chunked_causal_mask, Llama4TextConfig(attention_chunk_size=5))
    assert chunk == Reach(5, is_chunk=True)
    by_kind = described(masking_utils.create_masks_for_generate, Gemma3TextConfig(sliding_window=9))
    assert by_kind == {"sliding_attention": Reach(9), "full_attention": None}


def test_other_masks_are_refused() -> None:
    with pytest.raises(UnsupportedModel, match="attention mask"):
        described(masking_utils.create_bidirectional_mask, LlamaConfig(), position_ids=None)
    with pytest.raises(UnsupportedModel, match="attention mask"):
        described(masking_utils.create_causal_mask, LlamaConfig(), or_mask_function=lambda *_places: True)
    with pytest.raises(UnsupportedModel, match="attention mask"):
        described(masking_utils.create_causal_mask, LlamaConfig(), and_mask_function=lambda *_places: True)

"""Attention over a pack: every row attends only to itself, through transformers' attention interface.

Owns: the attention function `hone_packed` and its arguments. Refuses: attention variants it does not know (sliding
windows, soft caps, sinks): `trainer.policy.model` then falls back to one row a pass with the model's own attention.

The linear layers process the pack as one flat sequence without padding. Attention runs segment by segment: the queries
of a segment against the keys of its ancestors and its own, causal inside it. No mask of the whole pack ever exists, and
on a GPU none of a segment. A long row's queries run in tiles, each against the keys up to its own end.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend
from torch.nn.attention.bias import causal_lower_right
from transformers import AttentionInterface

from trainer.batch.packing import Segment
from trainer.errors import UnsupportedModel
from trainer.policy.tiles import run_recomputed

NAME = "hone_packed"

_UNKNOWN = ("sliding_window", "softcap", "s_aux", "position_bias")


def register_attention() -> None:
    """Register `NAME` with transformers, and disable cuDNN's attention in torch. Idempotent.

    cuDNN plans anew for every new pair of lengths, and a step's rows have all lengths: on an H100 with a base of 0.6 B
    the first step over new rows took 58 s, the second over the same ones 19 s.
    """
    AttentionInterface.register(NAME, packed_attention)
    torch.backends.cuda.enable_cudnn_sdp(False)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    segments: Sequence[Segment] | None = None,
    query_tile: int | None = None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend within `segments`. Query (1, heads, tokens, dim), key and value (1, kv heads, tokens, dim).

    `query_tile`: how many queries attend at a time; None: all of a segment. Returns (1, tokens, heads, dim). `dropout`
    is ignored, because logprobs must be deterministic. Raises `UnsupportedModel` if the model passes no segments or
    uses an unknown attention variant.
    """
    unknown = [name for name in _UNKNOWN if others.get(name) is not None]
    if segments is None or attention_mask is not None or unknown:
        raise UnsupportedModel(f"{type(module).__name__} attends in a way that packed rows do not know: {unknown}")
    if not (grouped := _is_grouped(query, key, value)):
        repeats = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(repeats, 1), value.repeat_interleave(repeats, 1)
    # split, not slices: the backward pass of a slice would fill the whole pack with zeros, once for each segment
    lengths = [segment.stop - segment.start for segment in segments]
    queries, keys, values = (torch.split(states, lengths, 2) for states in (query, key, value))
    outputs = []
    for index, segment in enumerate(segments):
        # an ancestor's positions all lie before the segment's own: its keys are in order of position
        line = (*segment.ancestors, index)
        its_keys, its_values, first = _joined(keys, line), _joined(values, line), segment.offset
        for part in torch.split(queries[index], query_tile or lengths[index], 2):
            last = first + part.shape[2]
            given = part, _first_of(its_keys, last), _first_of(its_values, last)
            attend = partial(_attend, first=first, scaling=scaling, grouped=grouped)
            # a CPU's kernel saves a mask for each tile: together they would be half of the row's whole mask
            is_masked = query_tile is not None and query.device.type != "cuda"
            outputs.append(run_recomputed(attend, *given) if is_masked else attend(*given))
            first = last
    return torch.cat(outputs, 2).transpose(1, 2).contiguous(), None


def _is_grouped(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether a fused kernel computes fewer heads of keys than of queries. Torch's other one keeps every score."""
    if query.shape[1] == key.shape[1]:
        return False
    kernel = torch._fused_sdp_choice(query, key, value, None, 0.0, is_causal=True, enable_gqa=True)
    return bool(kernel == SDPBackend.FLASH_ATTENTION.value)


def _attend(query: Tensor, key: Tensor, value: Tensor, *, first: int, scaling: float | None, grouped: bool) -> Tensor:
    """Attend causally: the queries are at the positions from `first` on, and the keys end with the last of them."""
    mask = _mask(first, query.shape[2], query.device)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scaling, enable_gqa=grouped
    )


def _first_of(states: Tensor, count: int) -> Tensor:
    return states if count == states.shape[2] else states[:, :, :count]


def _joined(parts: Sequence[Tensor], line: Sequence[int]) -> Tensor:
    return parts[line[0]] if len(line) == 1 else torch.cat([parts[index] for index in line], 2)


def _mask(first: int, length: int, device: torch.device) -> Tensor | None:
    """Which keys each of `length` queries from position `first` attends to, (queries, keys) bool; None: plain causal.

    GPU kernels only need to know that queries and keys end together. (CPU kernels would get the same mask, and a
    warning.)
    """
    if first == 0:
        return None
    last = first + length
    if device.type == "cuda":
        return causal_lower_right(length, last)
    queries = torch.arange(first, last, device=device)
    return torch.arange(last, device=device)[None, :] <= queries[:, None]

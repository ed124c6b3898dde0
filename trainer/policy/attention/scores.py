"""One tile's attention: queries against the keys before and beside them, by a fused kernel or with capped scores.

Owns: masks of a tile, sinks, soft caps. Refuses: which keys belong to a tile (`trainer.policy.attention.reach`), and
what is recomputed in the backward pass (`trainer.policy.attention.interface`).

A sink is a score that no token has: one more key takes its share of the softmax, and its value is zero. The queries'
additional dimension holds the sink, that key alone is not zero there. No fused kernel caps scores: they are computed as
they are, so a tile must be small.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention import SDPBackend
from torch.nn.attention.bias import causal_lower_right

_ALIGNED = 8  # dimensions of a head; a GPU's kernel would pad each call's tensors to a multiple


@dataclass(frozen=True, slots=True)
class States:
    """Queries (1, heads, tokens, dim), keys and values (1, kv heads, tokens, dim), and the key and value of a sink."""

    query: Tensor
    key: Tensor
    value: Tensor
    sink_key: Tensor | None = None  # (1, kv heads, 1, dim), as is its value
    sink_value: Tensor | None = None


def with_equal_widths(states: States) -> States:
    """Pad queries, keys and values with zeros to the widest: torch's kernel for several widths keeps every score."""
    given = states.query, states.key, states.value
    width = max(one.shape[-1] for one in given)
    query, key, value = (one if one.shape[-1] == width else F.pad(one, (0, width - one.shape[-1])) for one in given)
    return States(query, key, value)


def with_sink(states: States, sink: Tensor, scale: float) -> States:
    """Add dimensions to states of equal widths that give each query the score `sink` (heads,) with the sink's key."""
    query, key = states.query, states.key
    dim = query.shape[-1]
    more = _ALIGNED - dim % _ALIGNED
    column = (sink / scale).to(query.dtype)[None, :, None, None].expand(*query.shape[:3], 1)
    sink_key = key.new_zeros(1, key.shape[1], 1, dim + more)
    sink_key[..., dim] = 1
    query = torch.cat([query, F.pad(column, (0, more - 1))], -1)
    key, value = (F.pad(one, (0, more)) for one in (key, states.value))
    return States(query, key, value, sink_key, torch.zeros_like(sink_key))


def with_kernel_heads(states: States, *, is_masked: bool) -> tuple[States, bool]:
    """Repeat keys and values for each query's head where no fused kernel does. Returns whether one does.

    `is_masked`: attention has a mask that is not only causal.
    """
    query, key, value = states.query, states.key, states.value
    repeats = query.shape[1] // key.shape[1]
    if repeats == 1 or is_grouped(query, key, value, is_masked):
        return states, repeats > 1

    def repeat(one: Tensor | None) -> Tensor | None:
        return None if one is None else one.repeat_interleave(repeats, 1)

    key, value = (one.repeat_interleave(repeats, 1) for one in (key, value))
    return States(query, key, value, repeat(states.sink_key), repeat(states.sink_value)), False


def is_on_gpu(query: Tensor) -> bool:
    """Whether a GPU's kernels compute it: they need no mask for a causal tile, and keep none."""
    return query.device.type == "cuda"


def is_grouped(query: Tensor, key: Tensor, value: Tensor, is_masked: bool) -> bool:
    """Whether a fused kernel computes fewer heads of keys than of queries. Torch's other one keeps every score.

    On a GPU, the kernel that takes masks does not.
    """
    if is_masked and is_on_gpu(query):
        return False
    kernel = torch._fused_sdp_choice(query, key, value, None, 0.0, is_causal=True, enable_gqa=True)
    return bool(kernel == SDPBackend.FLASH_ATTENTION.value)


def attend(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, scale: float, grouped: bool, sink: bool
) -> Tensor:
    """Attend by a fused kernel; the last query is at the last key. `mask`: (queries, keys), added; None: causal.

    `sink`: the first key is a sink, which comes before all positions.
    """
    length, before = query.shape[2], key.shape[2] - query.shape[2]
    is_first = sink and before == 1 and mask is None and not is_on_gpu(query)
    if is_first:  # a query for the sink itself, so that a CPU needs no mask for a plain causal tile
        query, before = F.pad(query, (0, 0, 1, 0)), 0
    if mask is None:
        mask = causal_mask(before, length, query)
    found = F.scaled_dot_product_attention(
        query, key, value, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped
    )
    return found[:, :, 1:] if is_first else found


def attend_capped(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    window: int | None,
    scale: float,
    cap: float,
    sink: Tensor | None,
) -> Tensor:
    """Attend with scores that stay within ±cap: cap x tanh(score / cap). Keeps every score of the tile.

    `sink`: (heads,), one more score of each head, which is not capped.
    """
    (_, heads, length, dim), kv_heads = query.shape, key.shape[1]
    grouped = query.reshape(1, kv_heads, heads // kv_heads * length, dim)
    scores = (grouped @ key.transpose(2, 3)).view(1, heads, length, -1)
    precise = torch.promote_types(scores.dtype, torch.float32)
    scores = cap * torch.tanh(scores.to(precise) * (scale / cap))
    hidden = ~_seen(key.shape[2] - length, length, window, False, query.device)
    scores = scores.masked_fill(hidden, -torch.inf)
    if sink is not None:
        scores = torch.cat([sink.to(precise)[None, :, None, None].expand(1, heads, length, 1), scores], -1)
    weights = torch.softmax(scores, -1).to(value.dtype)
    weights = weights if sink is None else weights[..., 1:]
    found = weights.reshape(1, kv_heads, heads // kv_heads * length, -1) @ value
    return found.view(1, heads, length, -1)


def causal_mask(before: int, length: int, query: Tensor) -> Tensor | None:
    """The mask of `length` queries with `before` more keys than queries, (queries, keys), added; None: plain causal.

    GPU kernels only need to know that queries and keys end together. (CPU kernels would get the same mask, and a
    warning.)
    """
    if before == 0:
        return None
    if is_on_gpu(query):
        return causal_lower_right(length, before + length)
    return added_mask(before, length, None, False, query)


def added_mask(before: int, length: int, window: int | None, sink: bool, query: Tensor) -> Tensor:
    """0 where a query attends to a key and -inf where not: (queries, keys), in the dtype and on the device of `query`.

    Kernels make this of a boolean mask, and keep it for the backward pass of each call: this one can be shared.
    """
    seen = _seen(before, length, window, sink, query.device)
    return torch.zeros(seen.shape, dtype=query.dtype, device=query.device).masked_fill(~seen, -torch.inf)


def _seen(before: int, length: int, window: int | None, sink: bool, device: torch.device) -> Tensor:
    queries = torch.arange(before, before + length, device=device)
    distance = queries[:, None] - torch.arange(before + length, device=device)[None, :]
    seen = distance >= 0 if window is None else (distance >= 0) & (distance < window)
    if sink:
        seen[:, 0] = True
    return seen

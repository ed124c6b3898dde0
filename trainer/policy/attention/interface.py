"""Attention over a pack: every row attends only to itself, through transformers' attention interface.

Owns: the attention function `hone_packed`, its arguments, and the size of tiles. Refuses: attention variants that it
does not know (position biases, indexers): `trainer.policy.startup_check` then takes the model's own, one row a pass.

The linear layers process the pack as one flat sequence without padding. Attention runs segment by segment: the queries
of a segment against the keys of its ancestors and its own, causal inside it. No mask of the whole pack ever exists, and
on a GPU none of a segment that attends to all of its row. Queries run in tiles where a row is long, where a window
hides the keys before a tile, and where the scores of a segment would be kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface

from trainer.batch.packing import Segment
from trainer.errors import UnsupportedModel
from trainer.policy.attention import scores
from trainer.policy.attention.masks import describe_mask
from trainer.policy.attention.reach import Reach, Tile, cut_segments, divide
from trainer.policy.attention.scores import States
from trainer.policy.tiles import run_recomputed

NAME: Final = "hone_packed"
# Queries of a window's tile. A CPU takes 1.0 (window of 512) to 1.6 (of 128) times the seconds that tiles of 256 take,
# and fewer would leave a GPU idle (not measured).
WINDOW_TILE: Final = 512
STRETCH: Final = 4096  # tokens of a segment with a window or chunks, at least one of them: eight tiles
MASK_ENTRIES: Final = 1 << 22  # of a tile that attends to all of its row with a mask: 16 MiB in float32
# Of a tile of all heads whose scores are capped: 16 MiB in float32 on a CPU, where 64 MiB took twice the seconds; on a
# GPU 128 MiB, so that tiles are not too many (not measured).
CPU_SCORES: Final = 1 << 22
GPU_SCORES: Final = 1 << 25
_LEAST_TILE: Final = 16
_UNKNOWN: Final = ("position_bias", "indices", "block_indices")


def register_attention() -> None:
    """Register `NAME` with transformers, and disable cuDNN's attention in torch. Idempotent.

    cuDNN plans anew for every new pair of lengths, and a step's rows have all lengths: on an H100 with a base of 0.6 B
    the first step over new rows took 58 s, the second over the same ones 19 s.
    """
    AttentionInterface.register(NAME, packed_attention)
    AttentionMaskInterface.register(NAME, describe_mask)
    torch.backends.cuda.enable_cudnn_sdp(False)


def packed_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Reach | None,
    *,
    segments: Sequence[Segment] | None = None,
    query_tile: int | None = None,
    scaling: float | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    dropout: float = 0.0,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attend within `segments`. Query (1, heads, tokens, dim), key and value (1, kv heads, tokens, dim).

    `query_tile`: most queries that attend at a time; None: all of a segment. `s_aux`: the sinks, (heads,). Returns
    (1, tokens, heads, dim). `dropout` is ignored, because logprobs must be deterministic; and a layer's own
    `sliding_window` is, because its mask says it. Raises `UnsupportedModel` if the model passes no segments or uses an
    unknown attention variant.
    """
    unknown = [name for name in _UNKNOWN if others.get(name) is not None]
    is_known = attention_mask is None or isinstance(attention_mask, Reach)
    if segments is None or not is_known or unknown or others.get("is_causal") is False:
        raise UnsupportedModel(f"{type(module).__name__} attends in a way that packed rows do not know: {unknown}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    states = States(_tempered(module, query, segments), key, value)
    if attention_mask is not None:
        segments = cut_segments(segments, max(STRETCH, attention_mask.size))
    attention = _Attention(segments, attention_mask, query_tile, scale)
    if softcap is not None:
        found = attention.capped(states, softcap, s_aux)
    else:
        states = scores.with_equal_widths(states)
        found = attention.fused(states if s_aux is None else scores.with_sink(states, s_aux, scale))
    return found[..., : value.shape[-1]].transpose(1, 2).contiguous(), None


@dataclass(frozen=True, slots=True)
class _Part:
    """A tile of a segment. `is_one_of_several`: the segment has more."""

    tile: Tile
    is_one_of_several: bool


_Attend = Callable[[Tensor, Tensor, Tensor, _Part], Tensor]


@dataclass(frozen=True, slots=True)
class _Attention:
    """The attention of one layer over a pack."""

    segments: Sequence[Segment]
    reach: Reach | None
    query_tile: int | None
    scale: float
    _masks: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # of tiles with a window: most are equal

    def capped(self, states: States, cap: float, sink: Tensor | None) -> Tensor:
        """Attend with capped scores: every tile is computed again in the backward pass."""

        def attend(query: Tensor, key: Tensor, value: Tensor, part: _Part) -> Tensor:
            compute = partial(scores.attend_capped, window=part.tile.window, scale=self.scale, cap=cap, sink=sink)
            return run_recomputed(compute, query, key, value)

        on_gpu = scores.is_on_gpu(states.query)
        entries = (GPU_SCORES if on_gpu else CPU_SCORES) // states.query.shape[1]
        return self._by_tiles(states, attend, [self._tiles(one, entries) for one in self.segments])

    def fused(self, states: States) -> Tensor:
        """Attend by torch's fused kernels."""
        states, grouped = scores.with_kernel_heads(states, is_masked=self._has_window)
        has_sink, on_gpu = states.sink_key is not None, scores.is_on_gpu(states.query)
        compute = partial(scores.attend, scale=self.scale, grouped=grouped, sink=has_sink)

        def attend(query: Tensor, key: Tensor, value: Tensor, part: _Part) -> Tensor:
            if part.tile.window is not None:
                return compute(query, key, value, self._mask(part.tile, has_sink, query))
            # a CPU's kernel saves a mask for each tile: together they would be half of the row's whole mask
            if part.is_one_of_several and part.tile.before and not on_gpu:
                return run_recomputed(compute, query, key, value)
            return compute(query, key, value)

        def entries(segment: Segment) -> int | None:
            is_masked = segment.offset > 0 or self.query_tile is not None
            return MASK_ENTRIES if is_masked and not on_gpu else None

        return self._by_tiles(states, attend, [self._tiles(one, entries(one)) for one in self.segments])

    @property
    def _has_window(self) -> bool:
        return self.reach is not None and not self.reach.is_chunk

    def _tiles(self, segment: Segment, entries: int | None) -> list[Tile]:
        """The tiles of a segment. `entries`: most pairs of a query and a key in one; None: any."""
        first, stop = segment.offset, segment.offset + segment.stop - segment.start
        keys = stop if self.reach is None else min(stop, self.reach.size + WINDOW_TILE)
        limits = [self.query_tile, None if entries is None else max(_LEAST_TILE, entries // keys)]
        step = min((limit for limit in limits if limit is not None), default=stop - first)
        return divide(self.reach, first, stop, step, min(step, WINDOW_TILE))

    def _by_tiles(self, states: States, attend: _Attend, tiles: Sequence[Sequence[Tile]]) -> Tensor:
        """Attend tile by tile: (1, heads, tokens, dim). `tiles`: those of each segment."""
        # split, not slices: the backward pass of a slice would fill the whole pack with zeros, once for each segment
        lengths = [segment.stop - segment.start for segment in self.segments]
        queries, keys, values = (torch.split(one, lengths, 2) for one in (states.query, states.key, states.value))
        outputs = []
        for index, its in enumerate(tiles):
            first = its[0].first_key
            its_keys = self._line(keys, index, first, states.sink_key)
            its_values = self._line(values, index, first, states.sink_value)
            its_queries = torch.split(queries[index], [tile.stop - tile.start for tile in its], 2)
            for query, tile in zip(its_queries, its, strict=True):
                span = tile.first_key - first, tile.stop - first
                key, value = _span(its_keys, states.sink_key, *span), _span(its_values, states.sink_value, *span)
                outputs.append(attend(query, key, value, _Part(tile, len(its) > 1)))
        return torch.cat(outputs, 2)

    def _line(self, parts: Sequence[Tensor], index: int, first: int, sink: Tensor | None) -> Tensor:
        """The keys, or values, of a segment's line from position `first` on, in order of position, after the sink's."""
        found = [] if sink is None else [sink]
        for one in (*self.segments[index].ancestors, index):
            start, length = self.segments[one].offset, parts[one].shape[2]
            if start + length > first:
                found.append(parts[one] if start >= first else parts[one][:, :, first - start :])
        return found[0] if len(found) == 1 else torch.cat(found, 2)

    def _mask(self, tile: Tile, has_sink: bool, query: Tensor) -> Tensor:
        before, length = tile.before + has_sink, tile.stop - tile.start
        if (before, length) not in self._masks:
            self._masks[before, length] = scores.added_mask(before, length, tile.window, has_sink, query)
        return self._masks[before, length]


def _span(line: Tensor, sink: Tensor | None, start: int, stop: int) -> Tensor:
    """The keys at start..stop of a line, after the sink's."""
    if sink is None:
        return line if (start, stop) == (0, line.shape[2]) else line[:, :, start:stop]
    if start == 0:  # the line begins with the sink
        return line if stop + 1 == line.shape[2] else line[:, :, : stop + 1]
    return torch.cat([sink, line[:, :, start + 1 : stop + 1]], 2)


def _tempered(module: nn.Module, query: Tensor, segments: Sequence[Segment]) -> Tensor:
    """The queries of a layer that scales them by their place in the pack, scaled by their position in the row instead.

    Llama 4's layers without RoPE do so from `floor_scale` tokens on.
    """
    floor = getattr(module, "floor_scale", None)
    tokens = query.shape[2]
    if not getattr(module, "attn_temperature_tuning", False) or getattr(module, "use_rope", True) or floor is None:
        return query
    if tokens < floor:
        return query
    weight = float(module.attn_scale)  # type: ignore[arg-type]

    def scale_at(positions: Tensor) -> Tensor:
        return torch.log1p(torch.floor((positions + 1.0) / floor)) * weight + 1.0

    places = torch.arange(tokens, device=query.device)
    positions = torch.cat([places[: one.stop - one.start] + one.offset for one in segments])
    return query * (scale_at(positions) / scale_at(places)).to(query.dtype)[None, None, :, None]

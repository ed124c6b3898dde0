"""Recurrent layers over a pack: a segment starts from the state in which its parent ends.

Owns: which recurrent layers can do that, and the two functions of a gated delta net that look back in a row. Refuses:
the rest of the layer, which is the model's own, and attention (`trainer.policy.attention`).

A gated delta net (Qwen3.5, Qwen3-Next) looks back in a row at two places: a short causal convolution, and the delta
rule with its recurrent state. Everything else in the layer computes each token apart, so the layer runs over the flat
pack as it is. In its modeling file these two functions are replaced with ones that take the pack's `segments`: the
convolution sees the last inputs of a segment's ancestors, and the state at a segment's end is copied to all segments
that continue it. Gradients flow back through the copies. Without `segments` the functions are the model's own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from trainer.batch.packing import Segment
from trainer.policy.tiles import run_recomputed

LAYERS: Final = frozenset({"linear_attention"})  # transformers' name for layers with a recurrent state
_KINDS: Final = LAYERS | {"conv", "hybrid"}  # all layers that keep a state, as a configuration names them
# Text models whose recurrent layers are all gated delta nets.
_DELTA_NETS: Final = frozenset({"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"})
_MAMBAS: Final = frozenset(
    {
        "bamba",
        "falcon_h1",
        "falcon_mamba",
        "granitemoehybrid",
        "jamba",
        "mamba",
        "mamba2",
        "nemotron_h",
        "zamba",
        "zamba2",
    }
)
_OF_MAMBA: Final = (
    "Its Mamba layers scan each row from its first token, and the trainer copies the state of gated delta nets alone: "
    "rows are padded to equal lengths."
)
_OF_OTHERS: Final = (
    "The trainer copies the state of gated delta nets alone, and its layers keep another one: rows are padded to equal "
    "lengths."
)

_CONVOLUTION: Final = "causal_conv1d_fn"  # names in a modeling file of transformers
_RULE: Final = "torch_chunk_gated_delta_rule"
# Of the longest sequence's tokens in one call of the rule, the shortest has at least this share. Fewer calls keep a GPU
# busy; at most a quarter of what they compute is padding.
_EVENNESS: Final = 0.75


def shares_prefixes(config: Any) -> bool:
    """Whether rows of the model can share prefixes through its recurrent layers."""
    return config.get_text_config().model_type in _DELTA_NETS


def unshared_reason(config: Any) -> str | None:
    """Return why rows of a model with recurrent layers share no prefixes; None: they do, or it has no such layers."""
    text = config.get_text_config()
    is_recurrent = bool(_KINDS & set(getattr(text, "layer_types", None) or ()))
    if not is_recurrent or shares_prefixes(config):
        return None
    return _OF_MAMBA if text.model_type in _MAMBAS else _OF_OTHERS


def register_segments(model: nn.Module) -> None:
    """Let the gated delta nets of a model take `segments`, by their modeling files. Idempotent."""
    for name in {type(module).__module__ for module in model.modules()}:
        modeling = sys.modules[name]
        rule, convolution = getattr(modeling, _RULE, None), getattr(modeling, _CONVOLUTION, None)
        if rule is not None and convolution is not None and not isinstance(rule, SegmentRule):
            setattr(modeling, _RULE, SegmentRule(rule))
            setattr(modeling, _CONVOLUTION, SegmentConvolution(convolution))


class SegmentConvolution:
    """A causal convolution over a pack: before a segment stand the last inputs of its ancestors."""

    def __init__(self, convolve: Callable[..., Tensor]) -> None:
        self._convolve = convolve

    def __call__(
        self,
        states: Tensor,
        weight: Tensor,
        *others: Any,
        segments: Sequence[Segment] | None = None,
        query_tile: int | None = None,
        **named: Any,
    ) -> Tensor:
        """States (1, channels, tokens) → the same shape; weight (channels, width)."""
        if segments is None or len(segments) == 1:
            return self._convolve(states, weight, *others, **named)
        before = weight.shape[-1] - 1
        lengths = [segment.stop - segment.start for segment in segments]
        contexts = torch.from_numpy(np.concatenate(_contexts(segments, before)) + 1).to(states.device)
        # a column of zeros at index 0: what a row sees before its first token
        lines = torch.split(F.pad(states, (1, 0)).index_select(2, contexts), before, 2)
        parts = torch.split(states, lengths, 2)
        joined = [part for pair in zip(lines, parts, strict=True) for part in pair]
        found = self._convolve(torch.cat(joined, 2), weight, *others, **named)
        sizes = [size for length in lengths for size in (before, length)]
        return torch.cat(torch.split(found, sizes, 2)[1::2], 2)


def _contexts(segments: Sequence[Segment], count: int) -> list[NDArray[np.int64]]:
    """The flat indices of the last `count` tokens before each segment in its line; -1: before the row."""
    found: list[NDArray[np.int64]] = []
    last: list[NDArray[np.int64]] = []  # of each segment, with what is before it
    for segment in segments:
        before = last[segment.ancestors[-1]] if segment.ancestors else np.full(count, -1)
        found.append(before)
        both = np.concatenate([before, np.arange(segment.start, segment.stop)])
        last.append(both[len(both) - count :])
    return found


class SegmentRule:
    """The gated delta rule over a pack: a segment starts from the state in which its parent ends."""

    def __init__(self, rule: Callable[..., tuple[Tensor, Tensor | None]]) -> None:
        self._rule = rule

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        g: Tensor,
        beta: Tensor,
        initial_state: Tensor | None = None,
        segments: Sequence[Segment] | None = None,
        query_tile: int | None = None,
        **named: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Each (1, tokens, heads[, dim]) → (1, tokens, heads, dim), and no state of the pack.

        `query_tile`: how many tokens are computed at a time, each tile recomputed in the backward pass; None: all of a
        segment.
        """
        if segments is None or (len(segments) == 1 and query_tile is None):
            return self._rule(query, key, value, g=g, beta=beta, initial_state=initial_state, **named)
        stretches = _stretches(segments, query_tile)
        lengths = [one.length for one in stretches]
        parts = [torch.split(given[0], lengths) for given in (query, key, value, g, beta)]
        run = partial(self._run, options={**named, "output_final_state": True})
        outputs: list[Tensor] = [query.new_empty(0)] * len(stretches)
        states: list[Tensor] = [query.new_empty(0)] * len(stretches)
        for wave in _waves(stretches):
            # zeros change no state: nothing is forgotten (g) and nothing is written (beta)
            given = [pad_sequence([one[index] for index in wave], batch_first=True) for one in parts]
            before = _joined(states, [stretches[index].parent for index in wave])
            output, after = run(before, *given) if query_tile is None else run_recomputed(run, before, *given)
            for index, its, state in zip(wave, output, after, strict=True):
                outputs[index], states[index] = its[: lengths[index]], state
        return torch.cat(outputs)[None], None

    def _run(self, before: Tensor | None, *given: Tensor, options: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
        query, key, value, g, beta = given
        output, after = self._rule(query, key, value, g=g, beta=beta, initial_state=before, **options)
        assert after is not None
        return output, after


class _Stretch(NamedTuple):
    """Tokens that the rule computes in one sequence: a segment, or a tile of one."""

    length: int
    parent: int | None  # the stretch before it; None: a row begins here
    depth: int


def _stretches(segments: Sequence[Segment], tile: int | None) -> list[_Stretch]:
    """The stretches of a pack, in its order."""
    found: list[_Stretch] = []
    last: list[int] = []  # the last stretch of each segment
    for segment in segments:
        parent = last[segment.ancestors[-1]] if segment.ancestors else None
        length = segment.stop - segment.start
        for start in range(0, length, tile or length):
            depth = 0 if parent is None else found[parent].depth + 1
            found.append(_Stretch(min(tile or length, length - start), parent, depth))
            parent = len(found) - 1
        last.append(len(found) - 1)
    return found


def _waves(stretches: Sequence[_Stretch]) -> Iterator[list[int]]:
    """Indices of stretches of similar lengths that are computed together, each after its parent."""
    order = sorted(range(len(stretches)), key=lambda index: (stretches[index].depth, -stretches[index].length))
    wave: list[int] = []
    for index in order:
        first = stretches[wave[0] if wave else index]
        one = stretches[index]
        if one.depth != first.depth or one.length < _EVENNESS * first.length:
            yield wave
            wave = []
        wave.append(index)
    yield wave


def _joined(states: Sequence[Tensor], parents: Sequence[int | None]) -> Tensor | None:
    """The states in which these stretches start, (stretches, heads, key dim, value dim); None: where rows begin."""
    found = [states[parent] for parent in parents if parent is not None]
    return torch.stack(found) if found else None
